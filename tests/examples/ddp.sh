#!/usr/bin/env bash
# A run of several workers is disturbed: a worker is killed or stopped, the launcher is killed, Ctrl-C.
# In each case every process ends in time, the exit code is right, the rank at fault is named, and no
# file or memory is left. It also checks that the weights do not depend on the number of workers, the
# backend or the launcher.
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
mnist=$1
# The test looks for files that a run leaves in shared memory and in the temporary folder. Other tests that run at the
# same time use these, too, so this one has its own.
if [ -z "${DDP_OWN_SHM:-}" ] && unshare --mount true 2> /dev/null; then
  exec env DDP_OWN_SHM=1 unshare --mount --propagation private \
    bash -c 'mount -t tmpfs -o mode=1777 shm /dev/shm && exec bash "$@"' bash "$0" "$@"
fi
# In memory, if possible: the time limits below are not for a disk that other tests keep busy.
work=$(mktemp -d ${DDP_OWN_SHM:+-p /dev/shm})
export TMPDIR=$work/temporary
mkdir "$TMPDIR"
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "ddp.sh: $*" >&2; [ -f "$work/out" ] && tail -n 5 "$work/out" "$work/err" >&2; exit 1; }
leftovers() {
  if [ -n "${DDP_OWN_SHM:-}" ]; then ls -A /dev/shm; fi
  find "$TMPDIR" -mindepth 1 -maxdepth 1 -newer "$work/stamp" -name '*lockstep*'
}

# --- The same weights for any number of workers, over shared memory and TCP, stopped and resumed,
# and under other launchers.
epochs=1
run() { local name=$1; shift; "$mnist" --epochs $epochs --quiet --logdir "$work/$name" "$@" >"$work/out" 2>"$work/err" || fail "$name failed"; hash_of "$work/$name"; }
expected=$(run one --workers 1 --shards 4)
[[ $expected =~ ^[0-9a-f]{16}$ ]] || fail "no hash in summary.json"
for n in 2 3 4; do
  found=$(run "shm$n" --workers $n --shards 4 --backend shm)
  [ "$found" = "$expected" ] || fail "shm with $n workers: $found, expected $expected"
done
for n in 2 4; do
  found=$(run "gloo$n" --workers $n --shards 4 --backend gloo)
  [ "$found" = "$expected" ] || fail "gloo with $n workers: $found, expected $expected"
done
# The engine says by name what this build or machine cannot do.
if CUDA_VISIBLE_DEVICES=-1 "$mnist" --epochs 1 --quiet --workers 2 --backend nccl >"$work/out" 2>"$work/err"; then
  fail "nccl without a GPU was not refused"
fi
grep -q '^mnist: backend: .*nccl' "$work/err" || fail "expected an error about the backend nccl"
# Gradients in bfloat16: other weights, again the same for any number of workers and backend, and about the same accuracy.
epochs=3
accuracy_of() { awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "accuracy01") column = i } END { print $column }' "$work/$1/logs/valid.csv"; }
full=$(run full --workers 2 --shards 4)
rounded=$(run rounded1 --workers 1 --shards 4 --wire bf16)
[ "$rounded" != "$full" ] || fail "bf16 changed nothing"
for backend in shm gloo; do
  found=$(run "rounded-$backend" --workers 2 --shards 4 --backend $backend --wire bf16)
  [ "$found" = "$rounded" ] || fail "bf16 over $backend: $found, expected $rounded"
done
awk -v a="$(accuracy_of full)" -v b="$(accuracy_of rounded1)" 'BEGIN { exit !(a > 0.75 && b > a - 0.01 && b < a + 0.01) }' ||
  fail "accuracy with bf16: $(accuracy_of rounded1), expected that of fp32 within 0.01: $(accuracy_of full)"
echo "ddp.sh: accuracy $(accuracy_of full) with fp32, $(accuracy_of rounded1) with bf16"
epochs=1
if have_mpirun "the same weights under mpirun"; then
  mpirun --allow-run-as-root --oversubscribe -n 2 "$mnist" --epochs 1 --shards 4 --quiet \
    --logdir "$work/mpirun" >"$work/out" 2>"$work/err" || fail "mpirun failed"
  [ "$(hash_of "$work/mpirun")" = "$expected" ] || fail "other weights under mpirun"
fi
if have_mpich "the same weights under MPICH's mpirun"; then
  mpiexec.hydra -n 2 "$mnist" --epochs 1 --shards 4 --quiet --logdir "$work/mpich" \
    >"$work/out" 2>"$work/err" || fail "MPICH's mpirun failed"
  [ "$(hash_of "$work/mpich")" = "$expected" ] || fail "other weights under MPICH's mpirun"
fi
if have_torchrun "the same weights under torchrun"; then
  # Redirection is named for each worker: without it, torchrun 1.13 fails on Python 3.11.
  run_torchrun --no_python --nproc_per_node 2 -r 0:1,1:1 -t 0:1,1:1 "$mnist" --epochs 1 --shards 4 \
    --quiet --logdir "$work/torchrun" >"$work/out" 2>"$work/err" || fail "torchrun failed"
  [ "$(hash_of "$work/torchrun")" = "$expected" ] || fail "other weights under torchrun"
fi

