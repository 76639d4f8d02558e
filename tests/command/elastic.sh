#!/usr/bin/env bash
# `lockstep launch --nnodes MIN:MAX` with small programs: nodes die, come again and are cut off, on one host and on three
# hosts (network namespaces).
# usage: elastic.sh PATH_TO_LOCKSTEP
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1
work=$(mktemp -d)
space=lockstep-elastic-$$
declare -A pids=()
clean_up() {
  kill -9 $(jobs -p) 2> /dev/null || true
  remove_hosts "$space"
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work"
fail() { echo "elastic.sh: $*" >&2; tail -n 20 out.* err.* >&2; exit 1; }
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done
  echo $port
}
until_true() { # SECONDS WHAT COMMAND...
  local limit=$(($(date +%s) + $(scaled "$1"))) what=$2
  shift 2
  until "$@" 2> /dev/null; do
    [ "$(date +%s)" -lt "$limit" ] || fail "$what"
    sleep 0.05
  done
}
# One line per start of a rank; runs until the file `done` exists.
cat > program.sh <<'PROGRAM'
echo "generation $TORCHELASTIC_RESTART_COUNT: rank $RANK of $WORLD_SIZE, shards $LOCKSTEP_SHARDS, threads $LOCKSTEP_THREADS"
until [ -e "$WORK/done" ]; do sleep 0.05; done
PROGRAM
export WORK=$work
# start NODE [OPTIONS...]: starts a launcher; its output is in out.NODE and err.NODE
start() {
  local node=$1
  shift
  "$lockstep" launch --nproc-per-node 1 --nnodes "$nnodes" --rdzv-endpoint "$endpoint" ${token:+--token-file $token} "$@" \
    bash program.sh > "out.$node" 2> "err.$node" &
  pids[$node]=$!
}
started() { [ "$(grep -c "generation $2: rank [0-9]* of $3," "out.$1")" -ge 1 ]; }
finish() { # NODES...: the run ends well on them
  touch "$work/done"
  local node code
  for node in "$@"; do
    code=0; wait "${pids[$node]}" || code=$?
    [ $code -eq 0 ] || fail "node $node ends with $code"
  done
  rm "$work/done"
}

# --- A node dies: the other one goes on without it. It comes again: both go on. Restarts are not used.
nnodes=1:2 endpoint=127.0.0.1:$(free_port)
start 0
until_true 10 "node 0 does not listen" bash -c "exec 3<> /dev/tcp/127.0.0.1/${endpoint#*:}"
start 1
# On a slow machine node 0 begins alone before node 1 has come, and both begin the generation after that.
until_true 20 "no generation with both nodes" bash -c "grep -q 'of 2,' out.0 && grep -q 'of 2,' out.1"
both=$(sed -nE 's/.*generation ([0-9]+): rank [0-9]+ of 2,.*/\1/p' out.0 | tail -n 1)
until_true 10 "generation $both does not begin on node 1" started 1 "$both" 2
kill -9 ${pids[1]}
until_true 10 "node 0 does not go on alone" started 0 $((both + 1)) 1
grep -q "is lost: its launcher has ended; generation $((both + 2)) has 1 node with 1 rank; the ranks were started" err.0 || fail "no line about the lost node"
start 2
until_true 10 "the new node is not taken in" started 2 $((both + 2)) 2
grep -q "came; generation $((both + 3)) has 2 nodes with 2 ranks" err.0 || fail "no line about the node that came"
finish 0 2
[ "$(cat out.* | sed -nE 's/.*(shards.*)/\1/p' | sort -u | wc -l)" -eq 1 ] || fail "shards or threads changed: $(cat out.*)"
grep -q 'shards 2,' out.0 || fail "shards are not the largest number of ranks"

# --- A rank fails: all nodes start again, and the budget is used up.
rm -f out.* err.*
endpoint=127.0.0.1:$(free_port)
cat > failing.sh <<'PROGRAM'
echo "try $TORCHELASTIC_RESTART_COUNT"
if [ "$RANK" = 1 ]; then exit 7; fi
sleep 60
PROGRAM
codes=()
for node in 0 1; do
  timeout "$(scaled 30)" "$lockstep" launch --nproc-per-node 1 --nnodes 2:3 --rdzv-endpoint "$endpoint" --max-restarts 2 \
    bash failing.sh > out.$node 2> err.$node & pids[$node]=$!
done
for node in 0 1; do code=0; wait ${pids[$node]} || code=$?; [ $code -eq 7 ] || fail "a rank ends with 7, node $node with $code"; done
[ "$(cat out.0 out.1 | grep -c 'rank 1. try')" -eq 3 ] || fail "expected 3 attempts"
grep -q 'no restart is left of --max-restarts 2' err.0 || fail "it does not say that no restart is left"

# --- A rank of node 1 is killed: rank 0 writes that rank to the run's folder, and not its own end, which followed from it.
rm -f out.* err.*
endpoint=127.0.0.1:$(free_port)
cat > train.yml <<'YAML'
model: [Flatten, {Linear: {out_features: 3}}]
criterion: CrossEntropyLoss
optimizer: {SGD: {lr: 0.1}}
loaders:
  train: {dataset: {_target_: Noise, samples: 64, shape: [2, 4], classes: 3, seed: 1}, batch_size: 8}
