#!/usr/bin/env bash
# The sequence example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint.
# usage: sequence.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result 'accuracy [01]\.[0-9]+, loss [0-9.]+'
awk '{ exit !($3 + 0 >= 0.97) }' <<< "$line" || fail "'$line': expected an accuracy of 0.97 or more"

same_weights
grep -q 'accuracy' two/logs/valid.csv || fail "the runner's own metric is not logged"
echo "sequence: $line"
