# The common part of the tests of examples with the flags --epochs, --workers, --shards, --logdir, --resume,
# --save-every and --quiet. A test sources this file as its first step; the program is its first argument:
#   . "$(dirname "$0")/../support/example.sh"
# It then works in an empty folder.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/shell.sh"
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$program" --quiet --shards 2 "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

# has_result PATTERN: sets `line` to the result, which must match the pattern and be there once.
has_result() {
  [ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
  line=$(grep -E "^Result: $1\$" out.txt) || fail "expected a result like '$1'"
}

# result PATTERN: trains without any argument, and then with two shards, so that the numbers in `line` do not depend on
# the machine. Alone on two cores a run without arguments takes less than 15 s, as README.md says; the limit is twice as
# much, because another test may run at the same time.
result() {
  SECONDS=0
  "$program" > out.txt 2> err.txt || fail "without arguments: exit $?"
  [ $SECONDS -lt "$(scaled 30)" ] || fail "took $SECONDS s, expected less than $(scaled 30) s"
  has_result "$1"
  run --workers 2
  has_result "$1"
}

# same_weights: three epochs give the same weights with one worker and with two, and if the run was killed and resumed
# with another number of workers. The logs of the run with two workers are in two/logs.
same_weights() {
  local want
  run --workers 1 --epochs 3 --logdir one
  want=$(hash_of one)
  run --workers 2 --epochs 3 --logdir two
  [ "$(hash_of two)" = "$want" ] || fail "two workers: $(hash_of two), one: $want"
  kill_when_saved killed "$program" --quiet --shards 2 --workers 1 --epochs 3 --logdir killed --save-every 1 ||
    fail "the run was over before it could be killed"
  run --workers 2 --epochs 3 --logdir killed --resume last
  [ "$(hash_of killed)" = "$want" ] || fail "after kill -9: $(hash_of killed), expected $want"
  [ -z "$(find killed -name '*.tmp.*')" ] || fail "left behind: $(find killed -name '*.tmp.*')"
}
