#!/usr/bin/env bash
# Runs with one worker and with two workers, with the same shards, must end with the same weights.
set -euo pipefail
program=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"  # the first run makes the synthetic data here

for workers in 1 2; do
  "$program" train --logdir "$workers" --workers "$workers" --shards 2 --epochs 3 > "$workers.log"
done
hashes=$(grep -oh 'weights [0-9a-f]*' ./*.log | sort -u)
if [ "$(wc -l <<< "$hashes")" -ne 1 ]; then
  echo "one worker and two workers end with different weights:" >&2
  grep -H 'weights' ./*.log >&2
  exit 1
fi
echo "one worker and two workers end with the same $hashes"
