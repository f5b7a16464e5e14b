#!/bin/bash
# curve.sh: the loss of MiniResNet on CIFAR-10 compared with PyTorch's, from the same weights, with the same batches and updates.
#
#   PYTHON=python3 DATA=DIR bench/curve.sh          DIR: CIFAR-10's binary files, or 32x32 images as DIR/train/CLASS/FILE, DIR/test
#   STEPS=200 EVERY=10 RANKS=2 BATCH=64 LR=0.05 ISA=auto bench/curve.sh
#
# Losses are means over the last EVERY steps; their difference starts with rounding, which training amplifies: as
# large is that between two PyTorch runs that differ in rounding, such as with channels last, the last column.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} DATA=${DATA:-} STEPS=${STEPS:-200} EVERY=${EVERY:-10} RANKS=${RANKS:-2} BATCH=${BATCH:-64} LR=${LR:-0.05}
ISA=${ISA:-auto}
[ "$ISA" = auto ] || export TUTTI_CPU_ISA=$ISA

[ -d "$DATA" ] || { echo "curve.sh: no CIFAR-10; name its folder, as DATA=DIR" && exit 0; }
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "curve.sh: $PYTHON has no torch" && exit 0; }
if [ -d "$DATA/train" ]; then
    "$TUTTI" data pack "$DATA" "$work/packed" >/dev/null
    DATA=$work/packed
fi
[ ! -d "$DATA/cifar-10-batches-bin" ] || DATA=$DATA/cifar-10-batches-bin

theirs() { # LAYOUT INIT: step and loss
    OMP_NUM_THREADS=1 bash bench/peer/ranks.sh "$RANKS" "$PYTHON" bench/peer/pytorch_step.py data="$DATA" batch="$BATCH" \
        steps="$STEPS" lr="$LR" log="$EVERY" layout="$1" init="$2" 2>"$work/err" | sed -n 's/^step \([0-9]*\) loss /\1 /p'
}
theirs plain "$work/init.pt" >"$work/theirs" || { cat "$work/err" >&2; exit 1; }
theirs last "" >"$work/other" || { cat "$work/err" >&2; exit 1; }
"$TUTTI" train -n "$RANKS" --data cifar10 --data_dir "$DATA" --model mini_resnet --init "$work/init.pt" --batch_size "$BATCH" \
    --epochs 1000 --max_steps "$STEPS" --log_every "$EVERY" --eval_every 0 --augment off --lr "$LR" --schedule constant --warmup_epochs 0 --momentum 0.9 \
    --weight_decay 5e-4 --threads 1 --run_dir "$work/run" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([0-9.e+-]*\),.*/\1 \2/p' "$work/run/metrics.jsonl" >"$work/ours"

echo "CIFAR-10, $RANKS ranks x batch $BATCH, lr $LR, momentum 0.9, no augmentation, means of $EVERY steps, $ISA"
echo
echo "| step | tutti train | PyTorch | difference | PyTorch, channels last, less plain |"
echo "|---|---|---|---|---|"
join "$work/ours" <(join "$work/theirs" "$work/other") --nocheck-order |
    awk '{ printf "| %d | %.5f | %.5f | %+.5f | %+.5f |\n", $1, $2, $3, $2 - $3, $4 - $3; a += ($2 - $3) ^ 2; b += ($4 - $3) ^ 2 }
        END { if (!NR) exit 1; printf "\nroot mean square of the differences: ours %.5f, PyTorch from itself %.5f\n", sqrt(a / NR), sqrt(b / NR) }'
