#!/bin/bash
# train_gpu_metrics.sh -- figures of GPUs and the driver's error reports, by a stand-in of NVIDIA's library.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --epochs 1 --eval-every 0 --max-steps 3"
gpus() { sed -n 's/.*"gpus": \(\[.*\]\)}}$/\1/p' "$1/metrics.jsonl" | head -1; }
expect() { [ "$2" = "$3" ] || fail "$1: $2, expected $3"; }
first='{"percent": 40.0, "memory_bytes": 250, "memory_percent": 25.0, "temperature_c": 61.0, "power_w": 123.456, "ranks": 0, "xid": 0}'
second='{"percent": 70.0, "memory_bytes": 250, "memory_percent": 25.0, "temperature_c": 61.0, "power_w": null, "ranks": 0, "xid": 79}'

with_nvml() { # KIND DIR VARIABLE...: a run with the stand-in
    local kind=$1 dir=$2
    shift 2
    env LD_LIBRARY_PATH="$BUILD_DIR/standin/$kind${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@" "$TUTTI" train --run-dir "$dir" $mlp \
        --device cpu --tensorboard --wandb offline --system-metrics --prometheus "$dir.prom" >"$dir.out" 2>&1 || { cat "$dir.out"; fail "$dir"; }
}

with_nvml nvml gpus STANDIN_XIDS=1:31,1:79
expect "two GPUs" "$(gpus gpus)" "[$first, $second]"
grep -qF 'tutti_gpu_percent{run="gpus",model="mlp",data="digits",gpu="1"} 70.0' gpus.prom || fail "Prometheus' figures of GPU 1"
grep -qF 'tutti_gpu_xid{run="gpus",model="mlp",data="digits",gpu="1"} 79' gpus.prom || fail "Prometheus' Xid"
expect "the summary's device" "$(field gpus/summary.json device)" CPU

# Only the functions of the first versions; a lost GPU keeps its position.
with_nvml nvml_old old STANDIN_XIDS=1:79
expect "an old library" "$(gpus old)" "[$first, ${second/79/0}]"
with_nvml nvml lost STANDIN_NVML=lost STANDIN_XIDS=0:0
expect "a GPU that is lost" "$(gpus lost)" "[$first, {\"percent\": null, \"memory_bytes\": 0, \"memory_percent\": null, \"temperature_c\": null, \"power_w\": null, \"ranks\": 0, \"xid\": 0}]"
with_nvml nvml off STANDIN_NVML=off
expect "no driver" "$(gpus off)" "[]"

if python3 -c 'import struct' 2>/dev/null; then
    PYTHONPATH=$SOURCE_DIR/tests/harness python3 - <<'PYTHON' || fail "TensorBoard's and W&B's figures"
import glob, records as r
scalars = r.event_file(glob.glob("gpus/tensorboard/*")[0])["scalars"]
assert scalars["system/gpu1_percent"][0][1] == 70 and scalars["system/gpu1_xid"][0][1] == 79 and "system/gpu1_power_w" not in scalars
assert abs(scalars["system/gpu0_power_w"][0][1] - 123.456) < 1e-4
stats = [r.items(m, 3) for k, m in r.wandb(glob.glob("gpus/wandb/offline*/*.wandb")[0]) if k == "stats"][0]
assert stats["gpu.0.gpu"] == 40 and stats["gpu.1.temp"] == 61 and stats["gpu.0.powerWatts"] == 123.456
PYTHON
fi
echo "figures of GPUs are right"
