# mpi_train.sh -- under each mpirun: tutti train without flags, and over MPI, with the weights of two workers of tutti run;
# errors about MPI.   timeout: 180   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
unset OMPI_COMM_WORLD_SIZE PMI_RANK TUTTI_MPI TUTTI_BACKEND
# As root, more ranks than cores, not tied to cores.
export ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none
ran=""

# under MPI N DIR ARGUMENTS...: a run into DIR that must end well
under() { launched "$3" timeout 180 "mpirun.$1" -n "$2" -- "${@:4}"; }
# Unlike `refused`, with any exit code but 0: each mpirun handles the ranks' codes in its own way.
fails() {
    local text=$1
    shift
    for try in 1 2 3; do # MPICH's mpirun may end before it has read what its ranks printed
        timeout 180 "$@" >fails.out 2>&1 && fail "exit code 0 from: $*"
        [ ! -s fails.out ] || break
        echo "no output, try $try: $*"
    done
    grep -qF -e "$text" fails.out || { cat fails.out; fail "does not say \"$text\": $*"; }
}

small=(--model mlp --epochs 1 --lr 0.05 --max-steps 12)
train native -n 2 "${small[@]}"
train three -n 3 "${small[@]}" --bucket-mb 0.01
for mpi in openmpi mpich; do
    module=$(find "$BUILD_DIR" -name "libtutti_mpi_$mpi.so")
    command -v "mpirun.$mpi" >/dev/null && [ -n "$module" ] || {
        echo "no mpirun.$mpi, or no module for it: left out"
        continue
    }
    ran="$ran $mpi"

    # No flag: our own transports.
    under "$mpi" 2 "plain-$mpi" "${small[@]}"
    says "plain-$mpi" '2 ranks \(shared memory\)'
    same native "plain-$mpi"

    # MPI between hosts: on one there is nothing for it to do.
    under "$mpi" 2 "host-$mpi" "${small[@]}" --backend mpi
    says "host-$mpi" '2 ranks \(shared memory\)'
    same native "host-$mpi"

    # All by MPI: the bits of our own transports.
    export TUTTI_TRANSPORT=tcp
    under "$mpi" 2 "mpi-$mpi" "${small[@]}" --backend mpi
    says "mpi-$mpi" '2 ranks \(mpi\)'
    same native "mpi-$mpi"
    losses native >a && losses "mpi-$mpi" >b && close a b 0

    TUTTI_BACKEND=mpi under "$mpi" 3 "three-$mpi" "${small[@]}" --bucket-mb 0.01
    says "three-$mpi" '3 ranks \(mpi\)'
    same three "three-$mpi"

    # Which module: by path; not that of another MPI; not a file that is no module.
    TUTTI_MPI=$module under "$mpi" 2 "path-$mpi" "${small[@]}" --backend mpi
    same native "path-$mpi"
    TUTTI_MPI=nosuch fails 'there is no libtutti_mpi_nosuch.so' "mpirun.$mpi" -n 2 "$TUTTI" train --backend mpi
    refused 2 'there is no libtutti_mpi_nosuch.so' env TUTTI_MPI=nosuch "$TUTTI" train --backend mpi
    TUTTI_MPI=/no/such/module.so fails 'the module cannot be loaded: /no/such/module.so' \
        "mpirun.$mpi" -n 2 "$TUTTI" train --backend mpi
    fails 'MPI knows nothing of the others' "$TUTTI" run -n 2 "$TUTTI" train --backend mpi
    missing='backend nccl: there is no module' # of a build without it
    [ ! -e "$(dirname "$module")/libtutti_nccl.so" ] || missing='device cuda: '
    fails "$missing" "mpirun.$mpi" -n 2 env TUTTI_BACKEND=nccl "$TUTTI" train --device cuda

    # A binary without modules in its folder.
    mkdir -p "alone-$mpi" && cp "$TUTTI" "alone-$mpi/tutti"
    fails 'there is no module libtutti_mpi_*.so' "mpirun.$mpi" -n 2 "alone-$mpi/tutti" train --backend mpi

    # Killing a rank during training ends the job, and leaves nothing.
    begin=$(date +%s%N)
    timeout 180 "mpirun.$mpi" -n 2 "$TUTTI" train --run-dir "killed-$mpi" "${small[@]}" --epochs 100000 --max-steps 0 \
        --backend mpi >"killed-$mpi.out" 2>&1 &
    job=$!
    until grep -qs '"step"' "killed-$mpi/metrics.jsonl"; do
        kill -0 $job 2>kill.out || { cat "killed-$mpi.out"; fail "the job has ended by itself"; }
        sleep 0.02
    done
    victim=$(pgrep -f -- "--run-dir killed-$mpi " | while read -r pid; do
        [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$TUTTI")" ] && echo "$pid"
    done | tail -1)
    begin=$(date +%s%N)
    kill -KILL "$victim"
    wait $job && fail "exit code 0 after a rank was killed"
    unset TUTTI_TRANSPORT
    awk "BEGIN { exit !(($(date +%s%N) - $begin) / 1e9 < 20) }" || fail "the job took too long to end"
    echo "$mpi: a rank killed, the job over after $((($(date +%s%N) - begin) / 1000000)) ms"
    for _ in $(seq 3000); do
        pgrep -f -- "--run-dir killed-$mpi " >left.out || break
        sleep 0.01
    done
    pgrep -f -- "--run-dir killed-$mpi " >left.out && fail "processes are left: $(cat left.out)"
done

case $ran in
"")
    echo "skipped: no mpirun.openmpi or mpirun.mpich, or no module for it in this build"
    exit 77
    ;;
" openmpi mpich")
    TUTTI_MPI=mpich fails 'believes that this process is alone' mpirun.openmpi -n 2 "$TUTTI" train --backend mpi
    TUTTI_MPI=openmpi fails 'believes that this process is alone' mpirun.mpich -n 2 "$TUTTI" train --backend mpi
    refused 2 'there are modules for mpich, openmpi' "$TUTTI" train --backend mpi
    ;;
esac
refused 2 'mpirun -n 2 tutti train --backend mpi' "$TUTTI" train -n 2 --backend mpi
echo "trained over MPI:$ran"
