#!/usr/bin/env bash
# The segmentation example: it learns, the weights do not depend on the number of workers, and a run
# that was resumed ends with the same weights.
# usage: segmentation.sh PATH_TO_SEGMENTATION
set -euo pipefail
segmentation=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$segmentation" --quiet "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }
hash_of() { grep -o '"weights_hash": *"[0-9a-f]*"' "$1/summary.json" | grep -o '[0-9a-f]\{16\}'; }

run --workers 2 --shards 2 --logdir two
line=$(grep '^Pixels that are right: 0\.[0-9]*, mean IoU: 0\.[0-9]*$' out.txt) || fail "no result"
[ "$(grep -c '^Pixels' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
awk '{ exit !($NF + 0 >= 0.6) }' <<< "$line" || fail "'$line': expected an IoU of 0.6 or more"
grep -q accuracy two/logs/valid.csv || fail "the runner's own metric is not logged"
want=$(hash_of two)

run --workers 1 --shards 2 --epochs 2 --logdir one
run --workers 1 --shards 2 --epochs 3 --logdir one --resume last
[ "$(hash_of one)" = "$want" ] || fail "one worker, resumed: $(hash_of one), two workers: $want"

if "$segmentation" --width 0 > out.txt 2> err.txt; then fail "accepted --width 0"; fi
grep -q '^segmentation: UNet: width: expected a positive integer, got 0' err.txt || fail "--width is not named"
echo "segmentation: $line"
