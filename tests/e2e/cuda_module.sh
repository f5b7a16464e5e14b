#!/bin/bash
# cuda_module.sh -- where the CUDA module is found, the errors if it is missing or cannot be loaded, and training with it
# over the stand-ins of NVIDIA's libraries.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --epochs 1 --max-steps 4 --eval-every 0"
module=$(find "$BUILD_DIR" -maxdepth 5 -path '*/tutti/libtutti_cuda.so' | head -1)
standin="$BUILD_DIR/tests/standin/libtutti_cuda.so"
c=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
skipped=""
unset TUTTI_CUDA_MODULE CUDA_VISIBLE_DEVICES
driver=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -c 'libcuda\.so\.1' || true)

# A command that was copied away from its module.
cp "$TUTTI" alone
if ./alone train $mlp --device cuda --run-dir none >out 2>&1 || ! grep -q "there is no libtutti_cuda.so in" out; then
    skipped="$skipped one is installed in the prefix of this build;"
else
    refused 4 "name the module's path in TUTTI_CUDA_MODULE" ./alone train $mlp --device cuda --run-dir none
    TUTTI_LOG=device:debug train auto $mlp --device auto
    grep -q "auto: the CPU, because: device cuda" auto.out || fail "auto does not log why at the debug level"
    ./alone train $mlp --device auto --run-dir quiet >quiet.out 2>&1 || { cat quiet.out; fail "auto without a module"; }
    ! grep -q "cuda" quiet.out || { cat quiet.out; fail "auto prints a message"; }
fi

for device in cpu strict; do
    refused 2 "backend: nccl is between GPUs, and device=$device has none" "$TUTTI" train $mlp --backend nccl --device $device --run-dir none
done
refused 2 "backend nccl is for step: the buffers of all_reduce are the host's" "$TUTTI" bench all_reduce --backend nccl

# A module's missing dependency is named; so is a file that is no module.
export TUTTI_CUDA_MODULE=$PWD/module.so
if [ -n "$c" ]; then
    echo 'int gone; int tutti_x(void) { return gone; }' >gone.c
    echo 'extern int gone; int tutti_y(void); int tutti_y(void) { return gone; }' >module.c
    "$c" -shared -fPIC -o libgone.so.9 gone.c && "$c" -shared -fPIC -o module.so module.c -L. -l:libgone.so.9
    rm libgone.so.9
    refused 4 "libgone.so.9: cannot open shared object file" "$TUTTI" train $mlp --device cuda --run-dir none
    "$c" -shared -fPIC -o module.so gone.c
    refused 4 "module.so is not a module of Tutti" "$TUTTI" train $mlp --device cuda --run-dir none
else
    skipped="$skipped no C compiler;"
fi

# Modules find NVIDIA's libraries where they were at build time, independent of the system's search path.
for file in $module $([ -z "$module" ] || find "$(dirname "$module")" -name libtutti_nccl.so); do
    command -v readelf >/dev/null || break
    runpath=:$(readelf -d "$file" | sed -n 's/.*R.*PATH.*\[\(.*\)\].*/\1/p'):
    for library in CUDNN_LIBRARY NCCL_LIBRARY; do
        folder=$(dirname "$(sed -n "s/^$library:FILEPATH=//p" "$BUILD_DIR/CMakeCache.txt")")
        case $library:$file:$folder in
        CUDNN*nccl.so:* | NCCL*cuda.so:* | *:/usr/lib* | *:/lib*) continue ;;
        esac
        [[ $runpath == *:$folder:* ]] || fail "$file does not look in $folder, but in $runpath"
    done
done

if [ -n "$module" ] && [ "$driver" = 0 ]; then
    unset TUTTI_CUDA_MODULE
    refused 4 "device cuda: no NVIDIA driver (libcuda.so.1" "$TUTTI" train $mlp --device cuda --run-dir none
    refused 4 "or use --device cpu (auto chooses it by itself)" "$TUTTI" train $mlp --device cuda --run-dir none
    if [ -e "${module%_cuda.so}_nccl.so" ]; then
        refused 4 "backend nccl is for GPUs (auto and native need none): device cuda: no NVIDIA driver" "$TUTTI" train $mlp --backend nccl --run-dir none
    fi
    # The module itself, with NVIDIA's own run-time.
    refused 4 "no NVIDIA driver" env TUTTI_CUDA_MODULE="$module" ./alone train $mlp --device cuda --run-dir none
