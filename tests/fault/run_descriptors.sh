#!/bin/bash
# Ranks whose limit of open files is too low report it and exit before their time limit; with a few more they work.
# timeout: 120
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TUTTI_TIMEOUT_S=20
told=0
for n in 7 8 9 10 11 12 13 14 16 20 40; do
    result=0
    timeout 60 "$TUTTI" run -n 3 -- bash -c "ulimit -n $n; exec \"\$TUTTI\" bench barrier" >"$work/out" 2>&1 || result=$?
    [ $result != 124 ] || { echo "with $n descriptors it hung:"; cat "$work/out"; exit 1; }
    [ $result = 0 ] || ! grep -qiE 'ulimit -n|too many open files|descriptor' "$work/out" || told=$((told + 1))
done
[ $result = 0 ] || { echo "40 descriptors are not enough:"; cat "$work/out"; exit 1; }
[ $told -ge 3 ] || { echo "only $told of the failures spoke of descriptors:"; cat "$work/out"; exit 1; }
