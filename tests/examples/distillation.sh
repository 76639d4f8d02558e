#!/usr/bin/env bash
# The distillation example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint, which has the teacher.
# usage: distillation.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result 'the student is right in [01]\.[0-9]+ of the points, as the teacher in [01]\.[0-9]+'
awk '{ exit !($7 >= 0.9 && $NF >= 0.9) }' <<< "$line" || fail "'$line': expected 0.9 or more"

same_weights
grep -q 'agreement' two/logs/valid.csv || fail "agreement is not logged"
echo "distillation: $line"
