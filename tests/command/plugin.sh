#!/usr/bin/env bash
# Plugins of a user, built as their documentation says: a model and a metric, and the runner and the data of a GAN.
# usage: plugin.sh PATH_TO_LOCKSTEP BUILD_TREE FOLDER_OF_EXAMPLES
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1 build=$2 source=$3/plugin configs=$3/configs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "plugin.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

cmake -S "$source" -B build -G Ninja -Dlockstep_DIR="$build" -DCMAKE_BUILD_TYPE=None -Wno-dev > out 2> err || fail "cannot be configured"
cmake --build build > out 2> err || fail "cannot be built"
"$lockstep" targets WideNet --plugin build/libwide_net.so > out 2> err || fail "is not known"
grep -q 'width .*integer .*(default: 64)' out || fail "its option is not listed"
"$lockstep" targets ConfidenceCallback --plugin build/libwide_net.so > out 2> err || fail "its metric is not known"
grep -q 'mean probability of the predicted class' out || fail "its metric is not described"
"$lockstep" run -C "$source/config.yml" --plugin build/libwide_net.so --workers 2 --logdir logs 'callbacks=[ConfidenceCallback]' > out 2> err ||
  fail "does not train"
grep -q 'weights [0-9a-f]' out || fail "does not train"
grep -q 'confidence' logs/logs/train.csv || fail "its metric is not logged"
# The written config names the plugin itself.
"$lockstep" run -C logs/configs --logdir again > out 2> err || fail "the written config does not run"
# So does the config in the checkpoint.
"$lockstep" evaluate logs > out 2> err || fail "cannot be evaluated"
grep -q "256 samples of loader 'train'" out || fail "cannot be evaluated"
"$lockstep" predict logs --output x.csv --workers 2 > out 2> err || fail "does not predict"
[ "$(wc -l < x.csv)" -eq 257 ] || fail "does not predict"
if "$lockstep" run -C "$source/config.yml" > out 2> err; then fail "trains without the plugin"; fi
grep -q "unknown model 'WideNet'" err || fail "does not name the model that is missing"

# A GAN from a config: the same weights for one worker and two, and after a kill.
gan() { "$lockstep" run -C "$configs/gan.yml" --plugin build/libgan.so --shards 2 --num-epochs 3 "$@" > out 2> err || fail "gan.yml $*: failed"; }
gan --workers 1 --logdir one
gan --workers 2 --logdir two
[ "$(hash_of two)" = "$(hash_of one)" ] || fail "gan.yml: two workers: $(hash_of two), one: $(hash_of one)"
grep -q 'loss/generator' two/logs/train.csv || fail "gan.yml: the loss of a phase is not logged"
kill_when_saved killed "$lockstep" run -C "$configs/gan.yml" --plugin build/libgan.so --shards 2 --num-epochs 3 --workers 1 \
  --logdir killed 'callbacks=[{CheckpointCallback: {save_every_batches: 1}}]' ||
  fail "gan.yml: the run was over before it could be killed"
gan --workers 2 --logdir killed --resume last
[ "$(hash_of killed)" = "$(hash_of one)" ] || fail "gan.yml: after kill -9: $(hash_of killed), expected $(hash_of one)"
"$lockstep" evaluate one --output gan.json > out 2> err || fail "gan.yml: cannot be evaluated"
grep -q "4,096 samples of loader 'train'" out || fail "gan.yml: cannot be evaluated"
for metric in loss loss/discriminator loss/generator; do
  grep -q "\"$metric\"" gan.json || fail "gan.yml: evaluate does not compute $metric"
done
"$lockstep" predict one --output points.csv > out 2> err || fail "gan.yml: does not predict"
[ "$(wc -l < points.csv)" -eq 4097 ] || fail "gan.yml: does not predict one point per sample"
grep -q '^index,points_0,points_1$' points.csv || fail "gan.yml: does not predict points"

# A plugin that was built for an earlier version, whose classes had other virtual functions.
echo 'extern "C" { const char* lockstep_plugin_for() { return "0.1.0"; } void lockstep_plugin(void*) {} }' |
  c++ -shared -fPIC -x c++ - -o old.so > out 2> err || fail "the plugin of an earlier version cannot be built"
if "$lockstep" targets --plugin ./old.so > out 2> err; then fail "a plugin of an earlier version is loaded"; fi
grep -q 'built for Lockstep 0.1.0, this is ' err || fail "does not say which version the plugin was built for"
echo "plugin.sh: all as expected"
