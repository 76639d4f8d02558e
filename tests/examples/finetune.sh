#!/usr/bin/env bash
# The finetune example: it takes the weights of Python's file, learns, gives the same bits for one worker and two, and
# goes on after a kill from its last checkpoint. The backbone is the file's for two epochs, and then it is trained.
# usage: finetune.sh PATH_TO_PROGRAM
stripes=$(realpath "$(dirname "$0")/../../examples/finetune/stripes.pth")
. "$(dirname "$0")/../support/example.sh"

result '[01]\.[0-9]+ of the images are right after the first epoch, [01]\.[0-9]+ after the last one'
awk '{ exit !($12 > $2 && $12 > 0.75) }' <<< "$line" || fail "'$line': expected more than 0.75 in the end"
grep -q 'stripes.pth: 14 of 16 weights, converted from Half to Float' out.txt ||
  fail "the run does not say what it took"
grep -q 'The model keeps its own head.weight, head.bias. Not taken from the file: fc.weight, fc.bias.' out.txt ||
  fail "the run does not say what it left"

same_weights

# same_weights has trained three epochs in the folder `one`.
if have_python_torch "which epochs of the finetune example change the backbone"; then
  run --workers 1 --epochs 2 --logdir frozen
  /usr/bin/python3 - "$stripes" frozen/checkpoints/last.pth one/checkpoints/last.pth > out.txt 2> err.txt << 'END' ||
import sys, torch
stripes, frozen, trained = [torch.load(path) for path in sys.argv[1:]]
names = [name for name in stripes if name.startswith("backbone.")]
assert len(names) == 14, names
def changed(run):
    weights = run["model_state_dict"]
    return [name for name in names if not weights[name].equal(stripes[name].to(weights[name].dtype))]
assert changed(frozen) == [], f"changed while they were frozen: {changed(frozen)}"
assert "backbone.0.weight" in changed(trained), f"changed in the third epoch: {changed(trained)}"
END
    fail "the backbone"
fi

# A file that does not fit is refused by name.
if "$program" --quiet --weights one/checkpoints/none.pth > out.txt 2> err.txt; then fail "a missing file was accepted"; fi
grep -q 'none.pth' err.txt || fail "the missing file is not named"
echo "finetune: $line"
