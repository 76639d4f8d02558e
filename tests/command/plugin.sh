#!/usr/bin/env bash
# A user's plugin, built as its documentation says.
# usage: plugin.sh PATH_TO_LOCKSTEP BUILD_TREE FOLDER_OF_PLUGIN
set -euo pipefail
lockstep=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "plugin.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

cmake -S "$source" -B build -G Ninja -Dlockstep_DIR="$build" -DCMAKE_BUILD_TYPE=Release -Wno-dev > out 2> err || fail "cannot be configured"
cmake --build build > out 2> err || fail "cannot be built"
"$lockstep" targets WideNet --plugin build/libwide_net.so > out 2> err || fail "is not known"
grep -q 'width .*integer .*(default: 64)' out || fail "its option is not listed"
"$lockstep" run -C "$source/config.yml" --plugin build/libwide_net.so --workers 2 --logdir logs > out 2> err || fail "does not train"
grep -q 'weights [0-9a-f]' out || fail "does not train"
# The written config names the plugin itself.
"$lockstep" run -C logs/configs --logdir again > out 2> err || fail "the written config does not run"
# So does the config in the checkpoint.
"$lockstep" evaluate logs > out 2> err || fail "cannot be evaluated"
grep -q "256 samples of loader 'train'" out || fail "cannot be evaluated"
"$lockstep" predict logs --output x.csv --workers 2 > out 2> err || fail "does not predict"
[ "$(wc -l < x.csv)" -eq 257 ] || fail "does not predict"
if "$lockstep" run -C "$source/config.yml" > out 2> err; then fail "trains without the plugin"; fi
grep -q "unknown model 'WideNet'" err || fail "does not name the model that is missing"

# A plugin that was built for an earlier version, whose classes had other virtual functions.
echo 'extern "C" { const char* lockstep_plugin_for() { return "0.1.0"; } void lockstep_plugin(void*) {} }' |
  c++ -shared -fPIC -x c++ - -o old.so > out 2> err || fail "the plugin of an earlier version cannot be built"
if "$lockstep" targets --plugin ./old.so > out 2> err; then fail "a plugin of an earlier version is loaded"; fi
grep -q 'built for Lockstep 0.1.0, this is ' err || fail "does not say which version the plugin was built for"
echo "plugin.sh: all as expected"
