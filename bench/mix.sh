#!/bin/bash
# mix.sh: which numbers of ranks and threads use a machine best: the same images per step, divided among more ranks of fewer threads.
#
#   bench/mix.sh                        all divisors of the number of cores
#   CORES=8 BATCH=64 MODEL=mini_resnet ROUNDS=3 bench/mix.sh        BATCH: images per step, of all ranks
#
# The batch per rank is BATCH / ranks: the computation is the same, and batch norm's statistics are those of such a training.
. "$(dirname "$0")/lib.sh"
CORES=${CORES:-$(nproc)} BATCH=${BATCH:-64} MODEL=${MODEL:-mini_resnet} ROUNDS=${ROUNDS:-3} ITERATIONS=${ITERATIONS:-10}

mixes=""
for ranks in $(seq "$CORES"); do
    [ $((CORES % ranks)) != 0 ] || [ $((BATCH % ranks)) != 0 ] || mixes+=" $ranks"
done
for _ in $(seq "$ROUNDS"); do
    for ranks in $mixes; do
        "$TUTTI" bench step -n "$ranks" --threads $((CORES / ranks)) --batch-size $((BATCH / ranks)) --model "$MODEL" --warmup 3 \
            --iterations "$ITERATIONS" --json "$work/rows.json" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
        sed 's/, "ops": .*//; s/.*"images_per_s": \([0-9.]*\).*"arena_bytes": \([0-9]*\).*/\1 \2/;t;d' "$work/rows.json" >>"$work/$ranks"
    done
done

echo "$MODEL, $BATCH images a step on $CORES cores, medians of $ROUNDS rounds"
echo
echo "| ranks x threads | images/s | activations of all ranks, MiB |"
echo "|---|---|---|"
best=0 best_mix=""
for ranks in $mixes; do
    images=$(cut -d' ' -f1 "$work/$ranks" | median)
    arena=$(awk -v n="$ranks" 'END { printf "%.0f", $2 * n / 1048576 }' "$work/$ranks")
    echo "| $ranks x $((CORES / ranks)) | $images | $arena |"
    awk "BEGIN { exit !($images > $best) }" && best=$images best_mix="-n $ranks --threads $((CORES / ranks))"
done
printf '\nadvice: tutti train %s\n' "$best_mix"