# --- Disturbed runs.
touch "$work/stamp"
before=$(leftovers)
start() {  # in a new process group, as a shell would; sets `main` and `workers` to the process ids
  rm -rf "$work/run"
  setsid env --default-signal=INT "$mnist" --epochs 1000 --quiet --workers 3 --logdir "$work/run" "$@" \
    >"$work/out" 2>"$work/err" &
  main=$!
  for _ in $(seq $(scaled 800)); do  # 40 s: Gloo is slow if other programs use the cores, too
    workers=($(pgrep -P $main || true))
    [ ${#workers[@]} -eq 2 ] && grep -q 'valid (2/' "$work/out" && return
    sleep 0.05
  done
  fail "the run did not start"
}
# ends LIMIT_IN_MS: the run and all its workers are gone by then; sets `code`.
ends() {
  local begin=$(date +%s%N) limit=$(scaled $1)
  code=0; wait $main 2>/dev/null || code=$?
  for pid in "${workers[@]}"; do
    # A zombie, which ended but was not reaped yet, counts as ended.
    while grep -qE '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null; do
      [ $((($(date +%s%N) - begin) / 1000000)) -lt "$limit" ] || fail "$what: worker $pid is still there"
      sleep 0.02
    done
  done
  local took=$((($(date +%s%N) - begin) / 1000000))
  [ $took -lt "$limit" ] || fail "$what: took $took ms, expected less than $limit"
  [ "$(leftovers)" = "$before" ] || fail "$what: something is left in /dev/shm or /tmp"
  echo "ddp.sh: $what: over in $took ms, exit $code"
}

for backend in shm gloo; do
  what="a worker killed ($backend)"
  start --backend $backend; kill -9 "${workers[1]}"; ends 2000
  [ $code -eq 1 ] || fail "$what: exit $code, expected 1"
  grep -qE 'rank 2.*(signal 9|connection)' "$work/err" || fail "$what: the culprit is not named"

  what="a worker stopped ($backend)"
  start --backend $backend --timeout 2; kill -STOP "${workers[0]}"; ends 6000
  [ $code -eq 1 ] || fail "$what: exit $code, expected 1"
  grep -qE '(rank|ranks) 1.* did not' "$work/err" || fail "$what: the culprit is not named"

  what="the launcher killed ($backend)"
  start --backend $backend; kill -9 $main; ends 2000
  [ $code -eq 137 ] || fail "$what: exit $code, expected 137"

  what="the launcher stopped ($backend)"
  start --backend $backend --timeout 2; kill -STOP $main; ends 7000
  [ $code -ne 0 ] || fail "$what: exit 0"
  grep -qE 'rank 0 ' "$work/err" || fail "$what: the culprit is not named"
done

# The system refuses threads: all ranks may hang in LibTorch before the rendezvous, and the run still
# ends. root has no such limit, so the run uses another user id; the limit counts all threads of that user.
what="few threads"
if [ "${LOCKSTEP_TEST_SLOWDOWN:-1}" -gt 1 ]; then
  skip "a run with few threads" "sanitizers need threads of their own"
elif [ "$(id -u)" -ne 0 ] || ! setpriv --reuid 61235 --clear-groups bash -c 'exec "$0" --help' "$mnist" >/dev/null 2>&1; then
  skip "a run with few threads" "it needs root, and a build folder that every user may read"
else
  chmod a+rx "$work"; install -d -o 61235 "$work/limited"
  for limit in 2 3 4 5 6 7; do
    code=0
    setpriv --reuid 61235 --clear-groups bash -c 'ulimit -u $1; shift; exec timeout 20 "$@"' - $limit \
      "$mnist" --epochs 1 --quiet --workers 2 --timeout 1 --logdir "$work/limited/$limit" \
      >"$work/out" 2>"$work/err" || code=$?
    [ $code -ne 124 ] || fail "$what: $limit are allowed, and it does not end"
    [ $code -eq 0 ] || grep -qE 'limited \(ulimit -u\)|cannot fork' "$work/err" || fail "$what: $limit: the cause is not named"
    echo "ddp.sh: $what: $limit allowed: exit $code"
  done
fi

what="Ctrl-C"
start; kill -INT -- -$main; ends 2000
[ $code -eq 130 ] || fail "$what: exit $code, expected 130"
[ -f "$work/run/checkpoints/last.pth" ] || fail "$what: left no checkpoint"

# A signal to all ranks reaches one of them first. The other ranks may learn of it before they get the
# signal themselves; the signal is then no failure.
what="SIGTERM, one by one"
start; kill -TERM "${workers[1]}"; kill -TERM "${workers[0]}" $main || true; ends 2000
[ $code -eq 143 ] || fail "$what: exit $code, expected 143"

# A run that was interrupted inside an epoch and resumed with fewer workers ends with the same bits.
epochs=3
straight=$(run straight --workers 3)
what="Ctrl-C and resume"
rm -rf "$work/run"
setsid env --default-signal=INT "$mnist" --epochs 3 --quiet --workers 3 --logdir "$work/run" >"$work/out" 2>"$work/err" &
main=$!
for _ in $(seq $(scaled 400)); do grep -q 'train (1/' "$work/out" && break; sleep 0.01; done
workers=($(pgrep -P $main)); kill -INT -- -$main; ends 2000
"$mnist" --epochs 3 --quiet --workers 2 --shards 3 --logdir "$work/run" --resume last \
  >"$work/out" 2>"$work/err" || fail "$what: resume failed"
[ "$(hash_of "$work/run")" = "$straight" ] || fail "$what: other weights than straight through"
echo "ddp.sh: all is well"
