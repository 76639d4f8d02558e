#!/usr/bin/env bash
# Runs the commands of the guide with its configs, and compares results of one process with those of several.
# usage: evaluate.sh PATH_TO_LOCKSTEP GUIDE_PAGE
set -euo pipefail
lockstep=$1 page=$(realpath "$2")
. "$(dirname "$0")/../support/shell.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "evaluate.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

# block LANGUAGE N: the n-th block of a language in the page.
block() { awk -v start="\`\`\`$1" -v wanted="$2" '$0 == start { inside = 1; ++n; next } /^```/ { inside = 0 } inside && n == wanted' "$page"; }
block yaml 1 > shapes.yml
block yaml 2 > test.yml
block sh 1 > commands.sh
[ "$(grep -c '^lockstep ' commands.sh)" -ge 8 ] || fail "the page has fewer commands than expected"
mkdir bin && ln -s "$lockstep" bin/lockstep
PATH="$work/bin:$PATH" bash -e commands.sh > out 2> err || fail "a command of the page failed"
grep -q "100 samples of loader 'valid'" out || fail "evaluate does not say what it evaluated"
grep -q "50 samples of loader 'test'" out || fail "the loader of the other config is not evaluated"
grep -q 'accuracy01' metrics.json || fail "metrics.json has no accuracy"
[ "$(wc -l < test.csv)" -eq 51 ] || fail "test.csv: expected a line per sample and one of names"

# The same bytes from any number of workers, forked or started by a launcher.
one=(loaders.valid.batch_size=7 'engine={DistributedDataParallelEngine: {threads: 1}}' --no-verbose)
"$lockstep" predict logs --output one.npy "${one[@]}" --workers 1 > out 2> err || fail "one worker failed"
"$lockstep" predict logs --output three.npy "${one[@]}" --workers 3 > out 2> err || fail "three workers failed"
cmp one.npy three.npy || fail "three workers predict other numbers"
"$lockstep" launch --nproc-per-node 2 "$lockstep" predict logs --output launched.npy "${one[@]}" > out 2> err || fail "predict under launch failed"
cmp one.npy launched.npy || fail "other numbers under launch"
"$lockstep" launch --nproc-per-node 2 "$lockstep" evaluate logs > out 2> err || fail "evaluate under launch failed"
[ "$(grep -c 'samples of loader' out)" -eq 1 ] || fail "not exactly one rank prints the table"

# An error names the nearest key and leaves no file.
if "$lockstep" predict logs --output x.npy --keys logit > out 2> err; then fail "an unknown key is accepted"; fi
grep -q "did you mean 'logits'" err || fail "the nearest key is not named"
[ ! -e x.npy ] || fail "a failed prediction left a file"

if /usr/bin/python3 -c 'import numpy' 2> /dev/null; then
  /usr/bin/python3 - > out 2> err <<'PYTHON' || fail "NumPy reads other numbers than the CSV has"
import csv
import numpy as np
array = np.load("predictions.npy")
assert array.shape == (100, 3) and array.dtype == np.float32, (array.shape, array.dtype)
# Both files are of the best checkpoint, and the CSV has all digits.
rows = list(csv.DictReader(open("logits.csv")))
assert [int(row["index"]) for row in rows] == list(range(100))
numbers = np.array([[row[f"logits_{i}"] for i in range(3)] for row in rows], dtype=np.float32)
assert (numbers == array).all()
PYTHON
else
  skip "reading .npy files with NumPy" "Python cannot import numpy; install python3-numpy"
fi
echo "evaluate.sh: all as expected"
