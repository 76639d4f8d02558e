#!/usr/bin/env bash
# A new project builds, trains and passes its test without changes.
# usage: create.sh PATH_TO_LOCKSTEP
set -euo pipefail
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The projects are compiled without optimisation, in half the time.
export CMAKE_BUILD_TYPE=None
fail() { echo "create.sh: $*" >&2; tail -n 30 "$work/out" "$work/err" >&2; exit 1; }

# --- A runner and a config.
"$lockstep" create -n My-Waves > out 2> err || fail "cannot be created"
if "$lockstep" create -n my-waves > out 2> err; then fail "was overwritten"; fi
grep -q 'exists already' err || fail "does not say that the folder exists"
cd my-waves
make test > ../out 2> ../err || fail "does not pass its test"
make train > ../out 2> ../err || fail "does not train"
grep -q 'Best checkpoint: logs/checkpoints/best.pth' ../out || fail "leaves no checkpoint"
accuracy=$(sed -nE 's/.*"accuracy01": *([0-9.]+).*/\1/p' logs/summary.json | tail -n 1)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "learns too little: accuracy '$accuracy'"
cd ..

# --- An estimator of fields, with its training backend.
"$lockstep" create -n turbulence --gtb > out 2> err || fail "cannot be created with its backend"
cd turbulence
make test > ../out 2> ../err || fail "with its backend, does not pass its test"
make train > ../out 2> ../err || fail "with its backend, does not train"
[ -s logs/report/report.html ] && [ -s logs/model/model.pt ] || fail "leaves no report or model"
grep -q 'No --field was given: training on synthetic turbulence, data/synthetic.h5' ../out ||
  fail "does not say that its data are synthetic"
best=$(sed -nE 's/^Best epoch: ([0-9]+) .*/\1/p' ../out)
grep -q "^Epoch $best, the best: mean square error" ../out || fail "does not report the best epoch"
build/turbulence --help | grep -q '^  train ' || fail "--help does not list train"
# A file that was given and does not exist is an error, and no file of that name is made.
if build/turbulence train --field data/my_simulaton.h5 > ../out 2> ../err; then fail "invents data"; fi
grep -q -- '--field data/my_simulaton.h5: there is no such file' ../err || fail "does not name the missing file"
[ ! -e data/my_simulaton.h5 ] || fail "made a file under the name that was given"
build/turbulence run -C config.yml --num-epochs 2 > ../out 2> ../err || fail "its config does not train"
echo "create.sh: all as expected, accuracy $accuracy"
