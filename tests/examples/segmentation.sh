#!/usr/bin/env bash
# The segmentation example: it learns, gives the same bits for one worker and two, and goes on after a kill from
# its last checkpoint.
# usage: segmentation.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result '0\.[0-9]+ of the pixels are right, mean IoU 0\.[0-9]+'
awk '{ exit !($NF >= 0.6) }' <<< "$line" || fail "'$line': expected an IoU of 0.6 or more"

same_weights
grep -q 'iou/class_02' two/logs/valid.csv || fail "the IoU of a class is not logged"
echo "segmentation: $line"
