#!/bin/bash
# step.sh: training compared with PyTorch DDP + Gloo, in one run: throughput, start to first finished step, memory, and the speedup of
# two ranks.
#
#   PYTHON=python3 bench/step.sh                    MiniResNet, 2 ranks x 1 thread, batch 32 per rank
#   BATCH="8 32 128" ROUNDS=5 bench/step.sh         a table for each batch
#   ISA=avx2 bench/step.sh                          both without AVX-512
#   MODEL=mlp bench/step.sh                         the digits; many small steps
#   RANKS=2 THREADS=1 STEPS=14 VARIANTS="plain last compile last+compile" PEERS=none bench/step.sh
#
# Of PyTorch's variants (last: channels last; compile: torch.compile, whose compilation is in the first steps, which are not timed)
# each runs once; then Tutti and the fastest of them in turn, A B A B. If PYTHON cannot import torch, or with PEERS=none, Tutti alone.
# Last, the throughput of all ranks relative to one rank alone on a core, and that of as many independent one-rank jobs, a core each: what
# these lose is due to the memory, caches and clock that cores share. "In step": what it would be if each of their steps (with mlp: each
# hundred) took as long as the slowest job's, as it must where ranks wait for each other. What ranks lose beyond that is the cost of
# data parallelism. The time of a small all_reduce tells how near the cores are, which a hypervisor may change at any time.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-3} BATCH=${BATCH:-32} RANKS=${RANKS:-2} THREADS=${THREADS:-1} MODEL=${MODEL:-mini_resnet}
ISA=${ISA:-auto} VARIANTS=${VARIANTS:-plain last compile last+compile}
case $MODEL in
mlp) data=digits lr=0.01 STEPS=${STEPS:-2000} log_every=100 VARIANTS=${VARIANTS// last*/} ;; # no channels
*) data=synthetic lr=0.1 STEPS=${STEPS:-14} log_every=1 ;;
esac
[ "$STEPS" -ge $((3 * log_every)) ] || {
    echo "step.sh: STEPS=$STEPS, expected at least $((3 * log_every)), of which the last are measured" >&2
    exit 2
}
[ "$ISA" = auto ] || export TUTTI_CPU_ISA=$ISA
[ "$ISA" != avx2 ] || export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
memory=$(command -v time || true) # GNU time: the peak of the largest process, which is a rank

train() { # RANKS STEPS LOG_EVERY [COMMAND...]
    rm -rf "$work/run"
    "${@:4}" "$TUTTI" train -n "$1" --data $data --model "$MODEL" --batch_size "$batch" --epochs 100000 --max_steps "$2" --log_every "$3" \
        --eval_every 0 --checkpoint_every 1000000000 --augment off --lr $lr --momentum 0.9 --weight_decay 5e-4 --threads "$THREADS" --run_dir "$work/run"
}
ours_images() { # RANKS [COMMAND...]: images/s, the median of the lines after the second, which it leaves in $work/lines
    train "$1" "$STEPS" $log_every "${@:2}" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n +3 >"$work/lines"
    median <"$work/lines"
}
apart_images() { # appends to apart.images and in_step.images: images/s of RANKS jobs of one rank at once, one core each
    local core
    for core in $(seq 0 $((RANKS - 1))); do
        (work=$work/apart$core && mkdir -p "$work" && ours_images 1 taskset -c "$core" >"$work/images") &
    done
    wait
    cat "$work"/apart*/images | awk '{ sum += $1 } END { print sum }' >>"$work/apart.images"
    paste "$work"/apart*/lines | awk '{ least = $1; for (i = 2; i <= NF; i++) if ($i < least) least = $i; print NF * least }' |
        median >>"$work/in_step.images"
}
theirs() { # VARIANT STEPS [COMMAND...]: its output
    local layout=plain compile=0
    case $1 in last*) layout=last ;; esac
    case $1 in *compile) compile=1 ;; esac
    OMP_NUM_THREADS=$THREADS "${@:3}" bash bench/peer/ranks.sh "$RANKS" "$PYTHON" bench/peer/pytorch_step.py model="$MODEL" \
        data=$data batch="$batch" steps="$2" threads="$THREADS" lr=$lr layout=$layout compile=$compile 2>"$work/torch.err" ||
        { tail -n 5 "$work/torch.err" >&2; exit 1; }
}
theirs_images() { theirs "$1" "$STEPS" | sed -n 's/^images_per_s //p'; } # VARIANT
since() { # BEGIN PATTERN: seconds from BEGIN to the first line with PATTERN; reads on to the end
    local line found=""
    while IFS= read -r line; do
        case $line in *"$2"*) [ -n "$found" ] || date +%s.%N | awk -v begin="$1" '{print $1 - begin}'; found=yes ;; esac
    done
}
ours_first() { train "$RANKS" 1 1 2>&1 | since "$(date +%s.%N)" "step 1/1"; }
theirs_first() { theirs "$1" 1 | since "$(date +%s.%N)" "first step done"; } # VARIANT
peak() { # FUNCTION ARGUMENTS...: MiB
    [ -n "$memory" ] || { echo - && return; }
    "$@" "$memory" -q -o "$work/peak" -f %M >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    awk '{printf "%.0f\n", $1 / 1024}' "$work/peak"
}

