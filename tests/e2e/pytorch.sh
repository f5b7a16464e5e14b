# pytorch.sh -- unmodified PyTorch programs under `tutti run`, and `tutti` under torchrun.   SPDX-License-Identifier: MIT
# timeout: 240, tier: long
#
# With the PyTorch of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?}/tests/harness/expect.sh" || exit 1
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch with Gloo (pip install torch; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
PATH=$(dirname "$python"):$PATH # a script is started by python3, and torchrun is in the same folder
train=$SOURCE_DIR/examples/pytorch_ddp.py
unset PET_NNODES PET_NPROC_PER_NODE

run() { # CODE COMMAND...: as in expect.sh, but PyTorch takes seconds to begin
    local code=$1 got
    shift
    timeout -k 2 270 "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$code" ] && return
    fail "exit code $got, expected $code: $*"
    tail -n 20 "$work/out" "$work/err"
}

# ---- It trains, by DDP and Gloo, as under torchrun.
run 0 "$TUTTI" run -n 2 python3 "$train"
out_has '^\[0\] epoch 4  loss 0\.0000'
for rank in 0 1; do out_has "^\[$rank\] rank $rank \(local $rank\) of 2: done, replicas agree"; done
equal "lines of rank 0" "$(grep -c '^\[0\] epoch ' "$work/out")" 5

# ---- A module, by the flags of PyTorch's own examples
(cd "$SOURCE_DIR/examples" && PYTHONDONTWRITEBYTECODE=1 timeout 270 "$TUTTI" run --nnodes=1 --nproc_per_node=2 --rdzv_id=101 \
    --rdzv_backend c10d --rdzv_endpoint=localhost:0 -m pytorch_ddp --epochs 1) >"$work/out" 2>"$work/err" || fail "-m pytorch_ddp: exit code $?"
out_has 'of 2: done, replicas agree'

# ---- Two nodes, here both on this machine
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
nodes="$TUTTI run --nnodes 2 --nproc_per_node 1 --rdzv_id 7 --rdzv_backend c10d --rdzv_endpoint localhost:$port $train --epochs 1"
timeout 270 $nodes >"$work/node" 2>&1 &
run 0 $nodes
wait $! || { fail "the other node: exit code $?" && tail -n 20 "$work/node"; }
equal "ranks of both nodes that are done" "$(cat "$work/out" "$work/node" | grep -cE 'rank [01] \(local 0\) of 2: done, replicas agree')" 2

# ---- An exception of a worker: its exit code, name, and message; with torch's @record or without
for how in "" --record; do
    # shellcheck disable=SC2086
    run 1 "$TUTTI" run -n 2 "$train" --epochs 2 --fail-rank 1 $how
    err_has 'rank 1 failed first: exit code 1'
    err_has '^    \| .*ValueError: rank 1 was asked to fail'
    out_has '^\[0\] epoch 0 '
done
pgrep -f "python3 $train" >/dev/null && fail "workers are left"

# ---- A program of Tutti's under the real torchrun
if command -v torchrun >/dev/null; then
    run 0 torchrun --standalone --nproc-per-node 2 --no-python "$TUTTI" bench all_reduce --sizes 4,4K --iterations 5
    out_has ' 4096 '
fi
finish
