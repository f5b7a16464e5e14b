#!/bin/bash
# mpi.sh: all_reduce of F32 by backend mpi, without shared memory, compared with the same MPI called directly, in one run, for each MPI
# available.
#
#   bench/mpi.sh           microseconds, medians of rounds A B A B ...
#   PEERS=../shared/bench ROUNDS=5 RANKS=2 SIZES="4 4096" bench/mpi.sh
#
# PEERS contains mpi_all_reduce.c, which has the sizes 4 4096 65536 1048576 4194304 26214400.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} RANKS=${RANKS:-2} SIZES=${SIZES:-4 4096 65536 1048576 4194304 26214400}

[ -f "$PEERS/mpi_all_reduce.c" ] || { echo "mpi.sh: no mpi_all_reduce.c in $PEERS; name its folder, as PEERS=DIR" && exit 0; }
for mpi in openmpi mpich; do
    command -v "mpirun.$mpi" >/dev/null || { echo "mpi.sh: without $mpi: no mpirun.$mpi" && continue; }
    "mpicc.$mpi" -O2 -w -o "$work/peer" "$PEERS/mpi_all_reduce.c" || continue
    : >"$work/ours.times" && : >"$work/peers.times"
    for _ in $(seq "$ROUNDS"); do
        ours_mpi "$mpi" all_reduce "$RANKS" "$SIZES" >>"$work/ours.times"
        timeout 60 "mpirun.$mpi" -n "$RANKS" "$work/peer" | awk '{print $1, $3}' >>"$work/peers.times"
    done
    printf '%s, %d ranks, us: medians of %d rounds\n%10s %12s %12s %8s\n' "$mpi" "$RANKS" "$ROUNDS" bytes "backend mpi" \
        "MPI itself" ours/MPI
    for b in $SIZES; do
        ours=$(median_of ours "$b") peer=$(median_of peers "$b")
        printf '%10s %12s %12s %8s\n' "$b" "$ours" "$peer" "$(ratio "$ours" "$peer")"
    done
done
