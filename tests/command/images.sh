#!/usr/bin/env bash
# Trains on a folder of images from a config: the number of classes comes from the folders, and the weights do not
# depend on workers and loading threads.
# usage: images.sh PATH_TO_LOCKSTEP PATH_TO_IMAGES_EXAMPLE FOLDER_OF_CONFIGS
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1 images=$2 configs=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "images.sh: $*" >&2; tail -n 20 "$work/out" "$work/err" >&2; exit 1; }

"$images" --make folder > out 2> err || fail "the images were not made"
# run LOGDIR ARGUMENTS...
run() {
  local logdir=$1
  shift
  "$lockstep" run -C "$configs/images.yml" loaders.train.dataset.root=folder/train \
    loaders.valid.dataset.root=folder/valid --no-verbose --logdir "$logdir" "$@" > out 2> err || fail "$* failed"
}

SECONDS=0
run four loaders.train.threads=4
[ $SECONDS -lt "$(scaled 60)" ] || fail "took $SECONDS s, expected less than $(scaled 60) s"
# accuracy_of LOGDIR: the last one of the loader valid.
accuracy_of() {
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "accuracy01") column = i } END { print $column }' \
    "$1/logs/valid.csv"
}
awk -v accuracy="$(accuracy_of four)" 'BEGIN { exit !(accuracy > 0.9) }' ||
  fail "accuracy $(accuracy_of four), expected more than 0.9"

run want --num-epochs 2 --ddp --workers 1 --shards 2 loaders.train.threads=1
for workers in 1 2; do
  for threads in 2 4; do
    run got --num-epochs 2 --ddp --workers $workers --shards 2 loaders.train.threads=$threads
    [ "$(hash_of got)" = "$(hash_of want)" ] ||
      fail "$workers workers and $threads threads: $(hash_of got), expected $(hash_of want)"
  done
done

# Two classes need no other config.
run two --num-epochs 1 loaders.train.dataset.classes='[red, blue]' loaders.valid.dataset.classes='[red, blue]'

# A broken image is counted and left out if the config says so.
head -c 300 folder/train/red/0.jpg > short && mv short folder/train/red/0.jpg
run skipped --num-epochs 1 loaders.train.dataset.on_error=skip
grep -q '359 images of 3 classes in folder/train, 1 skipped' err || fail "the broken image is not counted"
echo "images.sh: all as expected"
