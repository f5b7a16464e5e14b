#!/bin/bash
# train_cuda.sh -- `tutti train --device cuda` in full, on the tests' stand-ins of NVIDIA's libraries.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_CUDA_MODULE=$BUILD_DIR/tests/standin/libtutti_cuda.so
[ -e "$TUTTI_CUDA_MODULE" ] || { echo "skipped: the module over stand-ins was not built (it needs the CUDA toolkit's headers)" && exit 77; }
export LD_LIBRARY_PATH=$BUILD_DIR/standin/nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset CUDA_VISIBLE_DEVICES
mlp="--model mlp --data digits --epochs 1 --augment off --log-every 1 --lr 0.05 --eval-every 0 --max-steps 12"
says() { grep -qE -- "$2" "$1" || { cat "$1" && fail "$1 does not say \"$2\""; }; }
ranks() { sed -n 's/.*"gpus": \[{[^}]*"ranks": \([0-9]*\), "xid": \([0-9]*\)}, {[^}]*"ranks": \([0-9]*\), "xid": \([0-9]*\)}.*/\1 \2 \3 \4/p' "$1/metrics.jsonl" | tail -1; }

# ---- The CPU's curve, and the same bits for any order of the streams.
train cpu $mlp --device cpu
train one $mlp --device cuda
losses cpu >cpu.loss
losses one >one.loss
close cpu.loss one.loss 1e-4
[ "$(field one/summary.json device)" = "stand-in GPU" ] || fail "the summary's device"
says one.out '^on 1 GPU \(stand-in GPU\), one a rank$'
for seed in 2 3; do
    STANDIN_CUDA_SEED=$seed train "again$seed" $mlp --device cuda --workers $((seed - 1))
    same one "again$seed"
done

# ---- Only --no-deterministic lets convolutions be measured; on the CPU it has no effect, which is reported.
resnet="--model mini_resnet --max-steps 1 --batch-size 1 --eval-every 0 --augment off"
STANDIN_RECORD=$work/record train sure $resnet --device cuda
STANDIN_RECORD=$work/record-free train free $resnet --device cuda --no-deterministic
(($(grep -c 'cudnn execute' record-free) > $(grep -c 'cudnn execute' record))) || fail "--no-deterministic measures nothing"
train sure-cpu $mlp --device cpu --no-deterministic
same sure-cpu cpu
says sure-cpu.out '^deterministic false changes nothing here'

# ---- Ranks and GPUs.
train share -n 2 $mlp --batch-size 16 --device cuda --system-metrics
says share.out '^on 1 GPU \(stand-in GPU\), shared by up to 2 ranks each: '
[ "$(ranks share)" = "2 0 0 0" ] || fail "ranks and Xids of shared GPUs: $(ranks share)"
losses share >share.loss
close cpu.loss share.loss 1e-4
export STANDIN_CUDA_DEVICES=2
STANDIN_XIDS=1:79 train two -n 2 $mlp --batch-size 16 --device cuda --system-metrics --backend native
says two.out '^on 2 GPUs \(stand-in GPU\), one a rank$'
says two.out 'GPU 1 \(0000:11:00\.0\) of rank 1: the driver reports Xid 79: the GPU has fallen off the bus'
[ "$(grep -c 'Xid 79' two.out)" = 1 ] || fail "an Xid is reported more than once"
[ "$(ranks two)" = "1 0 1 79" ] || fail "ranks and Xids of two GPUs: $(ranks two)"
same share two
if [ -e "$BUILD_DIR/tests/standin/libtutti_nccl.so" ]; then
    TUTTI_NCCL_MODULE=$BUILD_DIR/tests/standin/libtutti_nccl.so timeout 180 "$TUTTI" bench step -n 2 --model mlp --iterations 2 --device cuda --backend nccl >bench.out 2>&1 ||
        { cat bench.out && fail "bench step by NCCL"; }
fi
train second $mlp --device cuda:1
same one second
refused 2 "device cuda:2: there are 2 CUDA devices, the last is cuda:1" "$TUTTI" train $mlp --device cuda:2 --run-dir none
unset STANDIN_CUDA_DEVICES

# ---- ZeRO's state is gathered on the host: a device with room for its share has enough for a checkpoint.
big="--model mlp --data synthetic --epochs 1 --max-steps 2 --eval-every 0 --optimizer adam --device cuda --checkpoint-every 1"
STANDIN_CUDA_MEMORY=18 train shares -n 2 $big --zero 1
STANDIN_CUDA_MEMORY=14 refused 4 "out of memory: asked for" "$TUTTI" train -n 2 $big --zero 1 --run-dir shares-full

