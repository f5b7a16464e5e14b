# --offload optimizer: the optimizer's state in host memory, with the weights of training without, on the strict device: with every stage of
# ZeRO, clipping, averages, the loss scaler, background checkpoints, and after resumes either way.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_KERNELS=reference

result() {
    local key
    for key in parameter_digest ema_digest skipped_steps val_loss; do
        echo "$key $(field "$1/summary.json" $key)"
    done
    sed -n 's/.*"step": \([0-9]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}
same_result() { # RUN RUN
    diff <(result "$1") <(result "$2") || fail "$1 and $2 differ"
}
mlp="--model mlp --device strict --log-every 1 --max-steps 4 --batch-size 32 --threads 1 --checkpoint-every 2 --keep-checkpoints 0 --epochs 1"
adam="$mlp --optimizer adamw --clip-grad-norm 0.5 --dropout 0.2 --lr 0.01"
train one $adam --ema 0.9
train one.host $adam --ema 0.9 --offload optimizer
same_result one one.host
train momentum $mlp --momentum 0.9 --amp fp16
train momentum.host $mlp --momentum 0.9 --amp fp16 --offload optimizer
same_result momentum momentum.host

small="--bucket-mb 0.02 --first-bucket-mb 0.01"
train two -n 2 $adam
for zero in 0 1 3; do
    train two.$zero -n 2 $adam --zero $zero $small --offload optimizer
    same_result two two.$zero
done
train two.4 -n 2 $adam --zero 3 $small --offload parameters --tensorboard --histograms 1
same_result two two.4
for host in two two.0 two.1 two.3 two.4; do # a checkpoint has the same files, and any run goes on from any
    "$TUTTI" checkpoint verify $host >verified 2>&1 || fail "the checkpoint of $host: $(cat verified)"
done
train again -n 2 $adam --zero 1 $small --offload optimizer --resume two/checkpoints/step-00000002
train back -n 2 $adam --zero 3 $small --resume two.1/checkpoints/step-00000002
train shares -n 2 $adam --zero 3 $small --offload parameters --resume two.1/checkpoints/step-00000002
train device -n 2 $adam --zero 2 $small --resume two.4/checkpoints/step-00000002
train init.0 -n 2 $adam --init two/checkpoints/step-00000002
train init.4 -n 2 $adam --init two/checkpoints/step-00000002 --zero 3 $small --offload parameters
same_result init.0 init.4
for run in again back shares device; do
    [ "$(result two | head -1)" = "$(result $run | head -1)" ] || fail "$run: other weights"
done
train shards -n 2 $mlp --optimizer adam --shards 4
train shards.host -n 2 $mlp --optimizer adam --shards 4 --zero 1 --offload optimizer
[ "$(result shards | head -1)" = "$(result shards.host | head -1)" ] || fail "with shards: other weights"

refused 2 "offload: it moves the optimizer's state from a GPU to the host" "$TUTTI" train --model mlp --device cpu --offload optimizer --max-steps 1 --run-dir cpu
refused 2 "offload: it moves the optimizer's state" "$TUTTI" train -n 3 --model mlp --device cpu --offload optimizer --max-steps 1 --run-dir cpu
[ "$(grep -c 'offload: it moves' refused.out)" = 1 ] || { cat refused.out; fail "all ranks say so"; }
refused 2 "offload: parameters is for zero=3 on GPUs" "$TUTTI" train --model mlp --device strict --offload parameters
refused 2 "ema: averages are made on the GPU" "$TUTTI" train --model mlp --device strict --zero 3 --offload parameters --ema 0.9
refused 2 "offload: optimizer=lamb updates whole parameters" "$TUTTI" train --model mlp --optimizer lamb --device strict --offload optimizer
refused 2 "offload: it moves memory from a GPU to the host, and plan is for CPUs" "$TUTTI" plan --model mlp --offload optimizer
