# Bad input, each with its message and exit code.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --augment off --threads 1 --max-steps 2 --run-dir run --timeout-s 20"

# Flags
refused 2 'batch_size: 0 is out of range; expected 1 to 1000000' "$TUTTI" train --batch-size 0
refused 2 'batch_size: "abc" is not an integer' "$TUTTI" train -n 2 --batch-size abc
[ "$(wc -l <refused.out)" = 1 ] || fail "the message is printed more than once: $(cat refused.out)"
refused 2 'did you mean "batch_size"?' "$TUTTI" train --batchsize 3
refused 2 'tutti train: unknown key "batch-siez"; did' "$TUTTI" train --batch-siez 3
[ "$(grep -o 'tutti train: ' refused.out | wc -l)" = 1 ] || fail "the prefix is printed twice: $(cat refused.out)"
refused 2 'tutti train: --config needs a value' "$TUTTI" train --config
refused 2 'unknown key "learning-rate"; did you mean "lr"?' "$TUTTI" train --learning-rate 0.1
refused 2 'unknown key "clip-grad"; did you mean "clip_grad_norm"?' "$TUTTI" train --clip-grad 1
refused 2 'unknown key "gpus"; did you mean "-n"?' "$TUTTI" train --gpus 2
refused 2 '--amp needs a value: off, bf16 or fp16' "$TUTTI" train --amp
refused 2 'is a folder; expected a file (of a run: ./config.json)' "$TUTTI" train --config .
refused 2 'data_dir: data=digits needs no files' "$TUTTI" train --data-dir "$work"
refused 2 'amp: "bf61" is not one of its values; expected off, bf16 or fp16 (did you mean bf16?)' "$TUTTI" train --amp bf61
refused 2 'expected auto, cpu, cuda, cuda:N or strict (did you mean cuda?)' "$TUTTI" train --device gpu
refused 2 'model: "mpl" is not one of its values; expected mini_resnet, mlp, linear, resnet18, resnet34, resnet50, resnet101, mobilenet_v2, vit, vit_b_16, lstm, unet, airbench94, gpt2, gpt2-medium, gpt2-large, gpt2-xl or llama (did you mean mlp?), or a shared object' "$TUTTI" train --model mpl
refused 2 'model mlp has no heads that could be chosen' "$TUTTI" train --model mlp --heads 3
refused 2 'vit: images of 8 x 8, patches of 2 x 2, width 64, 5 heads; expected patches that divide the image' "$TUTTI" train --model vit --width 64 --heads 5
TUTTI_TRANSPORT=tpc refused 2 'TUTTI_TRANSPORT is "tpc", expected auto or tcp (did you mean tcp?)' "$TUTTI" train $mlp --max-steps 1
refused 2 'data_dir' "$TUTTI" train --data cifar10
refused 2 'workers: 257 is out of range' "$TUTTI" train --workers 257
refused 2 '-n is "0", expected a number of workers from 1 to 65536' "$TUTTI" train -n 0
refused 2 'unexpected argument "help"; keys are given as --key value (tutti train --help lists all)' "$TUTTI" train help
refused 2 'augment: "maybe" is not one of its values; expected true, false, on, off, 1 or 0' "$TUTTI" train --augment maybe
refused 2 'augment: "" is not one of its values; expected true, false' "$TUTTI" train --augment ""
refused 2 '--no-augment takes no value, but "true" was given: leave it out' "$TUTTI" train --no-augment=true
refused 2 'TUTTI_TF32 is "many", expected' env TUTTI_TF32=many "$TUTTI" train $mlp
refused 2 'TUTTI_DETERMINISTIC is "2", expected' env TUTTI_DETERMINISTIC=2 "$TUTTI" train $mlp

# Environment: half-set groups
refused 2 'LOCAL_RANK' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 "$TUTTI" train $mlp
refused 2 'RANK is not set, although LOCAL_RANK is' env LOCAL_RANK=0 "$TUTTI" train $mlp
refused 2 'TUTTI_LOG: "loud" is not LEVEL' env TUTTI_LOG=comm:debug,loud "$TUTTI" train $mlp
refused 2 'debug or trace (did you mean warn?)' env TUTTI_LOG=comm:wran "$TUTTI" train $mlp
refused 2 'WORLD_SIZE' env RANK=0 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 "$TUTTI" train $mlp

