#!/usr/bin/env bash
# The gan example: it learns, gives the same bits for one worker and two, and goes on after a kill.
# usage: gan.sh PATH_TO_GAN
set -euo pipefail
gan=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
hash_of() { grep -o '"weights_hash": *"[0-9a-f]*"' "$1/summary.json" | grep -o '[0-9a-f]\{16\}'; }
run() { "$gan" --shards 2 "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

run --workers 2
line=$(grep '^Result: [01]\.[0-9]* of the points are near a blob, [0-9] of 8 blobs$' out.txt) || fail "no result"
[ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
# An untrained generator makes points in the middle of the ring: none is near a blob.
awk '{ exit !($2 >= 0.5 && $10 >= 6) }' <<< "$line" || fail "'$line': expected 0.5 or more, 6 blobs or more"

run --workers 1 --epochs 3 --logdir one
want=$(hash_of one)
run --workers 2 --epochs 3 --logdir two
[ "$(hash_of two)" = "$want" ] || fail "two workers: $(hash_of two), one: $want"
grep -q 'loss/generator' two/logs/train.csv || fail "the loss of a phase is not logged"

# Killed without warning, somewhere after the first epoch.
"$gan" --shards 2 --workers 1 --epochs 3 --logdir killed --save-every 1 > out.txt 2> err.txt &
pid=$!
for _ in $(seq 6000); do
  [ killed/checkpoints/last.pth -nt killed/logs/_epoch_.csv ] && break
  sleep 0.01
done
kill -9 $pid 2> /dev/null || true
code=0
wait $pid 2> /dev/null || code=$?
[ "$code" -eq 137 ] || fail "the run was over (exit $code) before it could be killed"
run --workers 2 --epochs 3 --logdir killed --resume last
[ "$(hash_of killed)" = "$want" ] || fail "after kill -9: $(hash_of killed), expected $want"
echo "gan: $line"