else
    skipped="$skipped no CUDA module in this build, or a driver on this machine;"
fi

# If there seems to be a driver, auto reports why it uses the CPU; not if the GPUs are hidden on purpose.
cat >with_driver <<'END'
mkdir dev && mount -t tmpfs dev dev && mkdir dev/shm && touch dev/nvidiactl || exit 77
for node in null zero random urandom; do touch dev/$node && mount --bind /dev/$node dev/$node || exit 77; done
mount --rbind dev /dev && "$@"
END
if unshare -rm bash with_driver true 2>/dev/null; then
    rm -rf dev
    TUTTI_CUDA_MODULE='' unshare -rm bash with_driver ./alone train $mlp --run-dir idle >idle.out 2>&1 || { cat idle.out; fail "auto beside a driver"; }
    [ "$(grep -c 'device auto uses the CPU, although NVIDIA.s kernel driver is here (/dev/nvidiactl): device cuda: ' idle.out)" = 1 ] || { cat idle.out; fail "auto does not say why a GPU idles"; }
    rm -rf dev
    CUDA_VISIBLE_DEVICES='' TUTTI_CUDA_MODULE='' unshare -rm bash with_driver ./alone train $mlp --run-dir hidden >hidden.out 2>&1 || { cat hidden.out; fail "hidden GPUs"; }
    ! grep -q "uses the CPU" hidden.out || fail "auto warns of GPUs that are hidden"
else
    skipped="$skipped no mount namespace, so no driver beside a build without CUDA;"
fi

if [ -e "$standin" ]; then
    export TUTTI_CUDA_MODULE=$standin
    train cpu $mlp --device cpu
    train gpu $mlp --device auto
    [ "$(field gpu/summary.json device)" = "stand-in GPU" ] || fail "auto: $(field gpu/summary.json device)"
    losses cpu >cpu.losses
    losses gpu >gpu.losses
    close cpu.losses gpu.losses 1e-4
    refused 2 "the last is cuda:0" "$TUTTI" train $mlp --device cuda:1 --run-dir none
    refused 4 "out of memory: asked for" env STANDIN_CUDA_MEMORY=1 "$TUTTI" train $mlp --device cuda --run-dir full
    grep -q -- "--batch-size" refused.out || fail "out of memory, and no remedy"
    refused 4 "an illegal memory access was encountered" env STANDIN_CUDA_FAULT=0:400 "$TUTTI" train --model mlp --epochs 1 --device cuda --run-dir broken
    grep -q "cuda:0 (stand-in GPU)" refused.out || { cat refused.out; fail "the message does not name the device"; }

    # After warm-up the host waits only for results, not for memory: as often for 60 steps as for 20. (The guard and the record read memory now and then.)
    for steps in 20 60; do
        STANDIN_CUDA_REPORT=1 train "waits$steps" --model mlp --epochs 9 --max-steps $steps --eval-every 0 --log-every 1000 --no-guard --trace-digests 0 --device cuda
        sed -n 's/^standin cuda: //p' "waits$steps.out" >"waits$steps.txt"
        grep -q '^cudaMalloc ' "waits$steps.txt" || { cat "waits$steps.out"; fail "no report of waits"; }
    done
    for function in cudaMalloc cudaFree cudaHostAlloc cudaFreeHost "pageable copy"; do
        few=$(sed -n "s/^$function //p" waits20.txt) many=$(sed -n "s/^$function //p" waits60.txt)
        [ "${few:-0}" = "${many:-0}" ] || fail "$function: ${few:-0} times in 20 steps, ${many:-0} in 60"
    done
    few=$(sed -n "s/^cudaStreamSynchronize //p" waits20.txt) many=$(sed -n "s/^cudaStreamSynchronize //p" waits60.txt)
    [ $((many - few)) -le 44 ] || fail "$((many - few)) waits for a stream in 40 steps, expected one a step and few for an epoch"
else
    skipped="$skipped the module over stand-ins was not built (NVIDIA's toolkit and cuDNN were not found);"
fi
[ -z "$skipped" ] || echo "left out:$skipped"
echo "the module is right"
