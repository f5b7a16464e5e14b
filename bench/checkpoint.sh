#!/bin/bash
# The cost of a checkpoint during training: MiniResNet with momentum (22 MB per checkpoint), 2 ranks, batch 32 each.
# SPDX-License-Identifier: MIT
#
#   bench/checkpoint.sh [ROUNDS [DIR]]     DIR: where the run folder is, on the file system to be measured
#
# stall: how long rank 0 waits at a checkpoint; slower: how much longer a whole run takes with a checkpoint each 10 steps than with
# none, per checkpoint (writing needs a core too); both in units of a step's time. Modes alternate.
set -euo pipefail
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
rounds=${1:-3}
work=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/tutti-checkpoint-XXXXXX")
trap 'rm -rf "$work"' EXIT
steps=80 every=10

# number FILE KEY
number() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$1" | head -1; }
run() { # NAME ARGUMENTS...
    local name=$1
    shift
    "$tutti" train -n 2 --run-dir "$work/$name" --batch-size 32 --epochs 100 --max-steps $steps --eval-every 0 \
        --keep-checkpoints 0 --log-every 1000 "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
}
step_ms() { # FILE: the mean step of a run until this state or summary
    local t=0 key
    for key in compute_s communication_s wait_s data_s; do t="$t + $(number "$1" $key)"; done
    awk "BEGIN { print ($t) * 1000 / $2 }"
}
printf '%-11s %9s %9s %8s %9s\n' mode step_ms stall_ms stall_% slower_%
for ((i = 0; i < rounds; i++)); do
    rm -rf "$work"/*
    run none --checkpoint-every 1000000
    plain=$(step_ms "$work/none/summary.json" $steps)
    for mode in foreground background; do
        background=true
        [ $mode = background ] || background=false
        run $mode --checkpoint-every $every --checkpoint-background $background
        first=$work/$mode/checkpoints/step-00000020/state.json last=$work/$mode/checkpoints/step-000000$((steps - every))/state.json
        awk -v mode=$mode -v plain="$plain" -v steps=$steps -v every=$every \
            -v begin="$(number "$first" checkpoint_s)" -v end="$(number "$last" checkpoint_s)" \
            -v step="$(step_ms "$last" $((steps - every)))" 'BEGIN {
                n = (steps - every - 20) / every
                stall = 1000 * (end - begin) / n
                slower = (step - plain) * every + stall
                printf "%-11s %9.2f %9.2f %8.1f %9.1f\n", mode, step, stall, 100 * stall / plain, 100 * slower / plain }'
    done
done
