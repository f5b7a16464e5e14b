#!/bin/bash
# tcp.sh: all_reduce of F32 over TCP loopback, Tutti compared with the bound of TCP itself and Open MPI over TCP, in one run.
#
#   bench/tcp.sh           microseconds, medians of rounds A B C A B C ...
#   PEERS=../shared/bench ROUNDS=5 SOCKETS=2 bench/tcp.sh
#
# PEERS contains limit_tcp_exchange.c (the bytes of a 25 MiB all_reduce of two ranks, both ways at once, no arithmetic) and
# mpi_all_reduce.c. If it or mpicc is missing, that column is "-".
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5}
export TUTTI_SOCKETS_PER_PAIR=${SOCKETS:-1}
sizes="4 4096 65536 1048576 4194304 26214400"

limit() { [ ! -x "$work/limit" ] || timeout 60 "$work/limit" | sed -n 's/.*: \([0-9.]*\) ms.*/26214400 \1e3/p'; }
mpi() {
    [ ! -x "$work/mpi" ] || timeout 60 mpirun --mca btl tcp,self -np 2 "$work/mpi" 2>/dev/null |
        awk '{print $1, $3}'
}

cc -O2 -w -o "$work/limit" "$PEERS/limit_tcp_exchange.c" -lpthread 2>/dev/null || true
mpicc -O2 -w -o "$work/mpi" "$PEERS/mpi_all_reduce.c" 2>/dev/null || true
touch "$work"/{ours,limit,mpi}.times
for _ in $(seq "$ROUNDS"); do
    TUTTI_TRANSPORT=tcp ours all_reduce 2 "$sizes" --memory plain >>"$work/ours.times"
    limit >>"$work/limit.times"
    mpi >>"$work/mpi.times"
done
echo "all_reduce over TCP loopback, 2 ranks, F32, us: medians of $ROUNDS rounds, $TUTTI_SOCKETS_PER_PAIR sockets a pair"
printf '%10s %10s %10s %10s | %12s %12s\n' bytes ours bound "Open MPI" bound/ours MPI/ours
for b in $sizes; do
    o=$(median_of ours "$b") l=$(median_of limit "$b") m=$(median_of mpi "$b")
    printf '%10s %10s %10s %10s | %12s %12s\n' "$b" "$o" "$l" "$m" "$(ratio "$l" "$o")" "$(ratio "$m" "$o")"
done
