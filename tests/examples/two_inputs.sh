#!/usr/bin/env bash
# The two_inputs example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint.
# usage: two_inputs.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result 'accuracy [01]\.[0-9]+, error of the angle [0-9.]+'
awk '{ exit !($3 + 0 >= 0.97 && $NF < 0.2) }' <<< "$line" ||
  fail "'$line': expected an accuracy of 0.97 or more and an error below 0.2"

same_weights
grep -q 'loss/angle' two/logs/valid.csv || fail "the loss of an output is not logged"
echo "two_inputs: $line"