# Stages 2 and 3 have the weights of plain training, for any order of streams; and less memory, of pages that come and go.
small="--model mlp --data digits --epochs 1 --augment off --lr 0.05 --eval-every 0 --max-steps 6 --batch-size 16 --optimizer adam --device cuda --backend native"
train stage.0 -n 2 $small
for zero in 1 2 3; do
    STANDIN_CUDA_SEED=$zero train stage.$zero -n 2 $small --zero $zero --bucket-mb 0.02 --first-bucket-mb 0.001
    same stage.0 stage.$zero
done
if [ -e "$BUILD_DIR/tests/standin/libtutti_nccl.so" ]; then
    for zero in 2 3; do
        TUTTI_NCCL_MODULE=$BUILD_DIR/tests/standin/libtutti_nccl.so STANDIN_CUDA_DEVICES=2 \
            train nccl.$zero -n 2 $small --backend nccl --zero $zero --bucket-mb 0.02 --first-bucket-mb 0.001
        same stage.0 nccl.$zero
    done
fi

# ---- Layers divided among ranks, and a pipeline, with ZeRO-3 and ZeRO-1 over the data ranks.
text="--model gpt2 --data shakespeare --layers 2 --width 24 --heads 2 --context 16 --batch-size 4 --max-steps 3 --log-every 1 --eval-every 0 --sample-tokens 0 --dropout 0.1"
train text.cpu -n 2 $text
losses text.cpu >text.cpu.loss
for layout in "--tensor 2 --zero 3" "--tensor 2 --sequence-parallel" "--pipeline 2 --micro-batches 2 --zero 1"; do
    name=text.$(echo "$layout" | tr -cd 'a-z0-9')
    train $name -n 4 $text $layout --device cuda --backend native
    losses $name >$name.loss
    case $layout in
    *pipeline*) train $name.cpu -n 4 $text $layout && losses $name.cpu >text.loss ;;
    *) cp text.cpu.loss text.loss ;;
    esac
    close text.loss $name.loss 1e-4
done

# ---- Missing parts and failures.
STANDIN_CUDA_DRIVER=0 refused 4 "no NVIDIA driver" "$TUTTI" train $mlp --device cuda --run-dir none
STANDIN_CUDA_DEVICES=0 refused 4 "it sees no device" "$TUTTI" train $mlp --device cuda --run-dir none
STANDIN_CUDA_DRIVER=0 train without $mlp --device auto
same without cpu
refused 3 "device: rank 0 computes on cuda, but rank 1 on cpu" "$TUTTI" run -n 2 sh -c \
    '[ $RANK = 0 ] && device=cuda; exec "$0" "$@" --device "${device:-cpu}"' "$TUTTI" train $mlp --backend native --run-dir mixed
STANDIN_CUDA_MEMORY=16 refused 4 "out of memory: asked for" "$TUTTI" train $mlp --model mini_resnet --device cuda --run-dir full
STANDIN_CUDA_FAULT=0:300 STANDIN_XIDS=0:31 refused 4 "cuda:0 (stand-in GPU)" "$TUTTI" train $mlp --device cuda --run-dir broken
says refused.out 'GPU 0 \(0000:10:00\.0\) of rank 0: the driver reports Xid 31: a page fault'
says broken/summary.json '"status": "failed"'

nccl=$BUILD_DIR/tests/standin/libtutti_nccl.so
if [ -e "$nccl" ]; then # a device that has failed runs nothing that NCCL could not stop
    code=0
    TUTTI_NCCL_MODULE=$nccl STANDIN_CUDA_DEVICES=2 STANDIN_CUDA_FAULT=1:5 timeout 180 "$TUTTI" train -n 2 $mlp --batch-size 16 \
        --device cuda --backend nccl --run-dir aborted >aborted.out 2>&1 || code=$?
    [ $code = 3 ] || [ $code = 4 ] || { cat aborted.out && fail "exit code $code from a device that failed"; }
    says aborted.out 'cuda:1 \(stand-in GPU\): .*illegal'
    ! grep -q "has not stopped" aborted.out || { cat aborted.out && fail "NCCL is said not to stop on a device that failed"; }
fi

# ---- Mixed precision; a convolutional model.
for amp in bf16 fp16; do
    train "mlp-$amp" $mlp --device cuda --amp $amp
    says "mlp-$amp.out" "^amp $amp: "
    losses "mlp-$amp" >"$amp.loss"
    close cpu.loss "$amp.loss" 2e-2
done
train conv --model mini_resnet --data digits --epochs 1 --max-steps 1 --batch-size 2 --eval-every 0 --device cuda --amp bf16
echo "training on a device of CUDA is right"
