#!/bin/sh
# plan.sh: memory of rank 0 as `tutti plan` says it, and as a run takes it, for some layouts, in Markdown.
#
#     bench/plan.sh [TUTTI]     TUTTI: the program; default build/tutti
#
# The runs are short: what needs most is there after a step, an evaluation and a checkpoint. MiB; peak_memory of summary.json.
set -eu
cd "$(dirname "$0")/.."
tutti=${1:-build/tutti}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

field() { # NAME FILE: the number of a JSON member
    sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$2" | head -n 1
}

row() { # RANKS KEYS...
    ranks=$1
    shift
    rm -rf "$folder/run"
    "$tutti" plan --ranks "$ranks" --json "$folder/plan.json" --step-ms 1 --local-gbps 1 --local-us 1 "$@" >"$folder/out" 2>&1 &&
        "$tutti" train -n "$ranks" --run-dir "$folder/run" --progress quiet "$@" >"$folder/out" 2>&1 ||
        { echo "plan.sh: $*:" >&2 && cat "$folder/out" >&2 && status=1 && return; }
    planned=$(field planned_memory "$folder/plan.json")
    itself=$(field planned_memory "$folder/run/summary.json")
    measured=$(field peak_memory "$folder/run/summary.json")
    echo "$planned $itself $measured" | awk -v ranks="$ranks" -v keys="$*" '{
        printf "| %s | %s | %.1f | %.1f | %.1f | %.3f |\n", keys, ranks, $1 / 1048576, $2 / 1048576, $3 / 1048576, $1 / $3 }'
}

echo "| keys | ranks | planned | planned by the run | measured | planned / measured |"
echo "|---|---|---|---|---|---|"
images="--data synthetic"
text="--data shakespeare --eval-samples 8"
small="--layers 6 --width 512 --heads 8 --context 128 --batch-size 4"
row 1 --model mlp --max-steps 60
row 2 --model mini_resnet --max-steps 60
row 4 --model mini_resnet --max-steps 60 --optimizer adamw --zero 1
row 2 --model mini_resnet --max-steps 20 --shards 4
row 1 --model resnet18 $images --batch-size 16 --max-steps 3
row 2 --model resnet18 $images --batch-size 16 --max-steps 3 --recompute
row 1 --model vit $images --batch-size 16 --max-steps 3
row 2 --model gpt2 $text --layers 4 --width 256 --heads 4 --context 128 --grad-accumulation 2 --max-steps 3
row 1 --model gpt2 $text --layers 12 --width 768 --heads 12 --context 128 --vocab 50257 --batch-size 2 --max-steps 2
row 4 --model llama $text --max-steps 3
for ranks in 2 4; do
    for zero in 1 2 3; do
        row $ranks --model resnet18 $images --batch-size 16 --max-steps 3 --optimizer adamw --zero $zero
        row $ranks --model gpt2 $text $small --max-steps 3 --zero $zero
    done
    [ $ranks = 2 ] || for zero in 1 3; do
        row $ranks --model gpt2 $text $small --max-steps 3 --zero $zero --zero-ranks 2
    done
    row $ranks --model gpt2 $text $small --max-steps 3 --tensor 2
    row $ranks --model gpt2 $text $small --max-steps 3 --tensor $ranks --sequence-parallel
done
for schedule in 1f1b gpipe; do
    row 2 --model gpt2 $text $small --max-steps 3 --pipeline 2 --pipeline-schedule $schedule
    row 4 --model gpt2 $text $small --max-steps 3 --pipeline 4 --pipeline-schedule $schedule
    row 4 --model gpt2 $text $small --max-steps 3 --pipeline 2 --tensor 2 --pipeline-schedule $schedule
done
row 4 --model gpt2 $text $small --max-steps 3 --pipeline 2 --zero 1
row 2 --model resnet18 $images --batch-size 16 --max-steps 3 --pipeline 2
row 2 --model gpt2 $text --layers 12 --width 768 --heads 12 --context 128 --vocab 50257 --batch-size 2 --max-steps 2 --zero 2
row 2 --model gpt2 $text --layers 12 --width 768 --heads 12 --context 128 --vocab 50257 --batch-size 2 --max-steps 2 --zero 3
exit $status