num_epochs: 200
YAML
cat > training.sh <<'PROGRAM'
train() { exec "$LOCKSTEP" run -C train.yml --ddp --no-verbose --logdir trained; }
if [ "$RANK$TORCHELASTIC_RESTART_COUNT" != 10 ]; then train; fi
train & # rank 1 of the first attempt is killed after the first epoch
until [ -s trained/logs/train.csv ]; do sleep 0.01; done
kill -9 $! $$
PROGRAM
export LOCKSTEP=$lockstep
for node in 0 1; do
  timeout "$(scaled 60)" "$lockstep" launch --nproc-per-node 1 --nnodes 1:2 --node-rank $node --rdzv-endpoint "$endpoint" \
    --max-restarts 2 bash training.sh > out.$node 2> err.$node & pids[$node]=$!
done
for node in 0 1; do wait ${pids[$node]} || fail "a rank was killed, and node $node ends with $?"; done
[ "$(wc -l < trained/recoveries.jsonl)" -eq 1 ] || fail "one recovery, but: $(cat trained/recoveries.jsonl)"
grep -q '"rank":1,.*killed by signal 9' trained/recoveries.jsonl || fail "the wrong cause: $(cat trained/recoveries.jsonl)"
grep -qE '"recoveries": ?1' trained/summary.json || fail "summary.json does not have the recovery"

# --- Two endpoints: the launcher with the rendezvous is killed, and the other one takes over.
rm -f out.* err.*
nnodes=1:2 endpoint=127.0.0.1:$(free_port),127.0.0.1:$(free_port)
start 0 --node-rank 0
start 1 --node-rank 1
until_true 15 "generation 0 does not begin" started 1 0 2
kill -9 ${pids[0]}
until_true 10 "node 1 does not take over" started 1 1 1
grep -q 'the coordinator of generation 1 is lost' err.1 || fail "node 1 does not say why it begins anew"
start 2 --node-rank 0
until_true 10 "the first node is not taken in again" started 2 2 2
finish 1 2

# --- Three endpoints: the launcher with the rendezvous and rank 0 is killed in training. No checkpoint is written, so the
# others go on from their copies of the last point, and the weights and logs are those of the undisturbed run.
cat > copied.sh <<'PROGRAM'
exec "$LOCKSTEP" run -C train.yml --ddp --no-verbose --logdir "$LOGDIR"
PROGRAM
cat >> train.yml <<'YAML'
callbacks: [{CheckpointCallback: {mode: none}}]
YAML
for way in calm disturbed; do
  rm -f out.* err.*
  endpoint=127.0.0.1:$(free_port),127.0.0.1:$(free_port),127.0.0.1:$(free_port)
  for node in 0 1 2; do
    LOGDIR=$way timeout "$(scaled 60)" "$lockstep" launch --nproc-per-node 1 --nnodes 2:3 --node-rank $node --rdzv-endpoint "$endpoint" \
      bash copied.sh > out.$node 2> err.$node & pids[$node]=$!
  done
  rest="0 1 2"
  if [ $way = disturbed ]; then
    until_true 20 "the training does not begin" bash -c '[ "$(wc -l < disturbed/logs/train.csv)" -gt 20 ]'
    # The launcher itself, which is the child of timeout.
    kill -9 "$(pgrep -P ${pids[0]})"
    wait ${pids[0]} || true
    rest="1 2"
  fi
  for node in $rest; do wait ${pids[$node]} || fail "$way: node $node ends with $?"; done
done
hash_of() { sed -nE 's/.*"weights_hash": ?"([0-9a-f]+)".*/\1/p' "$1/summary.json"; }
[ -n "$(hash_of calm)" ] || fail "summary.json has no hash"
[ "$(hash_of disturbed)" = "$(hash_of calm)" ] || fail "without rank 0's host: hash $(hash_of disturbed), expected $(hash_of calm)"
cmp calm/logs/train.csv disturbed/logs/train.csv || fail "the logs differ"
[ "$(wc -l < disturbed/recoveries.jsonl)" -eq 1 ] || fail "one recovery, but: $(cat disturbed/recoveries.jsonl)"
[ ! -e disturbed/previous ] || fail "the run began again, and not from a point"
for folder in calm disturbed; do [ ! -e $folder/checkpoints ] || fail "$folder has checkpoints"; done

# --- One endpoint: the launcher with the rendezvous is killed, and does not come again: the other one ends.
rm -f out.* err.*
endpoint=127.0.0.1:$(free_port)
start 0 --node-rank 0
start 1 --node-rank 1 --timeout 3
until_true 15 "generation 0 does not begin" started 1 0 2
kill -9 ${pids[0]}
code=0; wait ${pids[1]} || code=$?
[ $code -eq 1 ] || fail "without a coordinator node 1 ends with $code"
grep -q 'found no other launcher of the run' err.1 || fail "node 1 does not say why it ends"

