#!/usr/bin/env bash
# pipeline.sh -- steps of gpt2 in pipelines, beside torch.distributed.pipelining, in turn.   SPDX-License-Identifier: MIT
#   PYTHON=venv/bin/python bench/pipeline.sh [STAGES]    2 stages, of one thread each; ROUNDS=3; MICRO_BATCHES=8; without PYTHON: no peer
#
# 12 layers of 768, tokens are bytes, micro-batches of 4 x 64, AdamW. "plain" accumulates as many micro-batches on one rank; "data parallel"
# is that many ranks with those samples each: as fast as so many cores are at the same time. Waiting is what is missing of
# STAGES times the plain speed, or of the data-parallel speed, to be compared with the bubble (P - 1) / (v M + P - 1), zero_bubble (P - 1) / (3 M + P - 1).
. "$(dirname "$0")/lib.sh"
stages=${1:-2} micro=${MICRO_BATCHES:-8} ROUNDS=${ROUNDS:-3}
mkdir "$work/data"
cat docs/*.md | head -c 300000 >"$work/data/input.txt"
keys="--data text --data-dir $work/data --tokenizer bytes --model gpt2 --layers 12 --width 768 --heads 12 --context 64 --batch-size 4 --grad-accumulation $micro
 --max-steps 8 --optimizer adamw --eval-every 0 --threads 1 --sample-tokens 0 --log-every 1 --checkpoint-every 1000 --progress quiet"

train() { # NAME FLAGS...: the median of the steps' tokens/s, but the first two, to NAME.rates
    rm -rf "$work/run"
    # shellcheck disable=SC2086 # flags
    timeout 500 "$TUTTI" train $keys "${@:2}" --run-dir "$work/run" >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2 && return 1; }
    sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n +3 | median >>"$work/$1.rates"
    sed -n 's/.*"parameter_digest": "\([^"]*\)".*/\1/p' "$work/run/summary.json" >>"$work/$1.digests"
}
peer() { # NAME RANKS ARGUMENTS...
    local run=()
    [ "$2" = 1 ] || run=("$TUTTI" run -n "$2")
    OMP_NUM_THREADS=1 timeout 580 "${run[@]}" "$PYTHON" bench/peer/pytorch_pipeline.py M="$micro" "${@:3}" 2>"$work/log" |
        sed -n 's/.*\(^\| \)\([0-9.]*\) tok.s.*/\2/p' >>"$work/$1.rates" || tail -n 3 "$work/log" >&2
}
schedules="gpipe 1f1b interleaved zero_bubble"
declare -A chunks=([interleaved]=2)
for _ in $(seq "$ROUNDS"); do
    train plain
    train data -n "$stages"
    for kind in $schedules; do
        train "$kind" -n "$stages" --pipeline "$stages" --pipeline-schedule "$kind" --pipeline-chunks "${chunks[$kind]:-1}"
    done
    [ -z "${PYTHON:-}" ] || {
        peer torch_plain 1
        peer torch_gpipe "$stages" SCHEDULE=GPipe
        peer torch_1f1b "$stages" SCHEDULE=1F1B
    }
done
rate() { [ -s "$work/$1.rates" ] && median <"$work/$1.rates" || echo -; }
one=$(rate plain) all=$(rate data)
echo "| $stages stages, $micro micro-batches | tok/s | waiting, of plain | of data parallel | bubble | PyTorch tok/s | ratio | parameter_digest |"
echo '|---|---|---|---|---|---|---|---|'
for kind in plain data $schedules; do
    awk -v kind="$kind" -v a="$(rate "$kind")" -v b="$(rate "torch_$kind")" -v one="$one" -v all="$all" -v P="$stages" -v M="$micro" \
        -v digest="$(sort -u "$work/$kind.digests" | tr '\n' ' ')" 'BEGIN {
        m = kind == "interleaved" ? 2 * M : kind == "zero_bubble" ? 3 * M : M
        pipe = kind != "plain" && kind != "data"
        printf "| %s | %.0f | %s | %s | %s | %s | %s | %s |\n", kind, a, kind == "plain" ? "" : sprintf("%.3f", 1 - a / one / P),
            pipe ? sprintf("%.3f", 1 - a / all) : "", pipe ? sprintf("%.3f", (P - 1) / (m + P - 1)) : "", b, b == "-" ? "-" : sprintf("%.2f", a / b), digest}'
done
