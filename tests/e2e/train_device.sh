#!/bin/bash
# train_device.sh -- a missing GPU is reported and costs nothing; auto uses the CPU.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --epochs 1 --max-steps 4 --eval-every 0"
export CUDA_VISIBLE_DEVICES= # whatever this machine has

refused 4 "device cuda" "$TUTTI" train $mlp --device cuda --run-dir none
[ ! -e none ] || fail "a run folder without a run"
[ "$(wc -l <refused.out)" = 1 ] || { cat refused.out; fail "not one line"; }
refused 4 "device cuda" "$TUTTI" train -n 2 $mlp --device cuda:1 --run-dir none
refused 2 "expected auto, cpu, cuda, cuda:N or strict" "$TUTTI" train $mlp --device gpu --run-dir none
refused 4 "device cuda" "$TUTTI" bench step --model mlp --device cuda

train auto $mlp --device auto
[ "$(field auto/summary.json device)" = CPU ] || fail "auto: $(field auto/summary.json device)"
train cpu $mlp --device cpu
same auto cpu
refused 4 "device cuda" "$TUTTI" eval cpu --device cuda
refused 4 "device cuda" "$TUTTI" predict cpu --device cuda --out out.csv
refused 2 "CUDA_VISIBLE_DEVICES names no device" "$TUTTI" run --nproc-per-node gpu true
"$TUTTI" run --nproc-per-node auto sh -c 'echo ranks $WORLD_SIZE' >ranks.out || fail "auto on a machine without a GPU"
echo "devices are right"
