#!/usr/bin/env bash
# The 3-D example, end to end: a field is made, learned, evaluated and reported.
# usage: cnn3d.sh PATH_TO_CNN3D PATH_TO_LOCKSTEP FOLDER_OF_CONFIGS FOLDER_OF_GOLDENS
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
cnn3d=$1 lockstep=$2 configs=$3 goldens=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "cnn3d.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

mkdir -p logs/cnn3d && echo mine > logs/cnn3d/precious.txt
# A worker is killed. All that is checked below, the same weights as with one worker included, holds all the same.
SECONDS=0
"$cnn3d" --logdir logs/cnn3d --workers 2 --shards 2 --max-restarts 2 > out 2> err &
pid=$!
until grep -q '^train (3/150)' out; do
  kill -0 $pid 2> /dev/null || fail "ended before epoch 3"
  sleep 0.02
done
pkill -KILL -P $pid lockstep-rank-1 || fail "there is no process lockstep-rank-1"
wait $pid || fail "failed after a worker was killed"
grep -q 'Recovered: rank 1 .*killed by signal 9.*restart 1 of 2' out || fail "no recovery"
[ $SECONDS -lt "$(scaled 120)" ] || fail "took $SECONDS s, expected less than $(scaled 120) s"
grep -q mine logs/cnn3d/precious.txt || fail "deleted what was in the log folder"
for file in report.html pdf_cdf.svg slices.svg spectrum.svg loss.svg pdf_cdf.csv spectrum.csv metrics.csv params.json model_details.txt; do
  [ -s "logs/cnn3d/report/$file" ] || fail "no $file"
done
for file in model.pt params.json; do [ -s "logs/cnn3d/model/$file" ] || fail "no model/$file"; done

# The loss is below that of predicting the mean, by the percentage in the report, and as good as that
# of the same network in PyTorch.
loss=$(sed -nE 's/^Validation loss ([0-9.]+), .*/\1/p' out)
margin=$(sed -nE 's/^Validation loss [0-9.]+, ([0-9.]+) % below.*/\1/p' out)
expected=$(sed -nE 's/.*"valid_loss": ([0-9.]+).*/\1/p' "$goldens/science_cnn3d.json")
grep -q "$margin %" logs/cnn3d/report/report.html || fail "the report does not say by how much"
awk -v m="$margin" 'BEGIN { exit !(m > 30) }' || fail "only $margin % below predicting the mean"
awk -v a="$loss" -v b="$expected" 'BEGIN { exit !(a > 0.95 * b && a < 1.05 * b) }' || fail "a loss of $loss, PyTorch reaches $expected"

# One worker and a config give the same bits.
mkdir -p logs/one && cp logs/cnn3d/{field,unseen}.h5 logs/one
"$cnn3d" --logdir logs/one --workers 1 --shards 2 > out 2> err || fail "failed with one worker"
[ "$(hash_of logs/one)" = "$(hash_of logs/cnn3d)" ] || fail "other weights with one worker"
"$lockstep" run -C "$configs/turbulence.yml" --workers 2 > out 2> err || fail "turbulence.yml failed"
[ "$(hash_of logs/turbulence)" = "$(hash_of logs/cnn3d)" ] || fail "other weights from turbulence.yml"

# The target has only large scales: the spectrum of the whole field falls by far more than -5/3 beyond
# the filter's wave number of 6. (The spectrum of a cube that was cut out of the field does not.)
awk -F, '$1 == 5 { large = $2 } $1 == 12 { small = $2 } END { exit !(small < 1e-6 * large) }' \
  logs/cnn3d/report/spectrum.csv || fail "the target's spectrum has small scales"

# Under a launcher only one process writes.
"$lockstep" launch --nproc-per-node 2 "$cnn3d" --logdir logs/cnn3d --epochs 2 --shards 2 > out 2> err \
  || fail "failed under the launcher"
[ "$(grep -c 'Validation loss' out)" = 1 ] || fail "more than one process reports"
[ "$(grep -c 'train - loss' logs/cnn3d/report/metrics.csv)" = 2 ] || fail "more than one process tracks"
echo "cnn3d.sh: all as expected, a loss of $loss where PyTorch reaches $expected"
