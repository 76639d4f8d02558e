#!/usr/bin/env bash
# The finetune example: it takes the weights of Python's file, learns, gives the same bits for one worker and two, and
# goes on after a kill from its last checkpoint.
# usage: finetune.sh PATH_TO_PROGRAM
. "$(dirname "$0")/../support/example.sh"

result '[01]\.[0-9]+ of the images are right after the first epoch, [01]\.[0-9]+ after the last one'
awk '{ exit !($12 > $2 && $12 > 0.75) }' <<< "$line" || fail "'$line': expected more than 0.75 in the end"
grep -q 'stripes.pth: 14 of 16 weights, converted from Half to Float' out.txt ||
  fail "the run does not say what it took"
grep -q 'The model keeps its own head.weight, head.bias. Not taken from the file: fc.weight, fc.bias.' out.txt ||
  fail "the run does not say what it left"

same_weights

# A file that does not fit is refused by name.
if "$program" --quiet --weights one/checkpoints/none.pth > out.txt 2> err.txt; then fail "a missing file was accepted"; fi
grep -q 'none.pth' err.txt || fail "the missing file is not named"
echo "finetune: $line"
