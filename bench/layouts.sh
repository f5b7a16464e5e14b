#!/usr/bin/env bash
# layouts.sh -- the same training by different layouts: one row, one parameter_digest and the mean loss for each. Rows of the same model
# and law have the same digest, or the script fails.   SPDX-License-Identifier: MIT
#   bench/layouts.sh [MODEL...]     gpt2, resnet18 (default: both); LAYOUT_STEPS: steps of each (default 8); TUTTI: the command
. "$(dirname "$0")/lib.sh"

# Dropout, AdamW, clipping that limits every step, accumulation.
steps=${LAYOUT_STEPS:-8}
common="--threads 1 --optimizer adamw --lr 0.002 --clip-grad-norm 0.3 --grad-accumulation 2 --dropout 0.1 --epochs 1 --max-steps $steps --eval-every 0 --progress quiet"
declare -A keys=(
    [gpt2]="--model gpt2 --data shakespeare --layers 4 --heads 4 --width 32 --context 32 --batch-size 2 --sample-tokens 0 $common"
    [resnet18]="--model resnet18 --data digits --batch-size 4 $common"
)

declare -A digest_of
different=0
row() { # MODEL LAW RANKS FLAGS...: rows of one model and LAW, which names what the bits may depend on, have one digest
    local model=$1 law=$2 ranks=$3 digest loss same=yes
    rm -rf "$work/run"
    # shellcheck disable=SC2086 # flags
    "$TUTTI" train -n "$ranks" ${keys[$model]} "${@:4}" --run-dir "$work/run" >"$work/out" 2>&1 || cat "$work/out" >&2
    digest=$(sed -n 's/.*"parameter_digest": "\([^"]*\)".*/\1/p' "$work/run/summary.json" || true)
    : "${digest_of[$model $law]:=$digest}"
    if [ -z "$digest" ] || [ "$digest" != "${digest_of[$model $law]}" ]; then
        same=NO different=1
    fi
    loss=$(sed -n 's/.*"train_loss": \([^,]*\),.*/\1/p' "$work/run/summary.json" || true)
    printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$model" "$law" "$ranks" "${*:4}" "${loss:-}" "${digest:-failed}" "$same"
}

echo '| model | law | ranks | layout | train_loss | parameter_digest | as the first of its law |'
echo '|---|---|---|---|---|---|---|'
for model in ${*:-gpt2 resnet18}; do
    for zero in 0 1 2 3; do
        for ranks in 1 2 3 4; do
            row "$model" "4 shards" $ranks --shards 4 --zero $zero
        done
        [ $zero = 0 ] || row "$model" "4 shards" 3 --shards 4 --zero $zero --shard-copies 2
    done
    for ranks in 2 3 4; do # a batch for each rank: the bits are those of that number of ranks
        for zero in 0 1 2 3; do
            row "$model" "$ranks batches" $ranks --zero $zero
        done
    done
    for zero in 1 2 3; do # two replicas of two ranks
        row "$model" "4 batches" 4 --zero $zero --zero-ranks 2
    done
    row "$model" "1 batch" 1
    for ranks in 2 4; do # stages of one model
        for schedule in 1f1b gpipe zero_bubble; do
            row "$model" "1 batch" $ranks --pipeline $ranks --pipeline-schedule $schedule
        done
    done
    row "$model" "1 batch" 2 --pipeline 2 --pipeline-schedule interleaved
    [ "$model" = gpt2 ] || row "$model" "1 batch" 4 --pipeline 4 --pipeline-schedule interleaved # gpt2 has 6 blocks here, not 8
    for keys in "" --sequence-parallel; do # layers divided, with sums of four or two parts whatever their ranks
        [ "$model" = gpt2 ] || continue
        for ranks in 1 2 4; do
            row "$model" "1 batch, 4 parts$keys" $ranks --tensor $ranks --tensor-parts 4 $keys
        done
        row "$model" "1 batch, 4 parts$keys" 4 --tensor 2 --pipeline 2 --tensor-parts 4 $keys
        for zero in 0 1 2 3; do
            row "$model" "2 batches, 2 parts$keys" 4 --tensor 2 --tensor-parts 2 --zero $zero $keys
        done
        row "$model" "2 batches, 2 parts$keys" 2 --tensor-parts 2 $keys
    done
    for zero in 0 1 2; do # two pipelines
        row "$model" "2 batches" 4 --pipeline 2 --zero $zero
    done
    [ "$model" = gpt2 ] || continue # resnets have no plan of names
    row "$model" "tensor 2, 1 batch" 2 --tensor 2
    row "$model" "tensor 2, 1 batch" 4 --tensor 2 --pipeline 2
    row "$model" "tensor 4, 1 batch" 4 --tensor 4
    row "$model" "tensor 2, 2 batches" 4 --tensor 2
    for zero in 0 1 2; do
        row "$model" "tensor 2, 2 batches" 8 --tensor 2 --pipeline 2 --zero $zero
    done
done
exit $different
