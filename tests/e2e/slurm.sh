# slurm.sh -- under a Slurm of three nodes, each its own host: srun, salloc, sbatch, tutti run on each node, a killed rank.
# SPDX-License-Identifier: MIT   run: waiting
. "${SOURCE_DIR:?is set by ctest}/tests/harness/slurm.sh"
slurm_needed
hosts_enter n0 n1 n2
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
trap 'slurm_stop; rm -rf "$work"' EXIT
export HOME=$work SLURM_KILL_WAIT=30
hosts_up
slurm_start

small=(--model mlp --epochs 1 --lr 0.05 --max-steps 4 --log-every 1)
# under DIR COMMAND...: a run into DIR, which must succeed, as one job.
under() {
    local dir=$1
    shift
    timeout 90 "$@" --run-dir "$dir" "${small[@]}" >"$dir.out" 2>&1 </dev/null || {
        cat "$dir.out"
        fail "exit code $? from: $*"
    }
}
one_job() { # DIR RANKS STEPS
    [ "$(field "$1/summary.json" world_size)" = "$2" ] && [ "$(losses "$1" | wc -l)" = "$3" ] ||
        { cat "$1.out" "$1/metrics.jsonl" "$1/summary.json" && fail "$1 is not a run of $2 ranks and $3 steps"; }
}

under plain srun -N3 --ntasks-per-node=2 "$TUTTI" train
one_job plain 6 4
says plain '6 ranks \(shared memory \+ tcp\)'
mute plain 'without a secret'

# Nodes with different numbers of tasks (4, 1, 1), a shell of salloc whose job is called "interactive".
under uneven salloc -Q -N3 -n6 srun "$TUTTI" train
one_job uneven 6 4

# A shell started by srun --pty is no rank; processes that it starts by srun are.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then # a terminal can be made
    cat >shell <<END
[ "\$SLURM_PROCID" = 1 ] && exit
srun --overlap -n2 "$TUTTI" train --run-dir pty-two ${small[*]}
"$TUTTI" train --run-dir pty-one ${small[*]}
END
    timeout 90 script -qec 'srun -N1 -n2 --pty bash ./shell' /dev/null </dev/null >pty-two.out 2>&1 ||
        { cat pty-two.out && fail "the shell of srun --pty was taken for a task"; }
    one_job pty-two 2 4
    one_job pty-one 1 4
fi

# hydra starts one daemon per node by srun, whose variables the ranks inherit.
if command -v mpirun.mpich >/dev/null; then
    under hydra salloc -Q -N3 --ntasks-per-node=2 env MPIRUN=mpirun.mpich \
        "$SOURCE_DIR/scripts/mpi/run" -H n0:2,n1:2,n2:2 "$TUTTI" train
    one_job hydra 6 4
    same hydra plain
fi

# One launcher per node.
under nodes srun -N3 --ntasks-per-node=1 "$TUTTI" run -n 2 "$TUTTI" train
one_job nodes 6 4
same nodes plain

# The usual prologue for torchrun.
cat >prologue.sbatch <<'END'
#!/bin/bash
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 10000))
export WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))
srun "$TUTTI" train "$@"
END
timeout 90 sbatch -Q -W -N3 --ntasks-per-node=2 -o prologue.out prologue.sbatch --run-dir prologue "${small[@]}" >sbatch.out ||
    { cat prologue.out && fail "the usual prologue"; }
one_job prologue 6 4
same prologue plain

# Two steps of one job at once.
cat >steps.sbatch <<'END'
#!/bin/bash
srun --exact -N3 -n3 "$TUTTI" train --run-dir step-a "$@" >step-a.out 2>&1 &
srun --exact -N3 -n3 "$TUTTI" train --run-dir step-b "$@" >step-b.out 2>&1 &
wait -n && wait -n
END
timeout 90 sbatch -Q -W -N3 --ntasks-per-node=2 -o steps.out steps.sbatch "${small[@]}" --max-steps 10 >sbatch.out ||
    { cat steps.out step-?.out && fail "two steps at once"; }
one_job step-a 3 10
one_job step-b 3 10
same step-a step-b

# A rank is killed: the others name it and end at once, even if Slurm lets them run on (-K0).
export TUTTI_HEARTBEAT_S=60
for flag in -K0 -K1; do
    dir=killed$flag
    srun $flag -N3 --ntasks-per-node=2 "$TUTTI" train --run-dir $dir --model mlp --epochs 100000 --log-every 1 >$dir.out 2>&1 </dev/null &
    step=$!
    for _ in $(seq 3000); do
        [ -s $dir/metrics.jsonl ] && break
        sleep 0.02
    done
    kill -KILL "$(rank_variable=SLURM_PROCID process_of 3 "^[^ ]*tutti train --run-dir $dir ")"
    begin=$(date +%s%N)
    code=0
    wait $step || code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $code != 0 ] || fail "code 0 after a killed rank"
    says $dir 'rank 3'
    [ $took -lt 15000 ] || { cat $dir.out && fail "a killed rank took $took ms with $flag"; } # not until a heartbeat, or KillWait
    ! pgrep -f "^[^ ]*tutti train --run-dir $dir " || fail "ranks are left"
    times="${times:-} $flag $took ms (code $code)"
done

# A wrong option is reported once per node, not by all six ranks.
code=0
srun -N3 --ntasks-per-node=2 "$TUTTI" train --epochz 3 >wrong.out 2>&1 || code=$?
[ $code = 2 ] && [ "$(grep -c 'epochz' wrong.out)" -le 3 ] || { cat wrong.out && fail "code $code, or more than a line a node, for a wrong option"; }
echo "from the kill of a rank to srun's end:$times"
