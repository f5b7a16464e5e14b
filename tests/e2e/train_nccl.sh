#!/bin/bash
# train_nccl.sh -- `tutti train --device cuda --backend nccl` in full, on the tests' stand-ins of CUDA and NCCL: the weights of
# the native backend, resumed as uninterrupted, and the effect of a rank's death on the others.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
for name in cuda nccl; do
    module=$BUILD_DIR/tests/standin/libtutti_$name.so
    [ -e "$module" ] || { echo "skipped: there is no $module (it needs the headers of CUDA and NCCL)" && exit 77; }
    export "TUTTI_${name^^}_MODULE=$module"
done
export STANDIN_CUDA_DEVICES=3
unset CUDA_VISIBLE_DEVICES TUTTI_BACKEND
mlp="--model mlp --data digits --epochs 1 --augment off --log-every 1 --lr 0.05 --eval-every 0 --batch-size 16 --device cuda"

# ---- Two ranks have only one order of addition, and halve exactly: the same bits with either transport.
train nccl -n 2 $mlp --max-steps 10 --backend nccl
train native -n 2 $mlp --max-steps 10 --backend native
[ -n "$(digest nccl)" ] || fail "no digest"
same nccl native
STANDIN_CUDA_DEVICES=1 train shared -n 2 $mlp --max-steps 10
same nccl shared
STANDIN_CUDA_SEED=7 train late -n 2 $mlp --max-steps 10 --backend nccl
same nccl late
STANDIN_CUDA_DEVICES=1 refused 1 "are both on GPU" "$TUTTI" train -n 2 $mlp --max-steps 10 --backend nccl --run-dir none

# ---- Interrupted and resumed is uninterrupted.
train whole -n 2 $mlp --max-steps 10 --backend nccl --zero 1 --optimizer adam --checkpoint-every 4 --keep-checkpoints 0
train again -n 2 $mlp --max-steps 10 --backend nccl --zero 1 --optimizer adam --resume whole/checkpoints/step-00000004
same whole again

# ---- A rank that is killed: the others name it, within a second of it, with exit code 3.
now_ms() { echo $((${EPOCHREALTIME//[!0-9]/} / 1000)); }
export WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
mkfifo lines
pids=()
for rank in 0 1 2; do
    out=dead.$rank.out
    [ $rank = 0 ] && out=lines
    RANK=$rank LOCAL_RANK=$rank "$TUTTI" train --run-dir "$work/dead" ${mlp/--epochs 1/--epochs 1000} --backend nccl \
        >$out 2>dead.$rank.err &
    pids+=($!)
done
killed=''
while read -r line; do
    case $line in *"step 5/"*) kill -KILL "${pids[1]}" && killed=$(now_ms) ;; esac
done <lines
[ -n "$killed" ] || fail "rank 0 never came to step 5: $(cat dead.0.err)"
for rank in 0 2; do
    code=0
    wait "${pids[rank]}" || code=$?
    [ $code = 3 ] || fail "rank $rank exits with $code: $(cat dead.$rank.err)"
    says=$(cat dead.$rank.err)
    [[ $says == *"rank 1 ("* ]] || fail "rank $rank does not name rank 1: $says"
done
pids=()
ms=$(($(now_ms) - killed))
[ $ms -le 12000 ] || fail "the others took $ms ms" # less than a heartbeat
left=$(pgrep -f -- "--run-dir $work/" || true)
[ -z "$left" ] || fail "left: $left"
echo "NCCL trains as the native backend does; $ms ms from a rank's death to the end of the others"
