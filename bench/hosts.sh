#!/bin/bash
# hosts.sh: all_reduce and broadcast of F32 between two hosts of two ranks each (network namespaces joined by a veth pair; root),
# hierarchical compared with TCP between all ranks, in one run. Microseconds, medians of rounds A B A B ...
#
#   ROUNDS=5 SOCKETS=2 MEMORY=group bench/hosts.sh
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} MEMORY=${MEMORY:-group}
export TUTTI_SOCKETS_PER_PAIR=${SOCKETS:-1}
sizes="4 4096 65536 1048576 26214400"
hosts_open
for op in all_reduce broadcast; do
    for _ in $(seq "$ROUNDS"); do
        ours_hosts $op auto "$sizes" --memory "$MEMORY" >>"$work/$op.auto.times"
        ours_hosts $op tcp "$sizes" --memory "$MEMORY" >>"$work/$op.tcp.times"
    done
    echo "$op, 2 hosts x 2 ranks, F32, $MEMORY memory, us: medians of $ROUNDS rounds, $TUTTI_SOCKETS_PER_PAIR sockets a pair"
    printf '%10s %14s %10s | %10s\n' bytes hierarchical TCP ratio
    for b in $sizes; do
        h=$(median_of $op.auto "$b") t=$(median_of $op.tcp "$b")
        printf '%10s %14s %10s | %10s\n' "$b" "$h" "$t" "$(ratio "$t" "$h")"
    done
done
