#!/bin/bash
# step.sh: one training step of MiniResNet on 2 ranks, Tutti beside PyTorch DDP + Gloo, in one run.
#
#   bench/step.sh                 throughput (A B A B ..., medians) and start to first finished step
#   PYTHON=python3 PEERS=../shared/bench ROUNDS=3 BATCH=32 RANKS=2 bench/step.sh
#
# PYTHON must be able to import torch; PEERS holds pytorch_train.py and ranks.sh. Where one is missing, only ours is measured.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-3} BATCH=${BATCH:-32} RANKS=${RANKS:-2}
STEPS=${STEPS:-14}

train() { # images/s: the median of steps 3 and later
    "$TUTTI" train -n "$RANKS" --data synthetic --model mini_resnet --batch_size "$BATCH" --max_steps "$STEPS" \
        --log_every 1 --eval_every 0 --augment off --lr 0.1 --momentum 0.9 --weight_decay 5e-4 --threads 1 \
        --run_dir "$work/run" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n +3 | median
}
since() { # BEGIN PATTERN: passes standard input on, and prints the seconds from BEGIN to the line with PATTERN on descriptor 3
    while IFS= read -r line; do
        case $line in *"$2"*) date +%s.%N | awk -v begin="$1" '{print $1 - begin}' >&3 ;; esac
        printf '%s\n' "$line"
    done
}
train_first() { # seconds from the command's start until it says that step 1 is done
    "$TUTTI" train -n "$RANKS" --data synthetic --model mini_resnet --batch_size "$BATCH" --max_steps 1 \
        --log_every 1 --eval_every 0 --augment off --threads 1 --run_dir "$work/first" 2>&1 |
        since "$(date +%s.%N)" "step 1/1" 3>>"$work/ours-first" >/dev/null
}
theirs() { # CL=0|1: images/s, and seconds from the command's start until it says that step 1 is done
    PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 BS=$BATCH STEPS=$STEPS CL=$1 \
        bash "$PEERS/ranks.sh" "$RANKS" "$PYTHON" "$PEERS/pytorch_train.py" 2>/dev/null |
        since "$(date +%s.%N)" "first step done" 3>>"$work/torch-first-$1" >"$work/torch"
    sed -n 's/.* \([0-9.]*\) img\/s.*/\1/p' "$work/torch" >>"$work/torch-images-$1"
}

peer=yes
[ -e "$PEERS/pytorch_train.py" ] && "$PYTHON" -c 'import torch' 2>/dev/null || peer=
[ -n "$peer" ] || echo "step.sh: no PyTorch peer ($PYTHON with torch, $PEERS/pytorch_train.py): ours only"

train_first # warms the page cache
: >"$work/ours-first"
for _ in $(seq "$ROUNDS"); do
    train >>"$work/ours"
    train_first
    [ -z "$peer" ] || { theirs 0; theirs 1; }
done
images=$(median <"$work/ours")
first=$(median <"$work/ours-first")
echo "MiniResNet, $RANKS ranks x 1 thread, batch $BATCH a rank, f32, medians of $ROUNDS rounds"
printf '%-34s %10s %8s   %s\n' "" "images/s" "ours x" "start to first step, s (ours sooner by)"
printf '%-34s %10.1f %8s   %.3f\n' "tutti train" "$images" "" "$first"
[ -z "$peer" ] || for layout in 0 1; do
    name="PyTorch DDP + Gloo"
    [ $layout = 0 ] || name="$name, channels-last"
    other=$(median <"$work/torch-images-$layout")
    other_first=$(median <"$work/torch-first-$layout")
    printf '%-34s %10.1f %8s   %.3f (%sx)\n' "$name" "$other" "$(ratio "$images" "$other")" "$other_first" \
        "$(ratio "$other_first" "$first")"
done
