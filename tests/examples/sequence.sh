#!/usr/bin/env bash
# The sequence example, padded sequences: it learns, and its weights do not depend on the number of workers
# or on an interruption.
# usage: sequence.sh PATH_TO_PROGRAM
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$program" --quiet "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }
hash_of() { grep -o '"weights_hash": *"[0-9a-f]*"' "$1/summary.json" | grep -o '[0-9a-f]\{16\}'; }

SECONDS=0
run --workers 2 --shards 2 --logdir two
[ $SECONDS -lt "$(scaled 60)" ] || fail "took $SECONDS s, expected less than $(scaled 60) s"
[ "$(grep -c '^Result: ' out.txt)" -eq 1 ] || fail "expected one result, by rank 0"
line=$(grep '^Result: accuracy ' out.txt)
awk '{ exit !($3 + 0 >= 0.97) }' <<< "$line" || fail "'$line', expected an accuracy of 0.97 or more"
run --workers 1 --shards 2 --logdir one
[ "$(hash_of one)" = "$(hash_of two)" ] || fail "other weights with one worker"

run --workers 2 --shards 2 --epochs 2 --logdir resumed
run --workers 1 --shards 2 --logdir resumed --resume last
[ "$(hash_of resumed)" = "$(hash_of two)" ] || fail "other weights after a resume"
echo "sequence: $line"
