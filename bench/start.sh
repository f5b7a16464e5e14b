#!/bin/bash
# start.sh: how fast a job starts and ends, Tutti compared with torchrun, in one run.
#
#   bench/start.sh                two workers of /bin/true, and two ranks until the end of their first all_reduce
#   PYTHON=python3 ROUNDS=10 FIRST_ROUNDS=20 RANKS=2 bench/start.sh
#
# A round is A B; figures are medians, of wall-clock milliseconds. PYTHON must be able to import torch, and torchrun be next to
# it; if it is missing, only Tutti is measured. The last columns are the least and the largest of the rounds.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-10} FIRST_ROUNDS=${FIRST_ROUNDS:-20} RANKS=${RANKS:-2}
build=$(dirname "$TUTTI")
torchrun=$(dirname "$(command -v "$PYTHON" || echo none)")/torchrun
[ -x "$torchrun" ] && "$PYTHON" -c 'import torch' 2>/dev/null || {
    echo "start.sh: no torchrun beside $PYTHON, or no torch in it: ours only"
    torchrun=
}

wall() { # COMMAND...: milliseconds
    local begin=$EPOCHREALTIME
    "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN {print (end - begin) * 1e3}'
}
first() { # COMMAND...: milliseconds until the first all_reduce was done
    BEGIN=$EPOCHREALTIME "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*first all_reduce after \([0-9.]*\) ms.*/\1/p' "$work/out"
}
torch() { "$torchrun" --standalone --nproc-per-node "$RANKS" "$@"; }
row() { # WHAT NAME UNIT-RATIO-TO
    local ours theirs
    ours=$(median <"$work/$2") theirs=-
    [ -z "$torchrun" ] || theirs=$(median <"$work/$2-torch")
    printf '| %s | %.1f (%.1f to %.1f) | %s | %s |\n' "$1" "$ours" "$(sort -g "$work/$2" | head -1)" \
        "$(sort -g "$work/$2" | tail -1)" "$theirs" "$(ratio "$theirs" "$ours")"
}

wall "$TUTTI" run -n "$RANKS" /bin/true >/dev/null # warms the page cache
[ -z "$torchrun" ] || wall torch --no-python /bin/true >/dev/null
for _ in $(seq "$ROUNDS"); do
    wall "$TUTTI" run -n "$RANKS" /bin/true >>"$work/true"
    [ -z "$torchrun" ] || wall torch --no-python /bin/true >>"$work/true-torch"
done
first "$TUTTI" run -n "$RANKS" "$build/bench/bench_comm_first_all_reduce" >/dev/null
for _ in $(seq "$FIRST_ROUNDS"); do
    first "$TUTTI" run -n "$RANKS" "$build/bench/bench_comm_first_all_reduce" >>"$work/first"
    [ -z "$torchrun" ] || first torch bench/peer/pytorch_first_all_reduce.py >>"$work/first-torch"
done
echo
echo "$RANKS ranks, wall-clock ms, medians of $ROUNDS and $FIRST_ROUNDS rounds A B, ours with the least and the largest"
echo
echo "| | tutti run | torchrun | torchrun / ours |"
echo "|---|---|---|---|"
row "$RANKS workers of /bin/true, begin to end" true
row "begin to the first finished all_reduce (PyTorch: Gloo)" first
