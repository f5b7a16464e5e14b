# Interrupted and resumed = uninterrupted, bit for bit: in the middle of epochs, with everything that has state.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# law NAME ARGUMENTS...: a run resumed from each of its checkpoints has the digest and the sums of the run itself.
law() {
    local name=$1 checkpoint resumed=0
    shift
    train "$name" "$@" --threads 1 --checkpoint-every 9 --keep-checkpoints 0
    for checkpoint in "$name"/checkpoints/step-*; do
        grep -q '"finished": true' "$checkpoint/state.json" && continue
        rm -rf again
        train again "$@" --threads 1 --checkpoint-every 100 --resume "$checkpoint"
        [ "$(digest "$name")" = "$(digest again)" ] || fail "$name: resumed from $checkpoint, the digest differs"
        for key in steps epochs train_loss val_accuracy gradient_bytes wire_bytes; do
            [ "$(field "$name/summary.json" $key)" = "$(field again/summary.json $key)" ] || fail "$name, $checkpoint: $key"
        done
        resumed=$((resumed + 1))
    done
    [ $resumed -ge 1 ] || fail "$name: nothing was resumed"
}
# 12 steps per epoch, so in the middle of epochs and at their ends.
short="--max-steps 20 --batch-size 64 -n 2 --model mlp"
law one --max-steps 20 --batch-size 128 --model mlp
law plain $short
law three $short -n 3 --workers 0 --optimizer adam --clip-grad-norm 0.5 --label-smoothing 0.1
law accumulated $short --batch-size 10 --grad-accumulation 6
law shares $short --optimizer adamw --zero 1 --bucket-mb 0.01
law without_state $short --momentum 0 --comm-hook bf16
law powersgd $short -n 3 --batch-size 40 --comm-hook powersgd --powersgd-rank 2 --powersgd-start 10 --bucket-mb 0.02
law resnet -n 2 --max-steps 11 --batch-size 8
TUTTI_EMULATE_HALF=1 law amp_bf16 $short --amp bf16 --grad-accumulation 2 --batch-size 20
law groups $short --optimizer adamw --decay-biases off --zero 1
TUTTI_EMULATE_HALF=1 law amp_fp16 $short --amp fp16 --comm-hook fp16 --clip-grad-norm 1 --dropout 0.3 \
    --batch-size 1 --lr 0.1 --warmup-epochs 0
[ "$(field amp_fp16/summary.json skipped_steps)" -ge 1 ] || fail "no step was left out, so nothing of the scaler was resumed"
law dropout $short --dropout 0.3 --batch-size 20 --grad-accumulation 3
law resnet_shares -n 2 --max-steps 11 --batch-size 4 --grad-accumulation 2 --zero 1 --sync-bn

# Saved again before another step, as when only the last evaluation remained: the hooks' state is kept.
keys="--max-steps 30 --batch-size 40 -n 3 --model mlp --threads 1 --schedule constant --eval-every 0
    --comm-hook powersgd --powersgd-rank 2 --powersgd-start 5 --bucket-mb 0.02"
train whole $keys
train parts $keys --max-steps 20
sed -i 's/"finished": true/"finished": false/' parts/checkpoints/latest/state.json
train parts $keys --max-steps 20 --resume auto
train parts $keys --resume auto
same whole parts
echo "resumed bit for bit"
