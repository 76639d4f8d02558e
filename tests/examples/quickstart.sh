#!/usr/bin/env bash
# What `make quickstart` runs: it must learn, and say where everything is.
# usage: quickstart.sh PATH_TO_QUICKSTART
set -euo pipefail
quickstart=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; cat out.txt >&2; exit 1; }
"$quickstart" > out.txt 2>&1 || fail "exit $?"
accuracy=$(sed -n 's/^Validation accuracy: //p' out.txt)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.87) }' || fail "accuracy '$accuracy', expected 0.87 or more"
grep -q 'logs/quickstart/checkpoints/best.pth' out.txt || fail "does not say where the best checkpoint is"
grep -q '^Logs: logs/quickstart$' out.txt || fail "does not say where the logs are"
[ -s logs/quickstart/checkpoints/best.pth ] || fail "there is no best checkpoint"
echo "quickstart: accuracy $accuracy"
