#!/bin/bash
# ranks.sh N COMMAND...: N copies of a command with the environment that torch.distributed reads; fails if any does.
#   SPDX-License-Identifier: MIT
n=$1 failed=0 pids=""
shift
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n PYTHONUNBUFFERED=1
for rank in $(seq 0 $((n - 1))); do
    RANK=$rank LOCAL_RANK=$rank "$@" &
    pids="$pids $!"
done
for pid in $pids; do wait "$pid" || failed=1; done
exit $failed