# Data
refused 1 'nowhere' "$TUTTI" train -n 2 $mlp --data cifar10 --data-dir nowhere
[ "$(grep -c nowhere refused.out)" = 1 ] || { cat refused.out; fail "the message is printed more than once"; }
mkfifo pipe
for variable in TOPOLOGY TUNER_FILE; do
    refused 2 "TUTTI_$variable: pipe is a pipe or a device; expected a file, which every process reads" env TUTTI_$variable=pipe "$TUTTI" train -n 3 $mlp
    grep -q 'all 3 ranks failed for the same reason: exit code 2' refused.out && [ "$(grep -c 'is a pipe' refused.out)" = 1 ] || { cat refused.out; fail "ranks with the same error are not summed up"; }
done
refused 1 'all 3 ranks failed for the same reason: exit code 1' "$TUTTI" run -n 3 "$TUTTI" train $mlp --data cifar10 --data-dir nowhere
[ "$(grep -c nowhere refused.out)" = 1 ] || { cat refused.out; fail "printed more than once under tutti run"; }
mkdir empty
refused 1 'there is no data_batch_1.bin in empty or empty/cifar-10-batches-bin. CIFAR-10 is' "$TUTTI" train $mlp --data cifar10 --data-dir empty
mkdir cifar
for f in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    head -c $((3073 * 40)) /dev/zero >cifar/$f.bin
done
train good $mlp --data cifar10 --data-dir cifar
truncate -s $((3073 * 40 - 5)) cifar/data_batch_3.bin
refused 1 'data_batch_3.bin' "$TUTTI" train $mlp --data cifar10 --data-dir cifar
truncate -s $((3073 * 40)) cifar/data_batch_3.bin
printf '\013' | dd of=cifar/data_batch_3.bin bs=1 seek=$((3073 * 7)) conv=notrunc 2>/dev/null
refused 1 'label' "$TUTTI" train $mlp --data cifar10 --data-dir cifar --max-steps 0 --epochs 1
grep -q 'data_batch_3.bin' refused.out || fail "which file? $(cat refused.out)"
# The same of a test image, in a run by shards: no place of a worker is filled again.
cp cifar/data_batch_1.bin cifar/data_batch_3.bin
printf '\013' | dd of=cifar/test_batch.bin bs=1 seek=$((3073 * 7)) conv=notrunc 2>/dev/null
refused 1 'test_batch.bin' "$TUTTI" train -n 2 $mlp --shards 2 --data cifar10 --data-dir cifar --max-steps 0 --epochs 1
! grep -q SIG refused.out || { cat refused.out; fail "a test image of no class: a worker crashed"; }

# Ranks that do not fit together
cat >each.sh <<'END'
if [ "$RANK" = 1 ]; then set -- --model linear "$@"; else set -- --model mlp "$@"; fi
exec "$TUTTI" train "$@"
END
refused 3 'model: this rank has "linear" and rank 0 has "mlp"' "$TUTTI" run -n 2 bash each.sh --run-dir run --timeout-s 20
[ "$(grep -c '^\[[0-9]\] tutti train: ' refused.out)" = 1 ] || { cat refused.out; fail "the message is printed more than once"; }
mkdir cifar-few
for f in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    : >cifar-few/$f.bin
done
head -c $((3073 * 2)) /dev/zero >cifar-few/data_batch_1.bin
head -c $((3073 * 2)) /dev/zero >cifar-few/test_batch.bin
refused 2 'samples' "$TUTTI" train -n 3 $mlp --data cifar10 --data-dir cifar-few

# Divergence is found, named and ends all ranks.
refused 1 'diverged' "$TUTTI" train -n 2 $mlp --model mlp --lr 1000 --weight-decay 1000 --max-steps 0
[ "$(grep -c 'diverged' refused.out)" -le 2 ] || { cat refused.out; fail "the launcher repeats the ranks' messages"; }
refused 1 'the loss is NaN' "$TUTTI" train -n 2 $mlp --model mlp --lr 1000 --warmup-epochs 0 --max-steps 0
[ "$(grep -c 'train: rank [01]: the loss is NaN' refused.out)" = 1 ] || { cat refused.out; fail "each rank says that the loss is NaN"; }
TUTTI_TRANSPORT=tpc refused 2 'TUTTI_TRANSPORT is' "$TUTTI" train -n 2 $mlp
[ "$(grep -c 'TUTTI_TRANSPORT' refused.out)" = 1 ] || { cat refused.out; fail "each rank says that the environment is wrong"; }
echo "all refused"
