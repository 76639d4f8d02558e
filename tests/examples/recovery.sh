#!/usr/bin/env bash
# Runs whose processes are killed go on, and end with the weights and the logs of the undisturbed run: forked workers
# of a program and of a config, and any rank under `lockstep launch`.
# usage: recovery.sh PATH_TO_MNIST PATH_TO_LOCKSTEP FOLDER_OF_CONFIGS
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
mnist=$1 lockstep=$2 configs=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; tail -n 30 out.txt err.txt >&2; exit 1; }
recoveries() { sed -nE 's/.*"recoveries": *([0-9]+).*/\1/p' "$1/summary.json"; }

# wait_for FILE PATTERN: until a line of the output matches. The file of an earlier program must be removed before,
# because a program in the background may not have emptied it yet.
wait_for() {
  for _ in $(seq $(scaled 3000)); do
    grep -q "$2" "$1" 2> /dev/null && return
    sleep 0.01
  done
  fail "no line '$2' in $1"
}

# children_of PID: its descendants.
children_of() {
  local child
  for child in $(pgrep -P "$1" || true); do
    echo "$child"
    children_of "$child"
  done
}

# expect_same FOLDER WHAT: hash and logs are those of the undisturbed run.
expect_same() {
  [ "$(hash_of "$1")" = "$want" ] || fail "$2: weights $(hash_of "$1"), expected $want"
  diff -r calm/logs "$1/logs" > diff.txt || fail "$2: other logs: $(head -n 5 diff.txt)"
  [ -z "$(find "$1" -name '*.tmp.*')" ] || fail "$2: left behind: $(find "$1" -name '*.tmp.*')"
}

training="--quiet --model mlp --batch-size 64 --shards 4 --epochs 3 --save-every 20"
"$mnist" $training --workers 2 --logdir calm > out.txt 2> err.txt || fail "the undisturbed run"
want=$(hash_of calm)
[ "$(recoveries calm)" = 0 ] || fail "recoveries without a fault: $(recoveries calm)"

# Forked workers have names. The worker is killed twice.
rm -f out.txt
"$mnist" $training --workers 2 --max-restarts 5 --logdir forked > out.txt 2> err.txt &
pid=$!
wait_for out.txt 'train (1/3)'
worker=$(pgrep -f lockstep-rank-1 | grep -xF "$(children_of $pid)") || fail "no process is named lockstep-rank-1"
kill -KILL $worker
wait_for out.txt 'Recovered: rank 1 .*killed by signal 9.*restart 1 of 5'
wait_for out.txt 'train (2/3)'
kill -KILL $(pgrep lockstep-rank-1 | grep -xF "$(children_of $pid)")
wait $pid || fail "a worker was killed twice: exit code $?"
expect_same forked "a worker was killed twice"
[ "$(recoveries forked)" = 2 ] || fail "recoveries: $(recoveries forked), expected 2"
[ "$(wc -l < forked/recoveries.jsonl)" -eq 2 ] || fail "recoveries.jsonl: $(cat forked/recoveries.jsonl)"

# Without max_restarts a lost worker ends the run.
rm -f out.txt
"$mnist" $training --workers 2 --logdir ended > out.txt 2> err.txt &
pid=$!
wait_for out.txt 'train (1/3)'
kill -KILL $(pgrep lockstep-rank-1 | grep -xF "$(children_of $pid)")
if wait $pid 2> /dev/null; then fail "a run without max_restarts survived"; fi

# A config.
"$lockstep" run -C "$configs/mnist.yml" --workers 2 --shards 2 --num-epochs 2 --no-verbose --logdir config_calm \
  > out.txt 2> err.txt || fail "the config, undisturbed"
rm -f out.txt
"$lockstep" run -C "$configs/mnist.yml" --workers 2 --shards 2 --num-epochs 2 --no-verbose --logdir config \
  --max-restarts 3 > out.txt 2> err.txt &
pid=$!
wait_for out.txt 'train (1/2)'
kill -KILL $(pgrep lockstep-rank-1 | grep -xF "$(children_of $pid)")
wait $pid || fail "a config whose worker was killed: exit code $?"
[ "$(hash_of config)" = "$(hash_of config_calm)" ] || fail "a config whose worker was killed: other weights"

# rank_of_launch PID RANK: the process of a rank.
rank_of_launch() {
  local child
  for child in $(children_of "$1"); do
    if grep -qsz "^RANK=$2$" "/proc/$child/environ"; then echo "$child"; return; fi
  done
}

# Under the launcher any rank is replaced, also rank 0, and the run goes on from memory.
rm -f out.txt
"$lockstep" launch --nproc-per-node 2 --max-restarts 5 "$mnist" $training --logdir launched > out.txt 2> err.txt &
pid=$!
wait_for out.txt 'train (1/3)'
kill -KILL "$(rank_of_launch $pid 0)"
wait_for out.txt 'Recovered: rank 0.*restart 1 of 5'
wait_for out.txt 'train (2/3)'
kill -KILL "$(rank_of_launch $pid 1)"
wait $pid || fail "ranks were killed under the launcher: exit code $?"
expect_same launched "ranks were killed under the launcher"
[ "$(recoveries launched)" = 2 ] || fail "recoveries under the launcher: $(recoveries launched), expected 2"
echo "recovery.sh: passed"
