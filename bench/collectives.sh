#!/bin/bash
# collectives.sh: every collective of F32 on one host, from group memory and from plain memory, beside an MPI's, in one run.
#
#   bench/collectives.sh                       microseconds, medians of rounds A B C A B C ...
#   ROUNDS=3 RANKS=2 bench/collectives.sh
#
# Where mpicc is missing, its column is "-". Both sides take the larger buffer's bytes, and work in place where they may.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} RANKS=${RANKS:-2}
sizes="4096 65536 1048576 26214400"
ops="all_reduce reduce reduce_scatter broadcast scatter gather all_gather all_to_all"

all() { # MEMORY: lines of collective, bytes and microseconds
    for op in $ops; do
        ours "$op" "$RANKS" "$sizes" --memory "$1" | sed "s/^/$op /"
    done
}
mpi() {
    [ ! -x "$work/mpi" ] || timeout 120 mpirun -np "$RANKS" "$work/mpi" 2>/dev/null
}
nth() { # NAME OP LINE-OF-SIZE: ranks round sizes down, so that the n-th size of each is compared
    awk -v op="$2" '$1 == op {print $2, $3}' "$work/$1.times" | sort -g -k1,1 |
        awk -v at="$3" '$1 != last {last = $1; size++} size == at {print $2}' | median
}

mpicc -O2 -o "$work/mpi" bench/peer/mpi_collectives.c 2>/dev/null || true
touch "$work"/{group,plain,mpi}.times
for _ in $(seq "$ROUNDS"); do
    all group >>"$work/group.times"
    mpi >>"$work/mpi.times"
    all plain >>"$work/plain.times"
done
echo "collectives, $RANKS ranks, F32, us: medians of $ROUNDS rounds"
printf '%-15s %10s %10s %10s %10s | %10s %10s\n' "" bytes group plain MPI MPI/group MPI/plain
for op in $ops; do
    at=0
    for b in $sizes; do
        at=$((at + 1))
        g=$(nth group "$op" "$at") p=$(nth plain "$op" "$at") m=$(nth mpi "$op" "$at")
        printf '%-15s %10s %10s %10s %10s | %10s %10s\n' "$op" "$b" "$g" "$p" "$m" "$(ratio "$m" "$g")" \
            "$(ratio "$m" "$p")"
    done
done
