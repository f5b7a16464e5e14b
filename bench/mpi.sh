#!/bin/bash
# mpi.sh: all_reduce of F32 through backend mpi, beside the same MPI called by itself, in one run, for each MPI that is here.
#
#   bench/mpi.sh           microseconds, medians of rounds A B A B ...
#   PEERS=../shared/bench ROUNDS=5 RANKS=2 SIZES="4 4096" bench/mpi.sh
#
# PEERS holds mpi_all_reduce.c, which knows the sizes 4 4096 65536 1048576 4194304 26214400.
set -euo pipefail
cd "$(dirname "$0")/.."
PEERS=${PEERS:-../shared/bench} ROUNDS=${ROUNDS:-5} RANKS=${RANKS:-2} TUTTI=${TUTTI:-build/tutti}
SIZES=${SIZES:-4 4096 65536 1048576 4194304 26214400}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { awk -v b="$2" '$1 == b {print $2}' "$1" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
for mpi in openmpi mpich; do
    command -v "mpirun.$mpi" >/dev/null && "mpicc.$mpi" -O2 -w -o "$work/peer" "$PEERS/mpi_all_reduce.c" || continue
    : >"$work/ours" && : >"$work/peers"
    for _ in $(seq "$ROUNDS"); do
        "mpirun.$mpi" -n "$RANKS" "$TUTTI" bench all_reduce --backend mpi --sizes "${SIZES// /,}" |
            awk '!/^#/ {print $1, $(NF - 4)}' >>"$work/ours"
        timeout 60 "mpirun.$mpi" -n "$RANKS" "$work/peer" | awk '{print $1, $3}' >>"$work/peers"
    done
    printf '%s, %d ranks, us: medians of %d rounds\n%10s %12s %12s %8s\n' "$mpi" "$RANKS" "$ROUNDS" bytes "backend mpi" \
        "MPI itself" ours/MPI
    for b in $SIZES; do
        ours=$(median "$work/ours" "$b") peer=$(median "$work/peers" "$b")
        printf '%10s %12s %12s %8s\n' "$b" "$ours" "$peer" "$(awk "BEGIN {printf \"%.2f\", $ours / $peer}")"
    done
done
