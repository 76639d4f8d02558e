#!/usr/bin/env bash
# The gan example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint.
# usage: gan.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result '[01]\.[0-9]+ of the points are near a blob, [0-9] of 8 blobs'
# An untrained generator makes points in the middle of the ring: none is near a blob.
awk '{ exit !($2 >= 0.5 && $10 >= 6) }' <<< "$line" || fail "'$line': expected 0.5 or more, 6 blobs or more"

same_weights
grep -q 'loss/generator' two/logs/train.csv || fail "the loss of a phase is not logged"
echo "gan: $line"
