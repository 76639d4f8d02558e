#!/usr/bin/env bash
# Runs the commands of the guide with its configs.
# usage: tune.sh PATH_TO_LOCKSTEP GUIDE_PAGE
set -euo pipefail
lockstep=$1 page=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "tune.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

# block LANGUAGE N: the n-th block of a language in the page.
block() { awk -v start="\`\`\`$1" -v wanted="$2" '$0 == start { inside = 1; ++n; next } /^```/ { inside = 0 } inside && n == wanted' "$page"; }
block yaml 1 > config.yml
block yaml 2 > search.yml
block sh 1 > commands.sh
mkdir bin && ln -s "$lockstep" bin/lockstep
PATH="$work/bin:$PATH" bash -e commands.sh > out 2> err || fail "a command of the page failed"
[ "$(wc -l < search/results.csv)" -eq 5 ] || fail "results.csv: expected a line per trial and one of names"
best=$(grep -o 'weights [0-9a-f]*' out | cut -d' ' -f2)
grep -q "$best" search/results.csv || fail "the run of best.yml has other weights than every trial"

# The section of the page is a search, and several workers give the same bits.
for workers in 1 2; do
  "$lockstep" tune -C config.yml search.yml --trials 2 --shards 2 --workers $workers --logdir section$workers > out 2> err ||
    fail "the section of the page is refused"
done
cmp section1/results.csv section2/results.csv || fail "two workers give other results"
