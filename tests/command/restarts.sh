#!/usr/bin/env bash
# `lockstep launch --max-restarts` with small programs: what is started again, what is not, and the exit codes.
# usage: restarts.sh PATH_TO_LOCKSTEP
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1
work=$(mktemp -d)
clean_up() {
  kill -9 $(jobs -p) 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work"
fail() { echo "restarts.sh: $*" >&2; tail -n 20 out err >&2; exit 1; }
now() { echo $(($(date +%s%N) / 1000000)); }

# launch EXPECTED_CODE OPTIONS... SCRIPT; the script runs in each of two ranks, $n is the attempt's number
launch() {
  local expected=$1 code=0
  shift
  local script=${!#} options=("${@:1:$#-1}")
  rm -f tries
  timeout "$(scaled 60)" "$lockstep" launch --nproc-per-node 2 "${options[@]}" \
    bash -c "n=\$TORCHELASTIC_RESTART_COUNT; [ \$RANK = 0 ] && echo \$n >> tries; $script" > out 2> err || code=$?
  [ $code -eq "$expected" ] || fail "'$script' ends with $code, expected $expected"
}
tries() { cat tries 2> /dev/null | wc -l; }

# --- Exit codes: the program's own, 128 + the signal; 2, 126 and 127 are not tried again.
launch 0 'exit 0'
launch 7 'exit $((RANK * 7))'
launch 137 'if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 60'
launch 7 --max-restarts 2 'exit 7'
[ "$(tries)" -eq 3 ] || fail "exit code 7 was tried $(tries) times, expected 3"
grep -q 'it is not started again: no restart is left of --max-restarts 2' err || fail "it does not say that no restart is left"
[ "$(grep -c 'attempt [123]: rank [01]: exit code 7' err)" -eq 3 ] || fail "it does not list every failure"
for code in 2 126 127; do
  launch $code --max-restarts 5 "if [ \$RANK = 1 ]; then exit $code; fi; sleep 60"
  [ "$(tries)" -le 1 ] || fail "exit code $code was tried again"
  grep -q "exit code $code means" err || fail "it does not say why exit code $code is not tried again"
done
code=0; "$lockstep" launch --nproc-per-node 1 --max-restarts 5 ./nowhere > out 2> err || code=$?
[ $code -eq 127 ] || fail "a program that does not exist ends with $code"
"$lockstep" launch --help > help
for word in '126, 127' '128 + N'; do grep -qF -- "$word" help || fail "--help has no exit code $word"; done

# --- A rank that is killed: all start again at once, with one line that says why.
start=$(now)
launch 0 --max-restarts 3 'if [ $n = 0 ]; then [ $RANK = 1 ] && kill -9 $$; sleep 60; fi'
[ $(($(now) - start)) -lt "$(scaled 5000)" ] || fail "a restart took $(($(now) - start)) ms"
grep -qE '^lockstep launch: restart 1 of 3: rank 1: killed by signal 9 \(Killed\); the ranks were started [0-9.]+ s after the failure$' err ||
  fail "no line about the restart"
[ "$(grep -c '^lockstep launch: restart' err)" -eq 1 ] || fail "one restart, several lines"

# --- A rank that ignores SIGTERM does not delay the restart.
launch 0 --max-restarts 1 'if [ $n = 0 ]; then [ $RANK = 1 ] && exit 5; trap "" TERM; sleep 60 & wait; sleep 60; fi'
delay=$(sed -nE 's/.*the ranks were started ([0-9.]+) s after the failure$/\1/p' err)
awk -v delay="$delay" -v limit="$(scaled 1200)" 'BEGIN { exit !(delay != "" && delay * 1000 < limit) }' ||
  fail "a rank that ignores SIGTERM delays the restart: '$delay' s"

# --- A rank that only lost another one is not blamed.
launch 0 --max-restarts 1 'if [ $n = 0 ]; then if [ $RANK = 1 ]; then echo $$ > one; sleep 0.1; kill -9 $$; fi
  until [ -s one ] && ! grep -qs "^State:.[SRD]" /proc/$(cat one)/status; do :; done; exit 1; fi'
grep -q 'restart 1 of 1: rank 1: killed by signal 9' err || fail "the rank that was killed is not blamed"

# --- A rank that is stopped by a signal is the cause and is killed.
rm -f zero
launch 0 --max-restarts 1 'if [ $n = 0 ]; then if [ $RANK = 0 ]; then echo $$ > zero; kill -STOP $$; sleep 60
  else until [ -s zero ] && grep -q "^State:.T" /proc/$(cat zero)/status; do sleep 0.02; done; exit 1; fi; fi'
grep -q 'restart 1 of 1: rank 0: a signal had stopped it' err || fail "the rank that was stopped is not blamed"

# --- The ranks of all attempts have the same memory, their children do not need it; without restarts there is none.
launch 0 --max-restarts 1 'stat -L -c "%i" /proc/self/fd/$LOCKSTEP_MEMORY; [ $n = 1 ]'
[ "$(sort -u out | grep -c .)" -eq 2 ] || fail "the attempts have different memory"
[ "$(sed 's/.*] //' out | sort -u | wc -l)" -eq 1 ] || fail "the ranks have different memory"
launch 0 '[ -z "${LOCKSTEP_MEMORY:-}" ]'

# --- Every attempt has a run id and a token of its own.
launch 0 --max-restarts 1 'echo "$TORCHELASTIC_RUN_ID $LOCKSTEP_TOKEN"; [ $n = 1 ]'
[ "$(sed 's/.*] //' out | cut -d ' ' -f 1 | sort -u | wc -l)" -eq 2 ] || fail "two attempts, and not two run ids"
[ "$(sed 's/.*] //' out | cut -d ' ' -f 2 | sort -u | wc -l)" -eq 2 ] || fail "two attempts, and not two tokens"

# --- A signal to the launcher ends the wait before a restart.
rm -f tries
env --default-signal=TERM "$lockstep" launch --nproc-per-node 1 --max-restarts 50 bash -c 'echo x >> tries; exit 5' > out 2> err &
launcher=$!
for _ in $(seq "$(scaled 200)"); do [ "$(cat tries 2> /dev/null | wc -l)" -ge 6 ] && break; sleep 0.05; done
start=$(now)
kill -TERM $launcher
code=0; wait $launcher || code=$?
[ $code -eq 143 ] || fail "a signal while it waits ends with $code"
[ $(($(now) - start)) -lt "$(scaled 1000)" ] || fail "a signal did not end the wait"

# --- Rank 0 decides from where a run continues: the other ranks may have a disk of their own.
cat > stages.yml <<'YAML'
model: [Flatten, {Linear: {out_features: 3}}]
criterion: CrossEntropyLoss
optimizer: {SGD: {lr: 0.1}}
loaders:
  train: {dataset: {_target_: Noise, samples: 64, shape: [2, 4], classes: 3, seed: 1}, batch_size: 8, shuffle: true}
stages: {one: {num_epochs: 2}, two: {num_epochs: 3}}
YAML
"$lockstep" run -C stages.yml --logdir straight --ddp --workers 2 > out 2> err || fail "two stages do not train"
want=$(hash_of straight/two)
# on_two_disks OVERRIDES...
on_two_disks() {
  timeout "$(scaled 60)" "$lockstep" launch --nproc-per-node 2 bash -c \
    '"$0" run -C stages.yml --ddp --autoresume last --logdir "disk$RANK" "$@"' "$lockstep" "$@" > out 2> err ||
    fail "two ranks with a disk each do not train: $*"
}
on_two_disks 'stages={one: {num_epochs: 1}}'
on_two_disks 'stages={one: {num_epochs: 2}}'
on_two_disks stages.two.num_epochs=1
on_two_disks
[ "$(hash_of disk0/two)" = "$want" ] || fail "continued by two ranks: $(hash_of disk0/two), expected $want"
[ ! -e disk1/one/checkpoints ] || fail "rank 1 has checkpoints"

# --- --baselogdir: the ranks have one folder. A run that may be started again would get another one each time.
timeout "$(scaled 60)" "$lockstep" launch --nproc-per-node 2 "$lockstep" run -C stages.yml --ddp --baselogdir base > out 2> err ||
  fail "--baselogdir under the launcher"
[ "$(ls base | wc -l)" -eq 1 ] || fail "two ranks, and not one folder: $(ls base)"
code=0
"$lockstep" launch --nproc-per-node 2 --max-restarts 5 "$lockstep" run -C stages.yml --ddp --baselogdir base > out 2> err || code=$?
[ $code -eq 2 ] || fail "--baselogdir with restarts ends with $code"
grep -q -- '--baselogdir: .*; expected --logdir' out err || fail "it does not say what to use instead of --baselogdir"
[ "$(ls base | wc -l)" -eq 1 ] || fail "a refused run has made a folder"
echo "restarts.sh: all as expected"
