#!/usr/bin/env bash
# The examples and every program of the guide, on a GPU: a tensor of the CPU among those of the GPU would end them.
# usage: programs.sh LOCKSTEP MNIST GAN EXECUTABLE:PROGRAM...
set -euo pipefail
. "$(dirname "$0")/../support/shell.sh"
lockstep=$1 mnist=$2 gan=$3
shift 3
run=$(realpath "$(dirname "$0")/../guide/run.sh")
found=$("$lockstep" doctor | grep -E '^ok +GPUs ' || true)
if [ -z "$found" ] || grep -q ' none' <<<"$found"; then
  skip "programs on a GPU" "NOT RUN ON A GPU: lockstep doctor finds none that can be used"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
code=0
check() { "$@" > out 2>&1 || { tail -n 20 out >&2; echo "FAILED on a GPU: $*" >&2; code=1; }; }
check "$mnist" --workers 1 --epochs 1 --quiet
check "$gan" --workers 1 --epochs 2 --quiet
for pair in "$@"; do check "$run" "${pair%%:*}" "${pair#*:}"; done
exit $code
