#!/usr/bin/env bash
# Runs the example configs, and checks that a config trains to the same bits as the program in C++.
# usage: configs.sh PATH_TO_LOCKSTEP PATH_TO_MNIST FOLDER_OF_CONFIGS
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1 mnist=$2 configs=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "configs.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

# As in the README.
"$lockstep" run -C "$configs/mnist.yml" --distributed --workers 2 --num-epochs 2 --logdir yaml > out 2> err || fail "mnist.yml failed"
"$mnist" --workers 2 --epochs 2 --quiet --logdir cpp > out 2> err || fail "mnist failed"
[ "$(hash_of yaml)" = "$(hash_of cpp)" ] || fail "mnist.yml: $(hash_of yaml), the program: $(hash_of cpp)"
# The config that the run wrote gives the same weights, and the checkpoint has the same config.
"$lockstep" run -C yaml/configs --logdir again > out 2> err || fail "the written config failed"
[ "$(hash_of again)" = "$(hash_of yaml)" ] || fail "the written config gives other weights"
"$lockstep" inspect yaml/checkpoints/best.pth --config > inside.yml
cmp inside.yml yaml/configs/config.yml || fail "the checkpoint has another config"

# A run in two parts ends with the same weights.
"$lockstep" run -C "$configs/mnist.yml" --ddp --workers 2 --num-epochs 1 --logdir resumed > out 2> err || fail "first half failed"
"$lockstep" run -C "$configs/mnist.yml" --ddp --workers 2 --num-epochs 2 --logdir resumed --autoresume last > out 2> err || fail "second half failed"
[ "$(hash_of resumed)" = "$(hash_of yaml)" ] || fail "resumed, it gives other weights"

for config in mlp cnn cnn3d; do
  "$lockstep" run -C "$configs/$config.yml" --distributed --check --no-verbose --logdir "$config" > out 2> err || fail "$config.yml failed"
done
for stage in first careful; do [ -f "mlp/$stage/checkpoints/best.pth" ] || fail "mlp.yml: no stage '$stage'"; done
"$lockstep" run -C "$configs/cnn3d.yml" --num-epochs 2 --no-verbose --logdir cubes > out 2> err || fail "cnn3d.yml failed"

# A table. The second file lacks a city of the first one, has one of its own and a cell without a value.
mkdir data
table() { awk -v cities="$1" -v rows="$2" 'BEGIN {
  n = split(cities, city, " "); print "size,city,price"
  for (i = 0; i < rows; ++i) { size = i % 17; at = i % n + 1; printf "%s,%s,%s\n", size, city[at], size / 8 + at } }'; }
table "Bonn Köln Oslo" 200 > data/train.csv
table "Bonn Köln" 40 > data/valid.csv
echo ',Rome,1.5' >> data/valid.csv
"$lockstep" run -C "$configs/table.yml" --no-verbose --logdir table > out 2> err || fail "table.yml failed"
grep -q 'Köln' table/configs/config.yml || fail "table.yml: the recorded schema lacks a category"
"$lockstep" evaluate table > out 2> err || fail "table.yml: the trained model cannot be evaluated"
"$lockstep" run -C table/configs --no-verbose --logdir table-again > out 2> err || fail "the config that table.yml wrote failed"
[ "$(hash_of table-again)" = "$(hash_of table)" ] || fail "table.yml: the recorded schema gives other weights"

# CIFAR-10 in the pickles that torchvision unpacks: two images, labels 3 and 9.
mkdir data/cifar-10-batches-py
pickle() {
  printf '\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x03K\x09eU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05'
  printf 'cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01'
  printf '\x87Rq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x18\x00\x00'
  head -c 3072 /dev/zero | tr '\0' '\100'
  head -c 3072 /dev/zero | tr '\0' '\300'
  printf 'tbu.'
}
for batch in data_batch_{1..5} test_batch; do pickle > "data/cifar-10-batches-py/$batch"; done
"$lockstep" run -C "$configs/cifar10.yml" --check --no-verbose --logdir cifar10 > out 2> err || fail "cifar10.yml failed"

# The same under another launcher.
"$lockstep" launch --nproc-per-node 2 "$lockstep" run -C "$configs/mnist.yml" --ddp --num-epochs 2 --no-verbose --logdir launched > out 2> err || fail "run under launch failed"
[ "$(hash_of launched)" = "$(hash_of yaml)" ] || fail "other weights under launch"
echo "configs.sh: all as expected"
