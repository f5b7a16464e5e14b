# mpi_srun.sh -- under srun of a private Slurm: tutti train without flags, and over each MPI through PMIx or PMI-2.
# timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/slurm.sh"
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries have leaks of their own
unset OMPI_COMM_WORLD_SIZE PMI_RANK TUTTI_MPI TUTTI_BACKEND
trap 'slurm_stop; rm -rf "$work"' EXIT
slurm_start

# under DIR SRUN_FLAGS... -- ARGUMENTS...
under() { launched "$1" timeout 180 srun "${@:2}"; }

small=(--model mlp --epochs 1 --lr 0.05 --max-steps 12)
train native -n 2 "${small[@]}"
under plain -n 2 -- "${small[@]}"
says plain '2 ranks \(shared memory\)'
! grep -i warn plain.out || fail "srun tutti train warns" # it has the user's secret
same native plain

# The usual prologue of an sbatch script, whose variables are incomplete.
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(slurm_free_port) WORLD_SIZE=2
under prologue -n 2 -- "${small[@]}"
same native prologue
unset MASTER_PORT
under address -n 2 -- "${small[@]}"
same native address
WORLD_SIZE=4 refused 2 'WORLD_SIZE is 4, but Slurm started this rank with SLURM_STEP_NUM_TASKS 2' \
    srun -n 2 "$TUTTI" train "${small[@]}"
unset MASTER_ADDR WORLD_SIZE
# srun in the shell of salloc, whose name it inherits.
SLURM_JOB_NAME=interactive under salloc -n 2 -- "${small[@]}"
same native salloc
refused 2 'srun has already started 2 processes' srun -n 2 "$TUTTI" train -n 2
[ "$(grep -c 'srun has already started' refused.out)" = 1 ] || { cat refused.out; fail "the message is printed more than once"; }

ran=""
for pair in pmix:openmpi pmi2:mpich; do
    type=${pair%:*} mpi=${pair#*:}
    srun --mpi=list >types 2>&1 || true
    grep -qw "$type" types && [ -n "$(find "$BUILD_DIR" -name "libtutti_mpi_$mpi.so")" ] || {
        echo "no srun --mpi=$type, or no module for $mpi: left out"
        continue
    }
    ran="$ran $type"
    TUTTI_TRANSPORT=tcp under "$type" -n 2 "--mpi=$type" -- "${small[@]}" --backend mpi
    says "$type" '2 ranks \(mpi\)'
    same native "$type"

    # An MPI that this srun does not support.
    code=0
    TUTTI_MPI=mpich timeout 180 srun -n 2 --mpi=none "$TUTTI" train --backend mpi >none.out 2>&1 || code=$?
    [ "$mpi" != mpich ] || { [ $code = 2 ] && says none 'believes that this process is alone'; } || fail "exit code $code"
done

# A rank that fails ends the step with its code.
code=0
timeout 180 srun -n 2 --kill-on-bad-exit=1 "$TUTTI" train --run-dir bad --data cifar10 --data-dir /no/such >bad.out 2>&1 || code=$?
[ $code != 0 ] && [ $code != 124 ] || { cat bad.out; fail "exit code $code from a run without data"; }
echo "trained under srun, and over MPI by:$ran"
