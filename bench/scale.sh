#!/bin/bash
# scale.sh: many ranks on this host, more than it has cores: from the start to the end of the first all_reduce, calls, what a rank
# holds at most, and the whole job; Tutti compared with Open MPI and MPICH.
#
#   bench/scale.sh                        16 to 1,000 processes by Tutti, 16 to MPI_MOST by the MPIs
#   RANKS="16 64" MPI_MOST=128 TUTTI_TRANSPORT=tcp bench/scale.sh
#   MPICH=/usr bench/scale.sh             MPICH's prefix; the tools may be called mpicc.mpich
#
# Calls are medians of 9, each after a barrier, of rank 0, in microseconds. Descriptors, sockets among them, and private memory are
# the most of any rank, after its first all_reduce. A job that takes more than SECONDS is given up: "-".
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-16 64 128 256 512 1000} MPI_MOST=${MPI_MOST:-256} SECONDS_MOST=${SECONDS_MOST:-120}
build=$(dirname "$TUTTI")

declare -A launcher=()
for name in openmpi mpich; do
    if command -v "mpicc.$name" >/dev/null &&
        "mpicc.$name" -O2 -w -o "$work/$name" bench/peer/mpi_scale.c >"$work/log" 2>&1; then
        launcher[$name]=mpirun.$name
    else
        echo "left out: ${peer_title[$name]} (no mpicc.$name)" >&2
    fi
done

one() { # COMMAND...: a row's cells
    local begin=$EPOCHREALTIME
    if BEGIN=$begin timeout "$SECONDS_MOST" "$@" >"$work/out" 2>"$work/log"; then
        sed 's/^\[[^]]*\] *//' "$work/out" | awk -v begin="$begin" -v end="$EPOCHREALTIME" '
            NF == 2 {v[$1] = $2}
            END {
                printf "%.2f | %s | %s | %s | %s | %s | %s | %.1f | %.2f |\n", v["first"] / 1e3, v["4"], v["4096"], v["1048576"],
                    v["all_to_all"], v["descriptors"], v["sockets"], v["private_kib"] / 1024, end - begin
            }'
    else
        tail -n 1 "$work/log" | cut -c1-200 >&2
        echo "- | - | - | - | - | - | - | - | - |"
    fi
}

echo "| ranks | | first all_reduce, s | 4 B, us | 4 KiB | 1 MiB | all_to_all 4 B | descriptors | sockets | MiB a rank | whole job, s |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for ranks in $RANKS; do
    printf '| %s | Tutti | ' "$ranks"
    one "$TUTTI" run -n "$ranks" "$build/bench/bench_comm_scale"
    [ "$ranks" -le "$MPI_MOST" ] || continue
    for name in "${!launcher[@]}"; do
        printf '| | %s | ' "${peer_title[$name]}"
        OMPI_MCA_mpi_yield_when_idle=1 one "${launcher[$name]}" -n "$ranks" "$work/$name"
    done
done
