#!/usr/bin/env bash
# The vae example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint.
# usage: vae.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result 'loss [0-9.]+, [0-9.]+ after the first epoch; divergence [0-9.]+'
# A code without information has no divergence from the standard normal distribution.
awk '{ exit !($3 + 0 <= 0.75 * $4 && $NF >= 2) }' <<< "$line" ||
  fail "'$line': expected a loss of at most 3/4 of the first one, and a divergence of 2 or more"

same_weights
grep -q 'divergence' two/logs/valid.csv || fail "divergence is not logged"
echo "vae: $line"
