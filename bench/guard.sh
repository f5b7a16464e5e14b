#!/bin/bash
# guard.sh: the guard against silent corruption: what it costs, and what it finds of bits that are flipped.
#
#   bench/guard.sh                   both tables
#   ONLY='cost|flips' FLIPS=100 STEPS=60 N=2 bench/guard.sh
#
# cost: N ranks, --guard auto; K, the number of checks, and their share of the steps' time are what the run says of itself (guard:info);
# the last column is the processor time of the run beside one with --no-guard (medians of ROUNDS). flips: 3 workers, one of which flips a
# bit in a twentieth of its steps, with a checkpoint every 10, until FLIPS were flipped of each kind; the weights must be the undisturbed
# ones.
. "$(dirname "$0")/lib.sh"
ONLY=${ONLY:-.} FLIPS=${FLIPS:-100} STEPS=${STEPS:-60} N=${N:-2} ROUNDS=${ROUNDS:-3}
export TUTTI_LOG=warn,guard:info

train() { # NAME FLAGS...: its output in $work/NAME.out, its processor seconds in $work/NAME.cpu
    rm -rf "${work:?}/$1"
    TIMEFORMAT='%U %S'
    { time timeout 900 "$TUTTI" train --eval-every 0 --threads 1 --progress quiet --log-every 100 --run-dir "$work/$1" "${@:2}" >"$work/$1.out" 2>&1; } \
        2>"$work/time" || { cat "$work/$1.out" >&2 && exit 1; }
    awk '{print $1 + $2}' "$work/time" >>"$work/$1.cpu"
}

# ---- Cost

cost() { # NAME FLAGS...
    local round
    for ((round = 0; round < ROUNDS; round++)); do
        train "$1.on" -n "$N" --max-steps "$STEPS" --checkpoint-every 1000000 "${@:2}"
        train "$1.off" -n "$N" --max-steps "$STEPS" --checkpoint-every 1000000 --no-guard "${@:2}"
    done
    sed -n "s/.*guard: \([0-9]*\) checks in \([0-9]*\) steps, every \([0-9]*\), \([0-9.e+-]*\) ms each: \([0-9.e+-]*\) %.*/\1 \2 \3 \4 \5/p" "$work/$1.on.out" |
        while read -r checks steps every each share; do
            printf '| %s | %s | %s | %s | %s | %s |\n' "$1" "$every" "$checks in $steps" "$each" "$share" \
                "$(ratio "$(median <"$work/$1.on.cpu")" "$(median <"$work/$1.off.cpu")")"
        done
}
if [[ cost =~ $ONLY ]]; then
    printf '| | K | checks | ms each | %% of the time | processor time, with / without |\n|---|---|---|---|---|---|\n'
    cost mlp --model mlp --data digits --batch-size 64 --epochs 1000
    cost mini_resnet --model mini_resnet --data synthetic --augment off
    cost "mini_resnet, adamw" --model mini_resnet --data synthetic --augment off --optimizer adamw
    cost resnet18 --model resnet18 --data synthetic --augment off
    cost gpt2 --model gpt2 --data shakespeare --layers 4 --width 256 --heads 4 --context 64
fi

# ---- Flips

digest() { sed -n 's/.*"parameter_digest": *"\([0-9a-f]*\)".*/\1/p' "$work/$1/summary.json"; }
flips() { # KIND GUARD FLAGS...: a row
    local kind=$1 guard=$2 seed=0 flipped=0 same=0
    : >"$work/events"
    while [ "$flipped" -lt "$FLIPS" ] && [ $seed -lt 200 ]; do
        seed=$((seed + 1))
        rm -rf "$work/flip"
        timeout 600 "$TUTTI" run -n 3 --max-restarts 100 --chaos "flip=0.05:$kind,keep=2,seed=$seed" "$TUTTI" train $keys --guard "$guard" "${@:3}" \
            --run-dir "$work/flip" >"$work/out" 2>&1 || { cat "$work/out" >&2 && exit 1; }
        # of whom the run folder says so: the launcher's rank, which by shards need not be the group's
        [ ! -e "$work/flip/guard.jsonl" ] || sed -n 's/.*"step":\([0-9]*\).*"worker":\([0-9]*\).*"found":"\(.*\)"}/found \1 \2 \3/p' "$work/flip/guard.jsonl" >>"$work/events"
        grep -E '^(\[[0-9]\] tutti warn chaos|\[[0-9]\] tutti train: (rank [0-9]+ \(host|replicas differ)|tutti run: (starting|rank [0-9]+ \(process [0-9]+\) ended))' "$work/out" >>"$work/events" || true
        echo end >>"$work/events"
        flipped=$(grep -c 'tutti warn chaos' "$work/events" || true)
        [ "$(digest flip)" = "$(digest "$whole")" ] && same=$((same + 1))
    done
    # A start of the workers ends with at most one message, of which lines of others may come first.
    awk -v kind="$kind" -v guard="$guard" -v same="$same" -v runs="$seed" -v title="${*:3}" '
        function number(word,  s) { s = $0; sub(".*" word " ", "", s); return s + 0 }
        function start(  i, late) {
            for (i = 1; i <= n; i++) {
                late = step - at[i] + !memory
                if (!step || late > guard) { # undone by rounding before anyone looked
                    gone++
                    continue
                }
                most = late > most ? late : most
                found[memory]++
                right += ((said, memory, rank) in told)
            }
            n = step = 0
            if (/^end/)
                delete told
        }
        /^found / { told[$2 + 0, !/ replicas differ$/, $3 + 0]; next }
        /warn chaos/ { flips++; at[++n] = number("training step"); rank = substr($1, 2) + 0; next } # the launcher'"'"'s rank
        /^tutti run|^end/ { start(); next }
        {
            memory = /changed in memory/
            said = number(memory ? "update of step" : "differ at step")
            step = said + memory
        }
        END {
            printf "| %s | %s%s | %d | %d | %d | %d | %d | %d | %d of %d |\n", kind, guard, title ? " " title : "", flips, found[1], found[0], right, gone,
                most, same, runs
        }' "$work/events"
}
if [[ flips =~ $ONLY ]]; then
    keys="--model mlp --data digits --max-steps $STEPS --eval-every 0 --threads 1 --progress quiet --checkpoint-every 10"
    train plain -n 3 $keys
    train shards -n 3 $keys --shards 6
    printf '\n| flipped in | K | flips | found in memory | by replicas | worker named rightly | gone before | steps until found, at most | same weights |\n|---|---|---|---|---|---|---|---|---|\n'
    whole=plain
    for kind in parameters state means; do
        for guard in 1 4; do
            flips $kind $guard
        done
    done
    whole=shards
    for kind in parameters state means; do
        flips $kind 1 --shards 6
    done
fi
