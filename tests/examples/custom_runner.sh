#!/usr/bin/env bash
# The custom_runner example: forked workers, logs, and wrong input.
# usage: custom_runner.sh PATH_TO_CUSTOM_RUNNER
set -euo pipefail
custom_runner=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$custom_runner" --quiet "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

run --workers 2 --epochs 2 --limit 4000 --max-restarts 2 --logdir logs
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

if "$custom_runner" --root nowhere > out.txt 2> err.txt; then fail "accepted a root without files"; fi
grep -q '^custom_runner: .*nowhere' err.txt || fail "the missing files are not named"
echo "custom_runner: $line"