# --- A wrong secret is told at once.
echo 0123456789abcdef0123456789abcdef > one; echo fedcba98765432100123456789abcdef > other; chmod 600 one other
rm -f out.* err.*
endpoint=127.0.0.1:$(free_port)
token=one start 0 --node-rank 0
until_true 10 "node 0 does not listen" bash -c "exec 3<> /dev/tcp/127.0.0.1/${endpoint#*:}"
code=0
timeout "$(scaled 20)" "$lockstep" launch --nproc-per-node 1 --nnodes 1:2 --rdzv-endpoint "$endpoint" --token-file other --node-rank 1 true > out.1 2> err.1 || code=$?
[ $code -eq 1 ] || fail "a wrong token ends with $code"
grep -q "does not know this run's token" err.1 || fail "a wrong token is not told"
finish 0

# --- Three hosts, three endpoints.
if three_hosts "$space" 10.205.0 "three hosts"; then
  rm -f out.* err.*
  (umask 077; head -c 32 /dev/urandom | sha256sum | head -c 64 > token)
  token=token nnodes=1:3 endpoint=10.205.0.1:29400,10.205.0.2:29400,10.205.0.3:29400
  on() { # NODE OPTIONS...
    local node=$1
    shift
    ip netns exec "$space-$node" "$lockstep" launch --nproc-per-node 1 --nnodes $nnodes --rdzv-endpoint $endpoint --token-file token \
      --timeout 4 "$@" bash program.sh > out.$node 2> err.$node &
    pids[$node]=$!
  }
  for node in 0 1 2; do on $node; done
  for node in 0 1 2; do until_true 15 "generation 0 does not begin" started $node 0 3; done
  # The host with the rendezvous is cut off: the other two go on without it. It ends, because it has no majority.
  cut_host "$space" 0
  begin=$(date +%s%N)
  for node in 1 2; do until_true 20 "nodes 1 and 2 do not go on" started $node 1 2; done
  echo "elastic.sh: cut off, and going on after $((($(date +%s%N) - begin) / 1000000)) ms"
  [ $((($(date +%s%N) - begin) / 1000000)) -lt "$(scaled 15000)" ] || fail "the cut was noticed late"
  code=0; wait ${pids[0]} || code=$?
  [ $code -eq 1 ] || fail "the host that was cut off ends with $code"
  grep -qE 'found no other launcher|only a part of the 3 nodes' err.0 || fail "the host that was cut off does not say why it ends"
  if started 0 1 1 || started 0 1 2; then fail "two halves went on"; fi
  # The link is back, and its launcher comes again.
  mend_host "$space" 0
  on 0
  until_true 20 "host 0 is not taken in again" started 0 2 3
  finish 0 1 2

  # Two hosts, one endpoint: the side with the rendezvous goes on, the other one waits and ends.
  rm -f out.* err.*
  nnodes=1:2 endpoint=10.205.0.1:29400
  for node in 0 1; do on $node; done
  for node in 0 1; do until_true 15 "generation 0 does not begin" started $node 0 2; done
  cut_host "$space" 1
  until_true 20 "node 0 does not go on" started 0 1 1
  code=0; wait ${pids[1]} || code=$?
  [ $code -eq 1 ] || fail "the node that was cut off ends with $code"
  finish 0
  # Two hosts, two endpoints, a cut: silence is not an end that was seen, so only the side with the rendezvous goes on.
  mend_host "$space" 1
  rm -f out.* err.*
  endpoint=10.205.0.1:29400,10.205.0.2:29400
  for node in 0 1; do on $node; done
  for node in 0 1; do until_true 15 "generation 0 does not begin" started $node 0 2; done
  cut_host "$space" 1
  until_true 20 "node 0 does not go on" started 0 1 1
  code=0; wait ${pids[1]} || code=$?
  [ $code -eq 1 ] || fail "the node that was cut off ends with $code"
  if started 1 1 1; then fail "two halves went on"; fi
  # A short cut: the node finds the run again.
  mend_host "$space" 1
  on 1
  until_true 20 "node 1 is not taken in again" started 1 2 2
  finish 0 1
  # A fixed number of nodes: a cut ends the run on both sides, long before the kernel notices it.
  rm -f out.* err.*
  nnodes=2 endpoint=10.205.0.1:29400
  for node in 0 1; do on $node --node-rank $node; done
  for node in 0 1; do until_true 15 "the nodes do not begin" started $node 0 2; done
  cut_host "$space" 1
  begin=$(date +%s%N)
  for node in 0 1; do
    code=0; wait ${pids[$node]} || code=$?
    [ $code -eq 1 ] || fail "after a cut, node $node of 2 ends with $code"
  done
  [ $((($(date +%s%N) - begin) / 1000000)) -lt "$(scaled 15000)" ] || fail "a fixed number of nodes: the cut was noticed late"
  grep -q 'the launcher of node 1 is gone: it has sent nothing for' err.0 || fail "node 0 does not say why it ends"
fi
echo "elastic.sh: all as expected"
