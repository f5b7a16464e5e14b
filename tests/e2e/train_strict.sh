# Training on the strict device, whose memory only kernels and copies can access, equals training on the CPU's reference
# kernels, bit for bit: with everything that reads or writes parameters, gradients and states.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_KERNELS=reference
mlp="--model mlp --log-every 1 --max-steps 12 --batch-size 64 --threads 1 --checkpoint-every 5 --keep-checkpoints 0"
resnet="--log-every 1 --max-steps 2 --batch-size 2 --threads 1 --eval-every 0"

# law NAME ARGUMENTS...: the same losses, accuracy and weights on both devices, and after resuming from either's checkpoint.
law() {
    local name=$1 device
    shift
    for device in cpu strict; do
        train $name.$device "$@" --device $device
        losses $name.$device >$name.$device.loss
    done
    same $name.cpu $name.strict
    cmp -s $name.cpu.loss $name.strict.loss || fail "$name: losses differ"
    for key in steps train_loss val_loss val_accuracy skipped_steps; do
        [ "$(field $name.cpu/summary.json $key)" = "$(field $name.strict/summary.json $key)" ] || fail "$name: $key"
    done
}
# resumed NAME ARGUMENTS...: from either's checkpoint.
resumed() {
    local name=$1 device
    shift
    for device in cpu strict; do
        train $name.again.$device "$@" --device strict --resume $name.$device/checkpoints/step-00000005
        same $name.strict $name.again.$device
    done
}

one="$mlp --optimizer adamw --clip-grad-norm 0.5 --dropout 0.2"
law one $one --tensorboard --histograms 4
resumed one $one
fp16="$mlp -n 2 --amp fp16 --comm-hook fp16 --grad-accumulation 2 --batch-size 16"
law fp16 $fp16
resumed fp16 $fp16
shares="$mlp -n 2 --zero 1 --optimizer adam --bucket-mb 0.02 --first-bucket-mb 0.001"
law shares $shares
resumed shares $shares
for zero in 2 3; do # the same weights as without, and from either device's checkpoint
    law shares.$zero $shares --zero $zero --grad-accumulation 2
    resumed shares.$zero $shares --zero $zero --grad-accumulation 2
done
train shares.0 $shares --zero 0 --grad-accumulation 2 --device strict
same shares.0 shares.2.strict
same shares.0 shares.3.strict
powersgd="$mlp -n 2 --comm-hook powersgd --powersgd-rank 2 --powersgd-start 2"
law powersgd $powersgd
resumed powersgd $powersgd
law bf16 $mlp -n 2 --amp bf16 --find-unused
law threes $mlp -n 3 --static-graph --batch-size 20
# Of language models equal to rounding: where the host reads memory, the loss takes logits in chunks.
text="--data shakespeare --layers 2 --width 32 --heads 4 --context 12 --batch-size 4 --log-every 1 --max-steps 12 --threads 1 --checkpoint-every 5 --keep-checkpoints 0 --eval-every 0"
for model in "gpt2 --dropout 0.1 -n 2" "llama --kv-heads 2 --recompute"; do
    name=${model%% *}
    for device in cpu strict; do
        train $name.$device --model $model $text --device $device
        losses $name.$device >$name.$device.loss
    done
    close $name.cpu.loss $name.strict.loss 1e-6
    train $name.again --model $model $text --device strict --resume $name.strict/checkpoints/step-00000005
    same $name.strict $name.again
done
law resnet $resnet -n 2 --sync-bn
law resnet_shares $resnet -n 2 --amp bf16 --zero 1

for device in cpu strict; do
    "$TUTTI" eval -n 2 one.strict --device $device --json $device.json >/dev/null || fail "eval on $device"
    "$TUTTI" predict one.cpu --device $device --out $device.csv >/dev/null || fail "predict on $device"
done
[ "$(field cpu.json loss)" = "$(field strict.json loss)" ] || fail "eval differs"
[ -n "$(field cpu.json loss)" ] || fail "eval says no loss"
cmp -s cpu.csv strict.csv || fail "predictions differ"
echo "strict is the CPU"
