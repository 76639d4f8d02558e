#!/usr/bin/env bash
# Tests that `make test` lists every skipped case at the end, and that it fails if a case is skipped
# although the package that it needs is installed.
# usage: skips.sh FOLDER_OF_PROJECT TEST_PROGRAM
set -euo pipefail
project=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "skips.sh: $*" >&2; cat "$work/out" >&2; exit 1; }

# suite REASON: a build tree with one shell test that skips a case for that reason, and one C++ program.
suite() {
  cat > "$work/case.sh" <<END
. "$project/tests/support/shell.sh"
skip "a case" "$1"
END
  cat > "$work/CTestTestfile.cmake" <<END
add_test(shell "bash" "$work/case.sh")
add_test(program "$program" "--gtest_brief=1" "--gtest_also_run_disabled_tests" "--gtest_filter=SkipRecorder.*")
END
}
# run: writes the output of scripts/test to $work/out; the result is that of scripts/test.
run() { (cd "$project" && env LOCKSTEP_REQUIRE_ALL=0 "$@" scripts/test "$work") > "$work/out" 2>&1; }

suite "this machine has no such thing"
run env || fail "a case that this machine cannot run must not fail the suite"
grep -qE '^2 of 2 tests passed; NOT TESTED HERE \([0-9]+ cases\):$' "$work/out" || fail "no summary"
grep -q '^  case.sh: a case: this machine has no such thing$' "$work/out" || fail "the shell's case is not named"
grep -q '^  test_base: SkipRecorder.DISABLED_SkipsItself: as asked, on one line$' "$work/out" ||
  fail "the C++ program's case is not named"
if run env LOCKSTEP_REQUIRE_ALL=1; then fail "LOCKSTEP_REQUIRE_ALL=1 must allow no skipped case"; fi

suite "the package is not here; install bash"
if run env; then fail "a skip for want of an installed package must fail the suite"; fi
grep -q 'FAILED: bash is installed' "$work/out" || fail "the package is not named"
echo "skips.sh: all as expected"
