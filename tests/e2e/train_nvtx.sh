#!/bin/bash
# train_nvtx.sh -- the parts of a step are ranges for NVIDIA's profilers: what a tool loaded by NVTX receives, on the tests'
# stand-ins of CUDA.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_CUDA_MODULE=$BUILD_DIR/tests/standin/libtutti_cuda.so NVTX_INJECTION64_PATH=$BUILD_DIR/tests/standin/libstandin_nvtx.so
[ -e "$TUTTI_CUDA_MODULE" ] || { echo "skipped: the module over stand-ins was not built (it needs the CUDA toolkit's headers)" && exit 77; }
export STANDIN_NVTX=$work/ranges

train out -n 2 --model mlp --data digits --batch-size 16 --max-steps 3 --eval-every 0 --device cuda --backend native

# Each thread's ranges nest and are closed at the end; NAME COUNT lines of the paths, "backward/all_reduce bucket 0" for one in another.
awk '{ thread = $1 " " $2 }
     $3 == "+" { name = $0; sub(/^[^+]*[+] /, "", name); n = ++depth[thread]; path[thread, n] = (n > 1 ? path[thread, n - 1] "/" : "") name; count[path[thread, n]]++ }
     $3 == "-" { if (depth[thread]-- < 1) { print "an end without a beginning"; bad = 1 } }
     END { for (t in depth) if (depth[t] > 0) { print "left open: " path[t, depth[t]]; bad = 1 }
           for (p in count) print p ": " count[p]
           exit bad }' ranges >ranges.sum || { cat ranges.sum; fail "ranges do not nest"; }
for name in data forward backward optimizer; do
    grep -qx "$name: 6" ranges.sum || { cat ranges.sum; fail "\"$name\" is not once in each of 3 steps of 2 ranks"; }
done
grep -qx 'all_reduce bucket 0: 6' ranges.sum || { cat ranges.sum; fail "a bucket is not reduced once in each step of each rank"; }
echo "NVTX sees the parts of a step"
