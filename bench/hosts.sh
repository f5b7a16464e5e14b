#!/bin/bash
# hosts.sh: all_reduce and broadcast of F32 between two hosts of two ranks each (network namespaces joined by a veth pair; root),
# hierarchical beside TCP between all ranks, in one run. Microseconds, medians of rounds A B A B ...
#
#   ROUNDS=5 SOCKETS=2 MEMORY=group bench/hosts.sh
set -euo pipefail
cd "$(dirname "$0")/.."
ROUNDS=${ROUNDS:-5} SOCKETS=${SOCKETS:-1} MEMORY=${MEMORY:-group} TUTTI=${TUTTI:-build/tutti}
sizes="4 4096 65536 1048576 26214400"
work=$(mktemp -d)
host() { echo "tutti-bench-$$-$1"; }
trap 'ip netns del "$(host 1)" 2>/dev/null; ip netns del "$(host 2)" 2>/dev/null; rm -rf "$work"' EXIT
for i in 1 2; do
    ip netns add "$(host $i)"
    ip -n "$(host $i)" link set lo up
done
ip -n "$(host 1)" link add eth0 type veth peer name eth0 netns "$(host 2)"
for i in 1 2; do
    ip -n "$(host $i)" addr add "10.79.0.$i/24" dev eth0
    ip -n "$(host $i)" link set eth0 up
done
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret"
chmod 600 "$work/secret"

measure() { # OP TRANSPORT: lines of bytes and microseconds
    local rank pids=""
    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.79.0.1 MASTER_PORT=29500 \
            TUTTI_SECRET_FILE=$work/secret TUTTI_TRANSPORT=$2 TUTTI_SOCKETS_PER_PAIR=$SOCKETS \
            ip netns exec "$(host $((rank / 2 + 1)))" "$TUTTI" bench "$1" --sizes "${sizes// /,}" --memory "$MEMORY" \
            >"$work/$rank.out" &
        pids="$pids $!"
    done
    for rank in $pids; do wait "$rank"; done
    awk '/^ *[0-9]/ {print $1, $6}' "$work/0.out"
}
median() { # FILE BYTES
    awk -v b="$2" '$1 == b {print $2}' "$work/$1" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}
for op in all_reduce broadcast; do
    for _ in $(seq "$ROUNDS"); do
        measure $op auto >>"$work/$op.auto"
        measure $op tcp >>"$work/$op.tcp"
    done
    echo "$op, 2 hosts x 2 ranks, F32, $MEMORY memory, us: medians of $ROUNDS rounds, $SOCKETS sockets a pair"
    printf '%10s %14s %10s | %10s\n' bytes hierarchical TCP ratio
    for b in $sizes; do
        h=$(median $op.auto "$b") t=$(median $op.tcp "$b")
        printf '%10s %14s %10s | %10s\n' "$b" "$h" "$t" "$(awk -v a="$t" -v b="$h" 'BEGIN {printf "%.2f", a / b}')"
    done
done
