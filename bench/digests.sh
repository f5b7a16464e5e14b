#!/bin/bash
# digests.sh: what the record of digests costs (the key trace_digests), in CPU time, in turn: A B C A B C.
#
#   bench/digests.sh                              mini_resnet on the digits, a small GPT-2, an MLP
#   CIFAR=FOLDER ROUNDS=3 bench/digests.sh        also mini_resnet on CIFAR-10 of that folder
#
# One rank of one thread trains without a record, with one of each step, and with auto. CPU is the time of the whole process, whose start
# is the same in all; "auto, a record" is the time that one of auto's records after the first takes, of TUTTI_LOG=debug, by the clock.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} CIFAR=${CIFAR:-}
names=(digits gpt2 mlp)
declare -A arguments=(
    [digits]="--model mini_resnet --batch-size 64 --epochs 4"
    [gpt2]="--model gpt2 --data shakespeare --max-steps 60 --sample-tokens 0"
    [mlp]="--model mlp --epochs 50"
    [cifar]="--model mini_resnet --data cifar10 --data-dir $CIFAR --batch-size 64 --max-steps 25")
[ -z "$CIFAR" ] || names+=(cifar)

measure() { # NAME RECORD
    rm -rf "$work/run"
    # shellcheck disable=SC2086
    TIMEFORMAT='%U %S' && { time TUTTI_LOG=train:debug "$TUTTI" train ${arguments[$1]} --threads 1 --eval-every 0 --checkpoint-every 1000000 --progress quiet \
        --trace-digests "$2" --run-dir "$work/run" >"$work/out" 2>"$work/err"; } 2>"$work/time" || { cat "$work/err" >&2 && exit 1; }
    awk '{print $1 + $2}' "$work/time" >>"$work/$1.$2.cpu"
    sed -n 's/.*digests of step [0-9]* took \([0-9.]*\) ms.*/\1/p' "$work/err" | tail -n +2 >>"$work/$1.$2.ms"
    sed -n 's/.*"steps": \([0-9]*\).*/\1/p' "$work/run/summary.json" >"$work/$1.steps"
    [ "$2" = 0 ] || du -k "$work/run/digests/rank-0.jsonl" | cut -f1 >"$work/$1.$2.kb"
}
for _ in $(seq "$ROUNDS"); do
    for name in "${names[@]}"; do
        for record in 0 1 auto; do measure "$name" $record; done
    done
done

echo "| \`tutti train\` | steps | CPU, s | with each step recorded | + % | KiB | with auto, s | auto, a record, ms | KiB |"
echo "|---|---|---|---|---|---|---|---|---|"
for name in "${names[@]}"; do
    off=$(median <"$work/$name.0.cpu") on=$(median <"$work/$name.1.cpu")
    echo "| \`${arguments[$name]}\` | $(cat "$work/$name.steps") | $off | $on |" \
        "$(awk -v a="$on" -v b="$off" 'BEGIN {printf "%.0f", 100 * (a / b - 1)}') | $(cat "$work/$name.1.kb") |" \
        "$(median <"$work/$name.auto.cpu") | $(median <"$work/$name.auto.ms") | $(cat "$work/$name.auto.kb") |"
done
