#!/bin/bash
# cifar94.sh: 94 % on CIFAR-10: the recipe configs/cifar10-94.json, and the time of its steps beside the same in PyTorch.
#
#   DATA=DIR bench/cifar94.sh                               DIR: CIFAR-10's binary files, or what `tutti data pack` writes
#   DATA=DIR SEEDS="0 1 2 3 4" bench/cifar94.sh             whole runs, one a seed; SEEDS="": none
#   DATA=DIR SEEDS= STEPS=6 ROUNDS=3 PYTHON=python3 bench/cifar94.sh      steps alone, in turn with PyTorch's: A B A B
#   AIRBENCH=airbench94_muon.py ...                         also a copy of that script, on this CPU, in place of bench/peer/airbench94.py
#   RANKS=2 THREADS=1 KEYS="--amp bf16" ISA=avx2 ...        ranks, which share 2000 images a step; further keys, with bf16 also for PyTorch; without AVX-512
#
# A run's seconds are those of the whole command: reading the data, whitening, 200 steps, the evaluation with six views of each image, and
# saving. "Steps" are its training steps alone. GFLOP/s are those of direct convolutions (708 MFLOP an image in training and 236 for each
# of its views), of the FMA peak that all ranks measure at once. PyTorch has as many threads as there are ranks and threads here, in one
# process, which is faster there than ranks are: RANKS=1 for the same here. CPU is the time of all processes, which depends less on other
# programs; of steps it is the trainer's own process_cpu_percent, of all after the first. RUN=DIR keeps the runs, as DIR/seed-S.
. "$(dirname "$0")/lib.sh"
DATA=${DATA:-} SEEDS=${SEEDS-0} RANKS=${RANKS:-$(nproc)} THREADS=${THREADS:-1} KEYS=${KEYS:-} STEPS=${STEPS:-6} ROUNDS=${ROUNDS:-3}
PYTHON=${PYTHON:-python3} AIRBENCH=${AIRBENCH:-} ISA=${ISA:-auto} RUN=${RUN:-$work}
SAMPLES=2000 TRAINING=707.8e6 FORWARD=236.3e6 VIEWS=6
[ -d "$DATA" ] || { echo "cifar94.sh: no CIFAR-10; name its folder, as DATA=DIR" && exit 0; }
[ $((SAMPLES % RANKS)) = 0 ] || { echo "cifar94.sh: RANKS=$RANKS do not divide the $SAMPLES images of a step" >&2 && exit 2; }
[ "$STEPS" -ge 3 ] || { echo "cifar94.sh: STEPS=$STEPS, expected at least 3, of which the last are measured" >&2 && exit 2; }
[ "$ISA" = auto ] || export TUTTI_CPU_ISA=$ISA
[ "$ISA" != avx2 ] || export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2

field() { sed -n "s/.*\"$2\": *\([0-9.e+-]*\).*/\1/p" "$1" | tail -n 1; } # FILE KEY
train() { # DIR KEYS...: also DIR.times: seconds, and CPU seconds
    # shellcheck disable=SC2086 # KEYS are several
    { TIMEFORMAT='%R %U %S' && time "$TUTTI" train -n "$RANKS" --config configs/cifar10-94.json --data_dir "$DATA" --batch_size $((SAMPLES / RANKS)) \
        --threads "$THREADS" --run_dir "$1" --progress quiet $KEYS "${@:2}" 2>&3; } 3>"$work/log" 2>"$1.times" || { cat "$work/log" >&2; exit 1; }
}
mkdir -p "$RUN"
"$TUTTI" bench step -n "$RANKS" --threads "$THREADS" --model mlp --json "$work/peak.json" >/dev/null
peak=$(sed -n 's/.*"peak_gflops": \([0-9.]*\).*/\1/p' "$work/peak.json" | awk -v n=$((RANKS * THREADS)) '{ printf "%.0f\n", $1 * n }')
echo "$RANKS ranks x $THREADS thread, ${KEYS:-f32}, $ISA; FMA peak of all, measured: $peak GFLOP/s (F32)"

# ---- Whole runs

if [ -n "$SEEDS" ]; then
    printf '\n| seed | seconds | of which steps | images/s | GFLOP/s | of peak | CPU s | accuracy | with 6 views |\n|---|---|---|---|---|---|---|---|---|\n'
