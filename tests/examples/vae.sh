#!/usr/bin/env bash
# The vae example: it learns, gives the same bits for one worker and two, and goes on from a checkpoint.
# usage: vae.sh PATH_TO_VAE
set -euo pipefail
vae=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
hash_of() { grep -o '"weights_hash": *"[0-9a-f]*"' "$1/summary.json" | grep -o '[0-9a-f]\{16\}'; }
run() { "$vae" --shards 2 "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

run --workers 2
line=$(grep '^Result: loss [0-9.]*, [0-9.]* after the first epoch; divergence [0-9.]*$' out.txt) || fail "no result"
[ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
# A code without information has no divergence from the standard normal distribution.
awk '{ exit !($3 + 0 <= 0.75 * $4 && $NF >= 2) }' <<< "$line" ||
  fail "'$line': expected a loss of at most 3/4 of the first one, and a divergence of 2 or more"

run --workers 1 --epochs 3 --logdir one
want=$(hash_of one)
run --workers 2 --epochs 3 --logdir two
[ "$(hash_of two)" = "$want" ] || fail "two workers: $(hash_of two), one: $want"
grep -q 'divergence' two/logs/valid.csv || fail "divergence is not logged"

run --workers 2 --epochs 1 --logdir resumed --save-every 5
run --workers 1 --epochs 3 --logdir resumed --resume last
[ "$(hash_of resumed)" = "$want" ] || fail "resumed: $(hash_of resumed), expected $want"
echo "vae: $line"
