#!/bin/bash
# collectives.sh: every collective of F32 on one host, from group memory and from plain memory, beside an MPI's, in one run.
#
#   bench/collectives.sh                       microseconds, medians of rounds A B C A B C ...
#   ROUNDS=3 RANKS=2 bench/collectives.sh
#
# Where mpicc is missing, its column is "-". Both sides take the larger buffer's bytes, and work in place where they may.
set -euo pipefail
cd "$(dirname "$0")/.."
ROUNDS=${ROUNDS:-3} RANKS=${RANKS:-2} TUTTI=${TUTTI:-build/tutti}
sizes="4096 65536 1048576 26214400"
ops="all_reduce reduce reduce_scatter broadcast scatter gather all_gather all_to_all"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { # MEMORY: lines of collective, bytes and microseconds
    for op in $ops; do
        "$TUTTI" bench "$op" -n "$RANKS" --sizes "${sizes// /,}" --memory "$1" |
            awk -v op="$op" '!/^#/ {print op, $1, $(NF - 4)}'
    done
}
mpi() {
    [ ! -x "$work/mpi" ] || timeout 120 mpirun --allow-run-as-root --oversubscribe -np "$RANKS" "$work/mpi" 2>/dev/null
}
median() { # FILE OP LINE-OF-SIZE: ranks round sizes down, so that the n-th size of each is compared
    awk -v op="$2" '$1 == op {print $2, $3}' "$work/$1.times" | sort -g -k1,1 -k2,2 |
        awk -v at="$3" '$1 != last {last = $1; size++; n = 0} size == at {v[++n] = $2; many = n}
            END {print many ? v[int((many + 1) / 2)] : "-"}'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a == "-" || b == "-" || b == 0) print "-"; else printf "%.2f\n", a / b}'; }

mpicc -O2 -o "$work/mpi" bench/peer/mpi_collectives.c 2>/dev/null || true
touch "$work"/{group,plain,mpi}.times
for _ in $(seq "$ROUNDS"); do
    ours group >>"$work/group.times"
    mpi >>"$work/mpi.times"
    ours plain >>"$work/plain.times"
done
echo "collectives, $RANKS ranks, F32, us: medians of $ROUNDS rounds"
printf '%-15s %10s %10s %10s %10s | %10s %10s\n' "" bytes group plain MPI MPI/group MPI/plain
for op in $ops; do
    at=0
    for b in $sizes; do
        at=$((at + 1))
        g=$(median group "$op" "$at") p=$(median plain "$op" "$at") m=$(median mpi "$op" "$at")
        printf '%-15s %10s %10s %10s %10s | %10s %10s\n' "$op" "$b" "$g" "$p" "$m" "$(ratio "$m" "$g")" \
            "$(ratio "$m" "$p")"
    done
done
