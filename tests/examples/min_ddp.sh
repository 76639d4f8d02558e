#!/usr/bin/env bash
# The min_ddp example: checks its lines, recomputes its totals, and compares the totals of different
# numbers of workers.
# usage: min_ddp.sh PATH_TO_MIN_DDP
set -euo pipefail
min_ddp=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt err.txt >&2; exit 1; }
run() { "$min_ddp" "$@" > out.txt 2> err.txt || fail "$* : exit $?"; }

# Recomputes every total from the blocks above it: samples and hits add up, and the loss is the mean
# weighted by samples.
check_totals() {
  awk -v want="$1" '
    $1 == "Loss:" { loss = $2 }
    $1 == "Acc:" { split($3, f, /[(\/)]/); hits += f[2]; n += f[3]; sum += loss * f[3]; blocks++ }
    $1 == "Total" {
      split($5, f, /[(\/)]/)
      if (f[2] != hits || f[3] != n) { print "line " NR ": " $5 ", the blocks have " hits "/" n; bad = 1 }
      if (($4 - hits / n) ^ 2 > 1e-8) { print "line " NR ": accuracy " $4 ", expected " hits / n; bad = 1 }
      if (($8 - sum / n) ^ 2 > 1e-8) { print "line " NR ": loss " $8 ", expected " sum / n; bad = 1 }
      samples += n; totals++; hits = n = sum = 0
    }
    END {
      if (samples != want) { print samples " samples in the totals, expected " want; bad = 1 }
      exit bad
    }' out.txt > why.txt || fail "$(cat why.txt)"
}

run --workers 2
head -6 out.txt | diff - <(cat <<'END'
epochs      : 2
batch_size  : 8
n_classes   : 4
data_size   : 32
hidden_dim  : 32
workers     : 2
END
) || fail "the arguments are not as expected"
grep -qx -- '------- Epoch 1 - rank 0' out.txt || fail "no line for epoch 1"
grep -qx -- '------- Epoch 2 - rank 0' out.txt || fail "no line for epoch 2"
[ "$(grep -c '^-------' out.txt)" -eq 2 ] || fail "expected one line per epoch"
[ "$(grep -c '^Total - acc: [01]\.[0-9]\{4\} ([0-9]*/16) - loss: [0-9]\.[0-9]\{4\}$' out.txt)" -eq 4 ] ||
  fail "expected 4 totals of 16 samples"
# After the arguments, each epoch has its line, and then twice two blocks and a total. The lines of a
# block stay together.
block=$'Device:\tcpu\n\tInput: \ttorch.Size([8, 16])\n\tLoss:\n\tAcc:'
want=$(for _ in 1 2; do
  echo "-------"
  for _ in 1 2; do echo "$block"; echo "$block"; echo "Total"; done
done)
got=$(tail -n +7 out.txt | sed -E 's/^(-------|Total|\tLoss:|\tAcc:).*/\1/')
[ "$got" = "$want" ] || fail "the blocks are not as expected"
check_totals 64

# The global batches are the same for any number of workers, so the totals are, except for rounding.
totals() { grep '^Total' out.txt; }
for data in 32 33 50; do
  for pair in 1:16 2:8 4:4; do
    run --workers "${pair%:*}" --batch-size "${pair#*:}" --data-size "$data" --epochs 3
    check_totals $((3 * data))
    totals > "totals.$pair"
  done
  for pair in 2:8 4:4; do
    paste -d' ' totals.1:16 "totals.$pair" |
      awk '$5 != $13 || ($8 - $16) ^ 2 > 4e-8 { print; bad = 1 } END { exit bad }' > why.txt ||
      fail "$data samples, workers:batch $pair: $(cat why.txt)"
  done
done

# More workers than samples.
run --workers 4 --data-size 3 --epochs 1
check_totals 3

refused() { if "$min_ddp" "${@:2}" > out.txt 2> err.txt; then fail "accepted: ${*:2}"; fi; grep -q -- "$1" err.txt || fail "expected '$1'"; }
refused 'workers' --workers 0
refused 'batch_size' --batch-size 0
refused 'data-size' --data-size 0
echo "min_ddp: all as expected"
