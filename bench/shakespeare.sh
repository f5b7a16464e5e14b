#!/usr/bin/env bash
# shakespeare.sh -- nanoGPT's recipe for CPUs on Tiny Shakespeare (2,000 steps), beside the same in PyTorch: the test loss against the seconds
# of training, alternating.   SPDX-License-Identifier: MIT
#   bench/shakespeare.sh [ROUNDS] [THREADS] [STEPS]     PYTHON: an interpreter with torch (default python3); TUTTI: the command
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-1} threads=${2:-1} steps=${3:-2000}
tutti=${TUTTI:-build/tutti} python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for round in $(seq "$rounds"); do
    echo "tutti, round $round: steps, seconds of training, test loss"
    "$tutti" train --model gpt2 --data shakespeare --max-steps "$steps" --eval-steps 250 --log-every 50 --sample-tokens 0 \
        --threads "$threads" --progress quiet --run-dir "$work/run" --checkpoint-every 1000000
    # A line of metrics has the rate of 50 steps of 768 tokens.
    sed -n 's/^{"step": \([0-9]*\),.*"tokens_per_s": \([0-9.]*\),.*/step \1 \2/p; s/^{"eval": .*"val_loss": \([0-9.]*\),.*"step": \([0-9]*\)}}/eval \2 \1/p' \
        "$work/run/metrics.jsonl" | awk '$1 == "step" { t += ($2 - before) * 768 / $3; before = $2 } $1 == "eval" { printf "%d %.2f %.4f\n", $2, t, $3 }'
    { time -p "$tutti" train --model gpt2 --data shakespeare --max-steps "$steps" --eval-every 0 --threads "$threads" --progress quiet \
        --run-dir "$work/run" --checkpoint-every 1000000; } 2>&1 | awk '{ t[$1] = $2 } END { printf "CPU seconds of training: %.2f\n", t["user"] + t["sys"] }'
    for how in "" --compile; do
        echo "PyTorch $how, round $round: the same, and CPU seconds"
        "$python" bench/peer/pytorch_shakespeare.py --threads "$threads" --steps "$steps" $how || echo "failed"
    done
done
