#!/usr/bin/env bash
# The distillation example: it learns, gives the same bits for one worker and two, and goes on from a checkpoint, which has the teacher.
# usage: distillation.sh PATH_TO_DISTILLATION
set -euo pipefail
distillation=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
hash_of() { grep -o '"weights_hash": *"[0-9a-f]*"' "$1/summary.json" | grep -o '[0-9a-f]\{16\}'; }
run() { "$distillation" --shards 2 "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

run --workers 2
line=$(grep '^Result: the student is right in [01]\.[0-9]* of the points, as the teacher in [01]\.[0-9]*$' out.txt) || fail "no result"
[ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
awk '{ exit !($7 >= 0.9 && $NF >= 0.9) }' <<< "$line" || fail "'$line': expected 0.9 or more"

run --workers 1 --epochs 3 --logdir one
want=$(hash_of one)
run --workers 2 --epochs 3 --logdir two
[ "$(hash_of two)" = "$want" ] || fail "two workers: $(hash_of two), one: $want"
grep -q 'agreement' two/logs/valid.csv || fail "agreement is not logged"

run --workers 2 --epochs 1 --logdir resumed --save-every 5
run --workers 1 --epochs 3 --logdir resumed --resume last
[ "$(hash_of resumed)" = "$want" ] || fail "resumed: $(hash_of resumed), expected $want"
echo "distillation: $line"
