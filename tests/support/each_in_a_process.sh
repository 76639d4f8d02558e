#!/usr/bin/env bash
# Runs each test of a test program in a process of its own: tests with GPUs need it, and ThreadSanitizer ends a forked process whose first thread
# gets the address of a thread that was alive in its parent; between tests such threads may still be ending.
# usage: each_in_a_process.sh TEST_PROGRAM
set -uo pipefail
code=0
suite=
while read -r line; do
  name=${line%% *}
  case $name in
    *.) suite=$name; continue ;;
  esac
  "$1" --gtest_brief=1 --gtest_filter="$suite$name" || { echo "FAILED: $suite$name"; code=1; }
done < <("$1" --gtest_list_tests | grep -v '^Running main')
exit $code
