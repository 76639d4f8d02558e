#!/usr/bin/env bash
# `lockstep launch` as a program: with an ordinary PyTorch script, with our own programs, with a
# killed launcher, and with two nodes on one host and on two hosts.
# usage: launch.sh PATH_TO_LOCKSTEP PATH_TO_MNIST
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1 mnist=$2
work=$(mktemp -d)
space=lockstep-launch-$$
clean_up() {
  kill -9 $(jobs -p) 2>/dev/null || true
  remove_hosts "$space"
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work"
fail() { echo "launch.sh: $*" >&2; tail -n 20 out* err* >&2; exit 1; }
# Weights are compared below. With some BLAS libraries their last bits depend on the number of threads.
export OMP_NUM_THREADS=1
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo $port
}

# --- An ordinary script with DistributedDataParallel, as it would run under torchrun.
cat > script.py <<'PYTHON'
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = [torch.zeros(2, 4) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(w, weights[0]) for w in weights)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "agrees, local", os.environ["LOCAL_RANK"], flush=True)
dist.destroy_process_group()
# A thread of PyTorch that needs the interpreter while that ends may abort the process, with any launcher.
os._exit(0)
PYTHON
if have_python_torch "an ordinary PyTorch script under launch"; then
  "$lockstep" launch --nproc-per-node 2 /usr/bin/python3 script.py > out 2> err || fail "the PyTorch script failed"
  grep -q '^\[rank 0\] rank 0 of 2 agrees, local 0$' out || fail "no line of rank 0"
  grep -q '^\[rank 1\] rank 1 of 2 agrees, local 1$' out || fail "no line of rank 1"
fi

# --- Our own program: the same bits as when it forks its workers itself.
"$mnist" --epochs 1 --workers 2 --quiet --logdir forked > out 2> err || fail "mnist failed"
"$lockstep" launch --nproc-per-node 2 --log-dir logs "$mnist" --epochs 1 --quiet --logdir launched \
  > out 2> err || fail "mnist failed under launch"
[ "$(hash_of launched)" = "$(hash_of forked)" ] || fail "other weights under launch"
grep -q 'Trained 1 epoch' logs/rank0/stdout.log || fail "no output in the files"

# --- Ranks that were started with different options are refused, with both values.
code=0
"$lockstep" launch --nproc-per-node 2 bash -c 'exec "$0" --epochs 1 --quiet --seed $RANK' "$mnist" > out 2> err || code=$?
[ $code -ne 0 ] || fail "ranks with different seeds were trained together"
cat out err | grep -q 'ranks disagree about the seed: rank 0 has 0, rank 1 has 1' || fail "the seeds are not named"

# --- A wrong option is not tried again: the exit code says so or, whatever the code is, a note of the run.
refused() { # CODE WORDS COMMAND...
  local expected=$1 words=$2
  shift 2
  rm -f tries; code=0
  "$lockstep" launch --nproc-per-node 2 --max-restarts 5 \
    bash -c 'echo >> tries; "$@"' - "$@" > out 2> err || code=$?
  [ $code -eq "$expected" ] || fail "$*: ends with $code, expected $expected"
  [ "$(wc -l < tries)" -le 2 ] || fail "$*: the two ranks were started $(wc -l < tries) times"
  cat out err | grep -q "$words" || fail "$*: does not say '$words'"
}
refused 2 'shards: expected at least one per worker' "$mnist" --epochs 1 --quiet --shards 1
refused 2 'rapid' "$mnist" --rapid
refused 1 'ranks disagree about the seed' bash -c '"$0" --epochs 1 --quiet --seed $RANK || exit 1' "$mnist"
refused 1 'num_epochs' bash -c '"$0" --epochs 0 --quiet || exit 1' "$mnist"

# --- A rank is killed: the other ranks end, and the report names the killed rank.
start=$(date +%s%N)
code=0
"$lockstep" launch --nproc-per-node 3 bash -c 'if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 60 & wait' \
  > out 2> err || code=$?
[ $code -eq 137 ] || fail "a rank was killed by signal 9, launch ends with $code"
[ $(( ($(date +%s%N) - start) / 1000000 )) -lt "$(scaled 10000)" ] || fail "it took too long to end"
grep -q 'rank 2 failed first: killed by signal 9' err || fail "the report does not name rank 2"

# --- Rank 0 is stopped: the run ends soon after its time limit, and the report names rank 0.
rm -f out
"$lockstep" launch --nproc-per-node 2 "$mnist" --epochs 1000 --quiet --logdir stopped --timeout 2 > out 2> err &
launcher=$!
stopped=
for _ in $(seq $(scaled 400)); do
  for pid in $(pgrep -P $launcher -x mnist || true); do
    if tr '\0' '\n' < /proc/$pid/environ 2> /dev/null | grep -qx RANK=0; then stopped=$pid; fi
  done
  [ -n "$stopped" ] && [ -s stopped/logs/train.csv ] && break
  sleep 0.05
