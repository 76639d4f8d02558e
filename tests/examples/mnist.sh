#!/usr/bin/env bash
# The mnist example as a user runs it: straight, resumed, killed and resumed, and with wrong input.
# usage: mnist.sh PATH_TO_MNIST
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
mnist=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
mnist() { "$mnist" --quiet "$@" > out.txt 2> err.txt; }
run() { mnist --batch-size 256 "$@"; }

run --epochs 2 --logdir straight || fail "straight run: $(cat err.txt)"
want=$(hash_of straight)
grep -q "weights $want" out.txt || fail "the hash is not printed"
grep -q 'valid (2/2) ' out.txt || fail "no line for the second validation"
for file in logs/train.csv logs/valid.csv logs/_epoch_.csv logs/hparams.yml checkpoints/best.pth \
            checkpoints/last.pth checkpoints/_metrics.json; do
  [ -s "straight/$file" ] || fail "$file is missing"
done

run --epochs 1 --logdir twice || fail "first epoch: $(cat err.txt)"
run --epochs 2 --logdir twice --resume last || fail "resumed: $(cat err.txt)"
[ "$(hash_of twice)" = "$want" ] || fail "resumed between epochs: $(hash_of twice), expected $want"
[ "$(wc -l < twice/logs/valid.csv)" -eq 3 ] || fail "valid.csv: $(cat twice/logs/valid.csv)"

# Mixed precision: one hash for any number of workers, and about the accuracy of fp32. One warning if the CPU has no
# instructions for bf16, or if LibTorch was built without oneDNN, which only the warning itself tells.
slow=1
if grep -qE '^(flags|Features)\b.*\b(avx512_bf16|amx_bf16|bf16|svebf16)\b' /proc/cpuinfo; then slow=0; fi
accuracy_of() { sed -nE 's/.*"accuracy01": *([0-9.]+).*/\1/p' "$1/summary.json" | tail -n 1; }
for precision in fp32 bf16; do
  for workers in 1 2; do
    run --epochs 2 --shards 2 --workers $workers --precision $precision --logdir $precision-$workers ||
      fail "$precision with $workers workers: $(cat err.txt)"
    want_slow=$slow
    if [ $precision = fp32 ]; then
      want_slow=0
    elif [ $slow -eq 0 ] && grep -q 'precision: bf16: .* without oneDNN' err.txt; then
      want_slow=1
    fi
    [ "$(grep -c 'precision: bf16:' err.txt)" -eq $want_slow ] ||
      fail "$precision: expected $want_slow warnings about slow bf16, got: $(cat err.txt)"
  done
  [ "$(hash_of $precision-1)" = "$(hash_of $precision-2)" ] || fail "$precision: 1 and 2 workers differ"
done
[ "$(hash_of bf16-1)" != "$(hash_of fp32-1)" ] || fail "bf16 has the weights of fp32"
awk -v a="$(accuracy_of fp32-1)" -v b="$(accuracy_of bf16-1)" 'BEGIN { exit !(a > 0.7 && b > a - 0.01) }' ||
  fail "accuracy $(accuracy_of bf16-1) with bf16, $(accuracy_of fp32-1) with fp32"

# Killed without warning, inside an epoch.
kill_when_saved killed "$mnist" --batch-size 256 --quiet --epochs 2 --logdir killed --save-every 10 ||
  fail "the run was over before it could be killed: $(cat err.txt)"
run --epochs 2 --logdir killed --resume last || fail "after kill -9: $(cat err.txt)"
[ "$(hash_of killed)" = "$want" ] || fail "after kill -9: $(hash_of killed), expected $want"
[ -z "$(find killed -name '*.tmp.*')" ] || fail "left behind: $(find killed -name '*.tmp.*')"

# Ended by a signal: the program says what was saved and how to resume.
rm -f out.txt
"$mnist" --batch-size 256 --quiet --epochs 50 --logdir ended > out.txt 2> err.txt &
pid=$!
for _ in $(seq 6000); do grep -q 'train (1/' out.txt && break; sleep 0.01; done
kill -TERM $pid
code=0
wait $pid 2> /dev/null || code=$?
[ "$code" -eq 143 ] || fail "ended by SIGTERM with code $code: $(cat err.txt)"
grep -q 'Interrupted by SIGTERM in epoch .*; the last checkpoint is ended/checkpoints/last.pth' out.txt ||
  fail "does not say what was saved: $(tail -n 3 out.txt)"
grep -q 'To go on from there: --resume last' out.txt || fail "does not say how to go on: $(tail -n 3 out.txt)"

# On a terminal there is a bar for each pass, whose last line has numbers. No line is wider than the window.
if have_script "the output on a terminal"; then
  LC_ALL=C script -qec "stty cols 80; $mnist --epochs 1 --batch-size 256" /dev/null > terminal.txt < /dev/null
  tr '\r' '\n' < terminal.txt | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' > screen.txt
  grep -q 'Epoch (valid): 100%' screen.txt || fail "no bar on a terminal: $(cat screen.txt)"
  if grep -i 'nan' screen.txt; then fail "nan on the terminal"; fi
  if grep 'Epoch (' screen.txt | grep -E '^.{81}'; then fail "a bar wider than the window"; fi

  # A warning of rank 0 while the bar is shown: two handlers print it through the same console. After that the
  # metrics refuse NaN, so the run must end with their error. It must not hang.
  code=0
  diverging="$mnist --workers 2 --epochs 1 --batch-size 256 --lr 1e38"
  timeout -k 5 "$(scaled 60)" script -qec "stty cols 80; $diverging" /dev/null \
    > terminal.txt < /dev/null || code=$?
  tr '\r' '\n' < terminal.txt | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' > screen.txt
  [ "$code" -eq 1 ] || fail "a warning above the bar of two workers: exit $code (124: it hangs): $(cat screen.txt)"
  grep -q '^lockstep: warning: .* is -\?nan, and the run goes on' screen.txt || fail "no warning: $(cat screen.txt)"
  grep -q '^mnist: .* is NaN in sample' screen.txt || fail "no error after the warning: $(cat screen.txt)"
fi

refused() { if mnist "${@:2}"; then fail "accepted: ${*:2}"; fi; grep -q -- "$1" err.txt || fail "expected '$1' in: $(cat err.txt)"; }
refused 'nowhere' --root nowhere
refused 'nothing.pth' --resume nothing.pth
refused 'batch_size' --batch-size 0
refused 'num_epochs' --epochs 0
refused 'model' --model transformer
refused 'save-every requires --logdir' --save-every 5
echo "mnist: all as expected"
