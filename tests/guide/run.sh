#!/usr/bin/env bash
# usage: run.sh EXECUTABLE PROGRAM
# Runs a program of the guide in a new folder, and shows its output if it fails.
set -euo pipefail
executable=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
code=0
timeout --kill-after=5 60 "$executable" "$program" > out 2>&1 || code=$?
[ $code -eq 0 ] || { tail -n 40 out >&2; echo "run.sh: $program ends with $code" >&2; exit 1; }
