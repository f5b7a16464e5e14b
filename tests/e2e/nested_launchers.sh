# nested_launchers.sh -- a launcher inside a launcher would start as many jobs as ranks: refused, with the right command.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
torchrun=${TUTTI_TEST_TORCHRUN:-$(command -v torchrun)}
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE TUTTI_TEST_TORCHRUN

# refused_under NAME LAUNCHER...: what starts ranks itself is refused below it, once, before anything is done
refused_under() {
    local name=$1
    shift
    for command in "train -n 2 --run-dir $work/run" "bench all_reduce -n 2" "run -n 2 true"; do
        # Each launcher reports failed ranks in its own way and with its own code. One that has started nothing
        # (seen once with Open MPI, beside other tests) is retried.
        for try in 1 2; do
            timeout -k 2 60 "$@" bash -c '"$@" 2>&1; echo "code $?"' sh "$TUTTI" $command >"$work/out" 2>&1
            grep -q '^code\|\] code' "$work/out" && break
            echo "$name started nothing: $(head -c 2000 "$work/out")"
        done
        equal "codes under $name: $command" "$(grep -c 'code 2$' "$work/out")" 2
        out_has "$name has already started 2 processes, and with .tutti ${command%% *}"
        out_has "or drop $name: tutti ${command%% *}"
        equal "messages under $name: $command" "$(grep -c 'has already started 2 processes' "$work/out")" 1
    done
    [ -e "$work/run" ] && fail "a refused training made its run folder"
}
refused_under "tutti run" "$TUTTI" run -n 2
command -v mpirun >/dev/null && mpirun --version 2>&1 | grep -q "Open MPI" &&
    refused_under mpirun mpirun --oversubscribe -n 2
command -v mpiexec.hydra >/dev/null && refused_under mpirun mpiexec.hydra -n 2
[ -n "$torchrun" ] && refused_under torchrun "$torchrun" --standalone --nproc-per-node 2 --no-python

# The numbers that srun sets; a real one is in mpi_srun.sh. One `tutti run` per node is allowed.
step="SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_JOB_ID=1"
run 2 env $step "$TUTTI" train -n 2
err_has '^tutti train: srun has already started 2 processes'
run 2 env $step SLURM_PROCID=1 SLURM_LOCALID=1 "$TUTTI" train -n 2
equal "words of rank 1" "$(cat "$work/err")" ""

# Some of them alone, which a container or a copied environment leaves: the advice is one that both commands obey.
unset_them='if this is no task of Slurm: unset SLURM_PROCID SLURM_STEP_NUM_TASKS$'
for some in SLURM_PROCID=1 "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2" "$step" "SLURM_STEP_ID=0 SLURM_PROCID=0"; do
    for command in "bench barrier --iterations 1" "run -n 2 true"; do
        [ "$some" = "$step" ] && [[ $command = bench* ]] && continue # enough for a rank
        run 2 env $some "$TUTTI" $command
        err_has "$unset_them"
        run 0 env $some env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS "$TUTTI" $command
    done
done

# One process is no job of several; a pod's RANK is its position, not a sign of a launcher.
run 0 env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 "$TUTTI" run -n 2 true
run 0 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 PET_NNODES=1 "$TUTTI" run -n 2 true
run 0 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "$TUTTI" run -n 2 true
run 0 "$TUTTI" run -n 1 "$TUTTI" bench all_reduce -n 2 --sizes 4 --iterations 1
out_has 'all_reduce'

# With an explicit number of nodes another launcher may start one on each.
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
run 0 "$TUTTI" run -n 2 sh -c 'exec "$0" run --nnodes 2 --node-rank $RANK --master-addr 127.0.0.1 --master-port '"$port"' -n 2 \
    sh -c "echo rank \$RANK of \$WORLD_SIZE"' "$TUTTI"
equal "ranks" "$(sed -n 's/.*rank \([0-3]\) of 4$/\1/p' "$work/out" | sort | tr '\n' ,)" 0,1,2,3,
finish
