# torch_hosts.sh -- torchrun and srun on two hosts, which are network namespaces, with backend "tutti".   timeout: 560
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/slurm.sh"
hosts_enter alpha beta
. "$SOURCE_DIR/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/torch.sh"
hosts_up
export OMP_NUM_THREADS=1

torchrun() { # NAME WHAT FLAGS...: on both hosts; their output is in NAME.0 and NAME.1
    local name=$1 what=$2 i pids=()
    for i in 0 1; do
        on_host $i timeout -k 2 120 "$python" -m torch.distributed.run --nnodes 2 --nproc-per-node 2 "${@:3}" --node-rank $i \
            "$SOURCE_DIR/tests/harness/program/torch_hosts.py" "$what" >"$name.$i" 2>&1 &
        pids+=($!)
    done
    for i in 0 1; do
        wait "${pids[i]}"
        codes[i]=$?
    done
}
says() { # FILE REGEX
    grep -qE -- "$2" "$1" || { fail "no \"$2\" in $1:" && tail -n 30 "$1"; }
}
codes=()
static="--master-addr alpha --master-port 29500"

# shellcheck disable=SC2086 # several arguments
torchrun static works $static
torchrun c10d works --rdzv-backend c10d --rdzv-endpoint alpha:29400 --rdzv-id job
for name in static c10d; do
    says $name.0 "rank 0 of 4 works on alpha"
    says $name.1 "rank 3 of 4 works on beta"
done
[ "${codes[*]}" = "0 0" ] || fail "exit codes ${codes[*]}"

# The survivors of both hosts name the rank that died, and its host.
# shellcheck disable=SC2086
torchrun death dies $static
says death.0 "rank 0 sees: .*rank 3 \\(beta"
says death.0 "rank 1 sees: .*rank 3 \\(beta"
says death.1 "rank 2 sees: .*rank 3 \\(beta"

if "$python" -c 'import sys, torch.distributed as d; sys.exit(not hasattr(d, "_reconfigure"))'; then
    # shellcheck disable=SC2086
    torchrun regroups regroups $static
    says regroups.0 "rank 0 on alpha has 4 members, by 10.88.0.1"
    says regroups.1 "rank 3 on beta has 3 members, by 10.88.0.2"
else
    echo "this PyTorch has no reconfigure: not tried between hosts"
fi

# Slurm has other names for what PyTorch reads.
if (slurm_needed) >/dev/null; then
    slurm_start
    # shellcheck disable=SC2016 # variables of the task
    MASTER_ADDR=alpha MASTER_PORT=29501 timeout -k 2 120 srun -N2 --ntasks-per-node=2 \
        sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$@"' task \
        "$python" "$SOURCE_DIR/tests/harness/program/torch_hosts.py" works >slurm.log 2>&1 </dev/null || fail "exit code $? of srun"
    says slurm.log "rank 0 of 4 works on alpha"
    says slurm.log "rank 3 of 4 works on beta"
    slurm_stop
else
    echo "no Slurm here: srun was not tried"
fi
finish
