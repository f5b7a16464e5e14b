# mpi_bench.sh -- every collective is correct over each MPI, with 2, 3 and 4 ranks; if ranks cannot meet otherwise, MPI is chosen.
# timeout: 180
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TUTTI_MPI TUTTI_BACKEND
export ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none
ran=""

fails() { # WHAT COMMAND...: on "hosts" of one rank each, with another exit code than 0
    local what=$1 try
    shift
    for try in 1 2 3; do # MPICH's mpirun may end before it has read what its ranks printed
        timeout 60 "mpirun.$mpi" -n 2 "${hosts[@]}" "$@" >"$work/out" 2>"$work/err" && fail "$what"
        [ ! -s "$work/err" ] || break
        echo "no output, try $try: $*"
    done
}
for mpi in openmpi mpich; do
    command -v "mpirun.$mpi" >/dev/null && [ -n "$(find "$BUILD_DIR" -name "libtutti_mpi_$mpi.so")" ] || {
        echo "no mpirun.$mpi, or no module for it: left out"
        continue
    }
    ran="$ran $mpi"
    export TUTTI_TRANSPORT=tcp # MPI also within this host
    n=2
    for op in all_reduce reduce reduce_scatter broadcast scatter gather all_gather all_gather_v all_to_all all_to_all_v; do
        run 0 "mpirun.$mpi" -n $n "$TUTTI" bench $op --backend mpi --sizes 8,12K,600K --iterations 4 --dtype \
            "$(echo f32 f64 bf16 i8 | cut -d' ' -f$n)"
        out_has "^# $op, $n ranks \(mpi\)"
        equal "rows of $op" "$(grep -vc '^#' "$work/out")" 3
        equal "wrong of $op" "$(awk '!/^#/ { n += $NF } END { print n + 0 }' "$work/out")" 0
        n=$((n % 3 + 2))
    done
    run 0 "mpirun.$mpi" -n 3 "$TUTTI" bench barrier --backend mpi --iterations 4
    run 0 "mpirun.$mpi" -n 2 "$TUTTI" bench all_reduce --backend mpi --in-flight 8 --memory plain --sizes 64K --iterations 4
    equal "wrong in flight" "$(awk '!/^#/ { n += $NF } END { print n + 0 }' "$work/out")" 0

    run 0 "mpirun.$mpi" -n 3 "$TUTTI" bench ping_pong --backend mpi --sizes 8,600K --iterations 4
    equal "wrong of ping_pong" "$(awk '!/^#/ { n += $NF } END { print n + 0 }' "$work/out")" 0

    unset TUTTI_TRANSPORT
    run 0 "mpirun.$mpi" -n 2 "$TUTTI" bench all_reduce --backend mpi --sizes 8 --iterations 2
    out_has '2 ranks \(shared memory\)'

    # No flag: native on one host; MPI if mpirun's variables show several hosts, and no MASTER_ADDR is set.
    run 0 "mpirun.$mpi" -n 2 "$TUTTI" bench all_reduce --sizes 8 --iterations 2
    out_has '2 ranks \(shared memory\)'
    if unshare -rn ip link set lo up 2>/dev/null; then # a machine without a network
        run 0 unshare -rn sh -c 'ip link set lo up && exec "$@"' sh \
            "mpirun.$mpi" -n 2 "$TUTTI" bench all_reduce --backend mpi --sizes 8 --iterations 2
        out_has '2 ranks \(shared memory\)'
    fi
    # Simulates one rank per host: --backend native must be refused, and auto names both remedies if MPI fails.
    hosts=(env OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0)
    run 0 "mpirun.$mpi" -n 2 "${hosts[@]}" TUTTI_TRANSPORT=tcp "$TUTTI" bench all_reduce --sizes 8 --iterations 2
    out_has '2 ranks \(mpi\)'
    fails "native without an address" "$TUTTI" bench all_reduce --backend native
    err_has 'MASTER_ADDR and MASTER_PORT are not set'
    fails "neither an address nor MPI" env TUTTI_MPI=nosuch "$TUTTI" bench all_reduce
    err_has 'MASTER_ADDR and MASTER_PORT are not set.*or let MPI carry the group, but: TUTTI_MPI is "nosuch"'
done
run 2 "$TUTTI" bench all_reduce -n 2 --backend mpi
err_has 'mpirun -n 2 tutti bench all_reduce --backend mpi'
[ -n "$ran" ] || {
    echo "skipped: no mpirun.openmpi or mpirun.mpich, or no module for it in this build"
    exit 77
}
finish
