# mpi_run.sh -- scripts/mpi/run: ranks by each installed mpirun, on this host, and on two hosts by ssh.
# timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/sshd.sh"
hosts_enter a b
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
hosts_up
export HOME=$work OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries have leaks of their own
unset OMPI_COMM_WORLD_SIZE PMI_RANK TUTTI_MPI TUTTI_BACKEND
small=(--model mlp --epochs 1 --lr 0.05 --max-steps 12)
train native -n 4 "${small[@]}"

# under DIR FLAGS... -- ARGUMENTS...
under() { launched "$1" timeout 120 "$SOURCE_DIR/scripts/mpi/run" "${@:2}" </dev/null; }

printf '%s\n' '# two hosts' 'a slots=2 max_slots=4' '' 'b:2   # the other' >hostfile
ran=""
for MPIRUN in mpirun.openmpi mpirun.mpich; do
    command -v $MPIRUN >/dev/null || continue
    export MPIRUN
    under here-$MPIRUN -n 4 -- "${small[@]}"
    says here-$MPIRUN '4 ranks \(shared memory\)'
    ! grep -q 'without a secret' here-$MPIRUN.out || fail "$MPIRUN has not handed the secret on"
    same native here-$MPIRUN
    ran="$ran $MPIRUN"

    # On two hosts, named and in a file.
    [ -x /usr/sbin/sshd ] || continue
    [ -n "${SSH:-}" ] || sshd_start
    printf '#!/bin/sh\necho "$*" >>%s\nexec %s "$@"\n' "$work/ssh.log" "$SSH" >ssh-there
    chmod +x ssh-there
    case $MPIRUN in
    *openmpi) MPI_FLAGS="--mca plm_rsh_agent $work/ssh-there --mca btl_tcp_if_include eth0,hub" ;;
    *) MPI_FLAGS="-launcher-exec $work/ssh-there" ;;
    esac
    export MPI_FLAGS
    under file-$MPIRUN -f hostfile -- "${small[@]}"
    says file-$MPIRUN '4 ranks \(shared memory \+ tcp\)'
    MPI_FLAGS=${MPI_FLAGS/eth0,hub/eth0} under wire-$MPIRUN -f hostfile -- "${small[@]}" --backend mpi
    says wire-$MPIRUN '4 ranks \(shared memory \+ mpi\)'
    same file-$MPIRUN wire-$MPIRUN
    under list-$MPIRUN -H a:1,b:2 -- "${small[@]}"
    says list-$MPIRUN '3 ranks \(shared memory \+ tcp\)'
    ! grep -qE '[0-9a-f]{64}' ssh.log || fail "$MPIRUN shows the secret on a command line"
    ran="$ran, by ssh"
    unset MPI_FLAGS
done
[ -n "$ran" ] || skip_test "no mpirun (openmpi-bin or mpich of Debian)"

refused 2 'unknown flag --np' "$SOURCE_DIR/scripts/mpi/run" --np 2 true
MPIRUN=/no/mpirun refused 127 'does not run' "$SOURCE_DIR/scripts/mpi/run" -n 2 true
echo "trained by:$ran"
