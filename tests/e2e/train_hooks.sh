# Communication hooks and the reducer's other keys, on whole runs of `tutti train`.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="-n 2 --model mlp --augment off --threads 1 --batch-size 16 --epochs 2 --lr 0.05 --eval-every 2"

# wire DIR LOW HIGH: the fraction of its gradients' bytes that a run sent.
wire() {
    awk -v w="$(field "$1/summary.json" wire_bytes)" -v g="$(field "$1/summary.json" gradient_bytes)" -v low="$2" -v high="$3" \
        'BEGIN { exit !(g > 0 && w / g >= low && w / g <= high) }' ||
        fail "$1: $(field "$1/summary.json" wire_bytes) of $(field "$1/summary.json" gradient_bytes) bytes, expected $2 to $3"
}
near() { # RUN: its accuracy is within 2 points of the plain run's
    awk -v a="$(field plain/summary.json val_accuracy)" -v b="$(field "$1/summary.json" val_accuracy)" \
        'BEGIN { d = a - b; exit !(d <= 0.02 && d >= -0.02) }' || fail "$1: accuracy $(field "$1/summary.json" val_accuracy)"
}
train plain $mlp
wire plain 1 1
! grep -q 'on the wire' plain.out || fail "a plain run has nothing to say about compression"
for hook in bf16 fp16; do
    train $hook $mlp --comm-hook $hook
    wire $hook 0.5 0.5
    near $hook
    grep -q "^  on the wire *50.0 %$" $hook.out || { cat $hook.out; fail "wire bytes"; }
    for zero in 1 2 3; do # of which each rank keeps a share: the same bits
        rm -rf zero
        train zero $mlp --comm-hook $hook --zero $zero
        same $hook zero
    done
done
train powersgd $mlp --comm-hook powersgd --powersgd-rank 2 --powersgd-start 10
wire powersgd 0.1 0.35
near powersgd
train powersgd_again $mlp --comm-hook powersgd --powersgd-rank 2 --powersgd-start 10
same powersgd powersgd_again

# Accumulation sends once per step.
train accumulated $mlp --comm-hook bf16 --grad-accumulation 2 --batch-size 8
[ "$(field accumulated/summary.json wire_bytes)" = "$(field bf16/summary.json wire_bytes)" ] || fail "accumulation sends more"

# Every parameter is used: neither option changes a bit.
train unused $mlp --find-unused
train static $mlp --static-graph
same plain unused
same plain static
refused 2 'powersgd' "$TUTTI" train $mlp --comm-hook powersgdd
refused 2 'start_step 1 with error feedback' "$TUTTI" train $mlp --comm-hook powersgd --powersgd-start 1
refused 2 'comm_hook: powersgd keeps an error for each gradient' "$TUTTI" train $mlp --comm-hook powersgd --zero 1
echo "hooks work"
