#!/usr/bin/env bash
# Runs each test of a test program in a process of its own: tests with GPUs need it, and ThreadSanitizer ends a forked process whose first thread
# gets the address of a thread that was alive in its parent; between tests such threads may still be ending.
# usage: each_in_a_process.sh TEST_PROGRAM
set -uo pipefail
code=0
tests=0
suite=
list=$("$1" --gtest_list_tests) || { echo "FAILED: $1 cannot list its tests"; exit 1; }
while read -r line; do
  name=${line%% *}
  case $name in
    "") continue ;;
    *.) suite=$name; continue ;;
  esac
  tests=$((tests + 1))
  "$1" --gtest_brief=1 --gtest_filter="$suite$name" || { echo "FAILED: $suite$name"; code=1; }
done < <(grep -v '^Running main' <<<"$list")
[ "$tests" -gt 0 ] || { echo "FAILED: $1 has no tests"; exit 1; }
exit $code
