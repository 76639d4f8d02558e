#!/usr/bin/env bash
# Runs with one worker and with two workers, with the same shards, must end with the same weights.
set -euo pipefail
program=$1
config=$(dirname "$0")/../config.yml
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for workers in 1 2; do
  "$program" run -C "$config" --workers "$workers" --shards 2 --num-epochs 2 --no-verbose \
    --logdir "$folder/$workers" > "$folder/$workers.log"
done
hashes=$(grep -oh 'weights [0-9a-f]*' "$folder"/*.log | sort -u)
if [ "$(wc -l <<< "$hashes")" -ne 1 ]; then
  echo "one worker and two workers end with different weights:" >&2
  grep -H 'weights' "$folder"/*.log >&2
  exit 1
fi
echo "one worker and two workers end with the same $hashes"