peer=yes
[ "$PEERS" != none ] && "$PYTHON" -c 'import torch' 2>/dev/null || peer=
[ -n "$peer" ] || echo "step.sh: no PyTorch peer ($PYTHON with torch): ours only"
for batch in $BATCH; do
    best="" && rm -f "$work"/*.images "$work"/*.first "$work/latency"
    train "$RANKS" 1 1 >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; } # warms the page cache
    for variant in ${peer:+$VARIANTS}; do
        theirs_images "$variant" >"$work/$variant.images"
        theirs_first "$variant" >"$work/$variant.first"
        [ -n "$best" ] && awk "BEGIN { exit !($(cat "$work/$variant.images") <= $(cat "$work/$best.images")) }" || best=$variant
    done
    for _ in $(seq "$ROUNDS"); do
        ours_images "$RANKS" >>"$work/ours.images"
        ours all_reduce "$RANKS" 4 | awk '{print $2}' >>"$work/latency"
        ours_first >>"$work/ours.first" # each after a run of its own kind: a virtual machine is slow to regain memory returned to the host
        [ -z "$peer" ] || theirs_images "$best" >>"$work/$best.images"
        [ -z "$peer" ] || theirs_first plain >>"$work/plain.first"
        ours_images 1 taskset -c 0 >>"$work/alone.images"
        apart_images
    done
    images=$(median <"$work/ours.images") first=$(median <"$work/ours.first") alone=$(median <"$work/alone.images")
    apart=$(median <"$work/apart.images") in_step=$(median <"$work/in_step.images")
    mib=$(peak train "$RANKS" "$(((STEPS + 3) / 4))" 1)
    printf '\n%s, batch %d a rank, %d ranks x %d thread, f32, %s; medians of %d rounds\n\n' "$MODEL" "$batch" "$RANKS" "$THREADS" "$ISA" "$ROUNDS"
    echo "| | images/s | ours x | start to first step, s | ours sooner by | peak memory a rank, MiB | ours / theirs |"
    echo "|---|---|---|---|---|---|---|"
    echo "| tutti train | $images | | $first | | $mib | |"
    for variant in ${peer:+$VARIANTS}; do
        other=$(median <"$work/$variant.images") other_first=$(median <"$work/$variant.first") other_mib=-
        [ "$variant" != "$best" ] && [ "$variant" != plain ] || other_mib=$(peak theirs "$variant" "$(((STEPS + 3) / 4))")
        echo "| PyTorch, $variant$([ "$variant" != "$best" ] || echo " (its best)") | $other | $(ratio "$images" "$other") | $other_first |" \
            "$(ratio "$other_first" "$first") | $other_mib | $(ratio "$mib" "$other_mib") |"
    done
    awk -v n="$RANKS" -v all="$images" -v one="$alone" -v apart="$apart" -v in_step="$in_step" 'BEGIN {
        printf "\n%d ranks / %d x one rank alone on a core: %.3f (%.1f images/s alone)\n", n, n, all / (n * one), one
        printf "%d unconnected ranks / %d x one alone: %.3f, in step %.3f\n", n, n, apart / (n * one), in_step / (n * one)
        printf "%d ranks / %d unconnected ones: %.3f, in step %.3f\n", n, n, all / apart, all / in_step }'
    echo "all_reduce of 4 bytes, us, each round: $(paste -sd ' ' "$work/latency")"
done
