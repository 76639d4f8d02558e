#!/usr/bin/env bash
# The custom_runner example: forked workers, logs, a worker that is killed, and wrong input.
# usage: custom_runner.sh PATH_TO_CUSTOM_RUNNER
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
custom_runner=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$custom_runner" --quiet "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

run --workers 2 --epochs 2 --limit 4000 --logdir logs
line=$(grep '^Result: epoch [12], loss 0\.[0-9]*, accuracy 0\.[0-9]*, confidence 0\.[0-9]*$' out.txt) ||
  fail "no result"
[ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
awk '{ exit !($7 + 0 >= 0.7) }' <<< "$line" || fail "accuracy: '$line', expected 0.7 or more"
[ "$(grep -c '^valid (' out.txt)" -eq 2 ] || fail "expected one line per validation"
grep -q confidence logs/logs/valid.csv || fail "the runner's own metric is not logged"
[ -s logs/checkpoints/best.pth ] || fail "no checkpoint"

# Both runs have 64 samples per step, in the same order, so the training is the same except for rounding.
result() { sed -n 's/^Result: epoch \([0-9]*\), loss \([0-9.]*\).*/\1 \2/p' out.txt; }
run --workers 1 --batch-size 64 --epochs 2 --limit 4000
one=$(result)
run --workers 2 --batch-size 32 --epochs 2 --limit 4000
awk -v one="$one" -v two="$(result)" 'BEGIN {
  split(one, a); split(two, b); exit !(a[1] == b[1] && (a[2] - b[2]) ^ 2 < 1e-6) }' ||
  fail "one worker: '$one', two: '$(result)'"

# A worker is killed after the first of 8 epochs. The run ends with the weights of the undisturbed one.
training="--workers 2 --epochs 8 --limit 20000"
run $training --logdir calm
rm -f out.txt
"$custom_runner" --quiet $training --max-restarts 2 --logdir killed > out.txt 2> err.txt &
pid=$!
until grep -q '^train (1/8)' out.txt 2> /dev/null; do
  kill -0 $pid 2> /dev/null || fail "ended before its first epoch"
  sleep 0.01
done
pkill -KILL -P $pid lockstep-rank-1 || fail "there is no process lockstep-rank-1"
wait $pid || fail "a worker was killed: exit code $?"
grep -q 'Recovered: rank 1 .*killed by signal 9.*restart 1 of 2' out.txt || fail "no recovery"
[ "$(hash_of killed)" = "$(hash_of calm)" ] || fail "a worker was killed: other weights"
diff -r calm/logs killed/logs >> err.txt || fail "a worker was killed: other logs"

if "$custom_runner" --root nowhere > out.txt 2> err.txt; then fail "accepted a root without files"; fi
grep -q '^custom_runner: .*nowhere' err.txt || fail "the missing files are not named"
echo "custom_runner: $line"