fi
for seed in $SEEDS; do
    run=$RUN/seed-$seed
    train "$run" --seed "$seed"
    "$TUTTI" eval "$run" --tta 0 --data-dir "$DATA" --json "$work/eval.json" >/dev/null
    read -r seconds user system <"$run.times"
    images=$(($(field "$run/summary.json" steps) * SAMPLES)) rate=$(field "$run/summary.json" images_per_s)
    awk -v seed="$seed" -v s="$seconds" -v cpu="$(awk "BEGIN { print $user + $system }")" -v n="$images" -v rate="$rate" -v peak="$peak" \
        -v plain="$(field "$work/eval.json" accuracy)" -v views="$(field "$run/summary.json" val_accuracy)" \
        -v flops="$(awk "BEGIN { print $images * $TRAINING + $(sed -n 's/^  "images": \([0-9]*\).*/\1/p' "$work/eval.json") * $VIEWS * $FORWARD }")" 'BEGIN {
        printf "| %s | %.1f | %.1f | %.1f | %.0f | %.2f | %.1f | %.2f %% | %.2f %% |\n", seed, s, n / rate, rate, flops / s / 1e9, flops / s / 1e9 / peak, cpu,
            100 * plain, 100 * views }' | tee -a "$work/rows"
done
if [ -n "$SEEDS" ]; then
    awk -F '|' '{ n++; s += $3; a += $9; b += $10; a2 += $9 * $9; b2 += $10 * $10 }
        function spread(sum, squares) { return n < 2 ? 0 : sqrt((squares - sum * sum / n < 0 ? 0 : squares - sum * sum / n) / (n - 1)) }
        END { printf "\nmeans of %d: %.1f s, %.3f %%, with 6 views %.3f %%; standard deviations %.3f and %.3f %%\n", n, s / n, a / n, b / n, spread(a, a2), spread(b, b2) }' "$work/rows"
fi

# ---- Steps beside PyTorch's

"$PYTHON" -c 'import torch' 2>/dev/null || { echo "cifar94.sh: PYTHON=$PYTHON has no torch: no peer" && exit 0; }
case " $KEYS " in *" --amp bf16 "*) autocast=--bf16 ;; *) autocast= ;; esac
theirs() { # appends images/s and CPU milliseconds an image
    if [ -n "$AIRBENCH" ]; then
        "$PYTHON" bench/peer/airbench_on_cpu.py "$AIRBENCH" "$DATA" "$STEPS" $((RANKS * THREADS))
    else
        # shellcheck disable=SC2086 # nothing, or a flag
        "$PYTHON" bench/peer/airbench94.py "$DATA" --steps "$STEPS" --batch "$SAMPLES" --threads $((RANKS * THREADS)) $autocast
    fi >"$work/theirs" 2>"$work/err" || { tail -n 5 "$work/err" >&2; exit 1; }
    sed -n 's/^images_per_s //p' "$work/theirs" >>"$work/theirs.images"
    sed -n 's/^cpu_ms_per_image //p' "$work/theirs" >>"$work/theirs.cpu"
}
ours_steps() { # the same
    rm -rf "$work/steps"
    train "$work/steps" --max_steps "$STEPS" --log_every 1 --system_metrics true --eval_every 0
    sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p' "$work/steps/metrics.jsonl" | tail -n +3 | median >>"$work/ours.images"
    # A sample has the CPU time since the one before it, of rank 0, and ranks do the same: what they wait for each other they sleep
    sed -n 's/.*"system": {"step": \([0-9]*\), "time_s": \([0-9.e+-]*\), .*"process_cpu_percent": \([0-9.e+-]*\).*/\1 \2 \3/p' "$work/steps/metrics.jsonl" |
        awk -v n="$SAMPLES" -v ranks="$RANKS" 'NR > 1 { cpu += $3 / 100 * ($2 - before) } NR == 1 { first = $1 } { before = $2 }
            END { if ($1 > first) printf "%.4f\n", 1e3 * cpu * ranks / (($1 - first) * n) }' >>"$work/ours.cpu"
}
for _ in $(seq "$ROUNDS"); do
    ours_steps
    theirs
done
a=$(median <"$work/ours.images") b=$(median <"$work/theirs.images") ca=$(median <"$work/ours.cpu") cb=$(median <"$work/theirs.cpu")
printf '\n%d steps of %d images, medians of %d rounds; %s\n\n' "$STEPS" $SAMPLES "$ROUNDS" "$([ -n "$AIRBENCH" ] && echo "$(basename "$AIRBENCH") in F32" || echo "bench/peer/airbench94.py $autocast")"
echo "| | images/s | GFLOP/s | of peak | CPU ms/image | ours x | by CPU |"
echo "|---|---|---|---|---|---|---|"
share() { awk -v rate="$1" -v peak="$peak" -v flops=$TRAINING 'BEGIN { printf "%.0f | %.2f", rate * flops / 1e9, rate * flops / 1e9 / peak }'; }
echo "| tutti train | $a | $(share "$a") | $ca | | |"
echo "| PyTorch | $b | $(share "$b") | $cb | $(ratio "$a" "$b") | $(ratio "$cb" "$ca") |"
