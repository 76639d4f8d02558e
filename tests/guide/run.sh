#!/usr/bin/env bash
# usage: run.sh PROGRAM
# Runs a program of the guide in a new folder, and shows its output if it fails.
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
code=0
timeout --kill-after=5 60 "$program" > out 2>&1 || code=$?
[ $code -eq 0 ] || { tail -n 40 out >&2; echo "run.sh: $program ends with $code" >&2; exit 1; }
