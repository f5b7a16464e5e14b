#!/bin/bash
# digests.sh: what the record of digests costs (the key trace_digests), in CPU time, in turn: A B C D A B C D.
#
#   bench/digests.sh                              mini_resnet on the digits, a small GPT-2, an MLP
#   CIFAR=FOLDER ROUNDS=3 bench/digests.sh        also mini_resnet and resnet18 on CIFAR-10 of that folder (cifar10's binary files)
#   NAMES="cifar resnet18" ...                    only these
#
# One rank of one thread trains without a record, with one of each step, with 2% and with auto. CPU is the time of the whole process, user
# and system; the least of the rounds, since what other programs do to caches and memory only adds. "A record, ms" is the time that
# one of 2%'s records after the first takes, of TUTTI_LOG=debug, by the clock.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} CIFAR=${CIFAR:-}
declare -A arguments=(
    [digits]="--model mini_resnet --batch-size 64 --epochs 4"
    [gpt2]="--model gpt2 --data shakespeare --max-steps 100 --sample-tokens 0"
    [mlp]="--model mlp --epochs 200"
    [cifar]="--model mini_resnet --data cifar10 --data-dir $CIFAR --batch-size 64 --max-steps 33"
    [resnet18]="--model resnet18 --data cifar10 --data-dir $CIFAR --batch-size 32 --max-steps 33")
read -ra names <<<"${NAMES:-digits gpt2 mlp ${CIFAR:+cifar resnet18}}"
for name in "${names[@]}"; do
    [ "${arguments[$name]:-}" ] || { echo "digests.sh: NAMES: there is no $name; expected some of ${!arguments[*]}" >&2 && exit 2; }
done
records=(0 1 2% auto)

measure() { # NAME RECORD
    rm -rf "$work/run"
    # shellcheck disable=SC2086
    TIMEFORMAT='%U %S' && { time TUTTI_LOG=train:debug "$TUTTI" train ${arguments[$1]} --threads 1 --eval-every 0 --checkpoint-every 1000000 --progress quiet \
        --trace-digests "$2" --run-dir "$work/run" >"$work/out" 2>"$work/err"; } 2>"$work/time" || { cat "$work/err" >&2 && exit 1; }
    awk '{print $1 + $2}' "$work/time" >>"$work/$1.$2.cpu"
    sed -n 's/.*digests of step [0-9]* took \([0-9.]*\) ms.*/\1/p' "$work/err" | tail -n +2 >>"$work/$1.$2.ms"
    sed -n 's/.*"steps": \([0-9]*\).*/\1/p' "$work/run/summary.json" >"$work/$1.steps"
    [ "$2" = 0 ] || du -k "$work/run/digests/rank-0.jsonl" | cut -f1 >"$work/$1.$2.kb"
    [ "$2" = 0 ] || grep -c '"lr":' "$work/run/digests/rank-0.jsonl" >"$work/$1.$2.records"
}
for _ in $(seq "$ROUNDS"); do
    for name in "${names[@]}"; do
        for record in "${records[@]}"; do measure "$name" "$record"; done
    done
done

least() { sort -n "$1" | head -n 1; }
echo "| \`tutti train\` | steps | CPU, s | with each step recorded | KiB | with 2% | records | a record, ms | with auto | records |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for name in "${names[@]}"; do
    off=$(least "$work/$name.0.cpu")
    row="| \`${arguments[$name]}\` | $(cat "$work/$name.steps") | $off |"
    for record in "${records[@]:1}"; do
        on=$(least "$work/$name.$record.cpu")
        row+=" $on ($(awk -v a="$on" -v b="$off" 'BEGIN {printf "%+.1f %%", 100 * (a / b - 1)}')) |"
        [ "$record" != 1 ] || row+=" $(cat "$work/$name.1.kb") |"
        [ "$record" = 1 ] || row+=" $(cat "$work/$name.$record.records") |"
        [ "$record" != 2% ] || row+=" $(median <"$work/$name.2%.ms") |"
    done
    echo "$row"
done