done
kill -STOP "$stopped"
start=$(date +%s%N)
code=0; wait $launcher || code=$?
[ $code -ne 0 ] || fail "a rank was stopped, launch ends with 0"
[ $(( ($(date +%s%N) - start) / 1000000 )) -lt "$(scaled 4500)" ] || fail "it took $(( ($(date +%s%N) - start) / 1000000 )) ms to end"
grep -q 'rank 0 is the likely cause: a signal had stopped it' err || fail "the report does not name rank 0"
if grep -q 'found no' err; then fail "rank 1 says that it found no server, but there is one"; fi

# --- The launcher itself is killed: no process is left, not even the children of a rank.
rm -f out
"$lockstep" launch --nproc-per-node 2 bash -c 'echo $$ >> pids; sleep 1000 & echo $! >> pids; echo ready; wait' > out 2> err &
launcher=$!
for _ in $(seq $(scaled 200)); do [ "$(grep -c ready out || true)" -eq 2 ] && break; sleep 0.05; done
[ "$(wc -l < pids)" -eq 4 ] || fail "the ranks did not start"
# It gives itself its name, which may be after the ranks have started.
for _ in $(seq $(scaled 200)); do reaper=$(pgrep -P $launcher -x lockstep-reaper) && break; sleep 0.05; done
[ -n "$reaper" ] || fail "there is no orphan reaper"
echo "$reaper" >> pids
kill -9 $launcher
wait $launcher 2>/dev/null || true
alive() { for pid in $(cat pids); do grep -qsE '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$pid/status" && echo "$pid"; done; true; }
for _ in $(seq $(scaled 40)); do [ -z "$(alive)" ] && break; sleep 0.05; done
[ -z "$(alive)" ] || fail "the launcher was killed, and these processes still run: $(alive)"

# --- SIGCHLD ignored, as some supervisors start programs: a failure is seen, a good run ends as usual.
ignoring="env --ignore-signal=CHLD"
start=$(date +%s%N)
code=0; timeout $(scaled 20) $ignoring "$lockstep" launch --nproc-per-node 2 false > out 2> err || code=$?
[ $code -eq 1 ] || fail "SIGCHLD is ignored: 'false' ends with $code"
[ $(( ($(date +%s%N) - start) / 1000000 )) -lt $(scaled 5000) ] || fail "SIGCHLD is ignored: it took too long to end"
timeout $(scaled 60) $ignoring "$mnist" --epochs 1 --workers 2 --quiet --logdir ignored > out 2> err ||
  fail "SIGCHLD is ignored: mnist with two workers fails"
[ "$(hash_of ignored)" = "$(hash_of forked)" ] || fail "other weights where SIGCHLD is ignored"

# --- Few descriptors are left: the launcher ends in time, however many it gets.
for limit in 10 11 12 13 14 15 16 17 18 20; do
  code=0; (ulimit -n $limit; exec timeout $(scaled 20) "$lockstep" launch --nproc-per-node 2 true) > out 2> err || code=$?
  [ $code -ne 124 ] || fail "with $limit descriptors it does not end"
done
[ $code -eq 0 ] || fail "20 descriptors are not enough: exit $code"

# --- A program that does not exist or cannot be executed: the same exit codes as a shell's.
for case in "127 ./nowhere" "127 no-such-program" "126 /etc/passwd" "126 /tmp"; do
  code=0; "$lockstep" launch --nproc-per-node 1 ${case#* } > out 2> err || code=$?
  [ $code -eq ${case% *} ] || fail "${case#* } ends with $code, expected ${case% *}"
done

# --- Ctrl-C is passed on to the ranks, which may end in their own way.
rm -f out
setsid env --default-signal=INT "$lockstep" launch --nproc-per-node 2 \
  bash -c 'trap "echo saved; exit 0" INT; echo ready; while :; do sleep 0.05; done' > out 2> err &
launcher=$!
for _ in $(seq $(scaled 200)); do [ "$(grep -c ready out || true)" -eq 2 ] && break; sleep 0.05; done
kill -INT $launcher
code=0; wait $launcher || code=$?
[ $code -eq 130 ] || fail "interrupted, launch ends with $code"
[ "$(grep -c saved out)" -eq 2 ] || fail "the ranks did not get the signal"

# --- Two nodes.
# nodes HOST PORT PREFIX_OF_0 PREFIX_OF_1 PROGRAM...; leaves out.N and err.N, code.N
nodes() {
  local endpoint=$1:$2 first=$3 second=$4
  shift 4
  local run="launch --nnodes 2 --nproc-per-node 1 --rdzv-endpoint $endpoint ${token:+--token-file $token}"
  $first "$lockstep" $run --node-rank 0 "$@" > out.0 2> err.0 & local zero=$!
  code_1=0; $second "$lockstep" $run --node-rank 1 "$@" > out.1 2> err.1 || code_1=$?
  code_0=0; wait $zero || code_0=$?
}
nodes 127.0.0.1 "$(free_port)" "" "" "$mnist" --epochs 1 --quiet --logdir nodes
[ "$code_0 $code_1" = "0 0" ] || fail "two nodes end with $code_0 and $code_1"
[ "$(hash_of nodes)" = "$(hash_of forked)" ] || fail "other weights on two nodes"
# A rank fails on node 1: node 0 also ends, with the same code, and names the rank.
nodes 127.0.0.1 "$(free_port)" "" "" bash -c 'if [ $RANK = 1 ]; then exit 9; fi; sleep 60'
[ "$code_0 $code_1" = "9 9" ] || fail "a rank of node 1 ends with 9, the nodes with $code_0 and $code_1"
grep -q 'rank 1 failed on another node: exit code 9' err.0 || fail "node 0 does not name the rank that failed"
# With --max-restarts, all nodes start again.
nodes 127.0.0.1 "$(free_port)" "" "" --max-restarts 1 bash -c 'exit $(( RANK == 1 && TORCHELASTIC_RESTART_COUNT == 0 ))'
[ "$code_0 $code_1" = "0 0" ] || fail "restarted nodes end with $code_0 and $code_1"

# A node is interrupted: the other node ends as well.
port=$(free_port)
run="launch --nnodes 2 --nproc-per-node 1 --rdzv-endpoint 127.0.0.1:$port"
"$lockstep" $run --node-rank 0 bash -c 'echo ready; sleep 60' > out.0 2> err.0 & zero=$!
setsid env --default-signal=INT "$lockstep" $run --node-rank 1 bash -c 'echo ready; sleep 60' > out.1 2> err.1 & one=$!
for _ in $(seq $(scaled 200)); do cat out.0 out.1 | grep -c ready | grep -qx 2 && break; sleep 0.05; done
kill -INT $one
code_1=0; wait $one || code_1=$?
code_0=0; wait $zero || code_0=$?
[ "$code_0 $code_1" = "1 130" ] || fail "node 1 was interrupted, the nodes end with $code_0 and $code_1"
grep -q 'the launcher of node 1 is gone: interrupted by signal 2' err.0 || fail "node 0 does not say why"
# A node cannot start its program: the other node ends as well.
port=$(free_port)
run="launch --nnodes 2 --nproc-per-node 1 --rdzv-endpoint 127.0.0.1:$port --rdzv-id none-$$"
"$lockstep" $run --node-rank 0 sleep 60 > out.0 2> err.0 & zero=$!
code_1=0; "$lockstep" $run --node-rank 1 ./nowhere > out.1 2> err.1 || code_1=$?
code_0=0; wait $zero || code_0=$?
[ "$code_0 $code_1" = "1 127" ] || fail "node 1 cannot start, the nodes end with $code_0 and $code_1"

if two_hosts "$space" 10.204.0 "two hosts"; then
  # Several hosts need a secret, and the error says how to make one.
  nodes 10.204.0.1 29400 "ip netns exec $space-0" "ip netns exec $space-1" true
  [ "$code_0 $code_1" = "2 2" ] || fail "two hosts without a token end with $code_0 and $code_1"
  grep -q 'there is no token: .*openssl rand' err.0 || fail "node 0 does not say how to make a token"
  (umask 077; head -c 32 /dev/urandom | sha256sum | head -c 64 > token)
  token=token
  chmod 644 token
  nodes 10.204.0.1 29400 "ip netns exec $space-0" "ip netns exec $space-1" true
  [ "$code_0 $code_1" = "2 2" ] || fail "a token file that every user can read: the nodes end with $code_0 and $code_1"
  grep -q 'chmod 600' err.1 || fail "node 1 does not say how to protect its token"
  chmod 600 token
  # The ranks get another secret than the launchers.
  nodes 10.204.0.1 29400 "ip netns exec $space-0" "ip netns exec $space-1" \
    bash -c 'echo "${#LOCKSTEP_TOKEN} $LOCKSTEP_TOKEN"'
  [ "$code_0 $code_1" = "0 0" ] || fail "two hosts end with $code_0 and $code_1"
  [ "$(cut -d ' ' -f 4 out.0)" = "$(cut -d ' ' -f 4 out.1)" ] || fail "the ranks have different secrets"
  grep -q ' 64 ' out.0 || fail "the ranks have no secret"
  if grep -qf token out.0 out.1; then fail "the launchers' secret was passed on to the ranks"; fi
  nodes 10.204.0.1 29400 "ip netns exec $space-0" "ip netns exec $space-1" "$mnist" --epochs 1 --quiet --logdir hosts
  [ "$code_0 $code_1" = "0 0" ] || fail "two hosts end with $code_0 and $code_1"
  [ "$(hash_of hosts)" = "$(hash_of forked)" ] || fail "other weights on two hosts"
fi
echo "launch.sh: all as expected"
