#!/usr/bin/env bash
# simulated.sh -- all_reduce between hosts with shaped links, beside what `tutti simulate` says of the links that were measured there.
# SPDX-License-Identifier: MIT
# Usage, as root: [RANKS="2 4 8"] [SIZES=4K,1M] [RATE=100] [DELAY_US=2000] [ITERATIONS=5] [ALGORITHMS=REGEX] [SLOW_START=1] bench/simulated.sh
# Each rank is in a network namespace of its own; all links (bench/peer/wire.c) have that rate in both directions, and that delay from end
# to end. Where cores are fewer than ranks it is a comparison of links only if these are slow. TCP's window, which the simulation does not have, is open from the
# beginning of a connection, and stays so when it was idle; SLOW_START=1 leaves it as it is by default.
export TUTTI=${TUTTI:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/tutti}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ranks=${RANKS:-2 4 8 16 32 64} sizes=${SIZES:-4K,1M,25M} rate=${RATE:-100} delay=${DELAY_US:-2000}
for n in $ranks; do most=$n; done
. "$here/../tests/harness/hosts.sh"
hosts_enter
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -o "$work/wire" "$here/peer/wire.c" || exit 1
for ((i = 0; i < most; i++)); do
    unshare --net sleep infinity &
    host_pids+=($!)
done
sleep 1
coproc wire { exec "$work/wire" "$rate" "$delay" "${host_pids[@]}"; }
read -r ready <&"${wire[0]}" || skip_test "no /dev/net/tun here"
for ((i = 0; i < most; i++)); do
    nsenter --target "${host_pids[i]}" --net sh -c "ip link set lo up && ip link set eth0 mtu 9000 txqueuelen 10000 up && ip addr add 10.88.0.$((i + 1))/24 dev eth0"
done
if [ "${SLOW_START:-0}" = 0 ]; then
    for ((i = 0; i < most; i++)); do
        nsenter --target "${host_pids[i]}" --net sh -c 'ip route change 10.88.0.0/24 dev eth0 initcwnd 1000 initrwnd 1000 &&
            sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_rmem="4096 4194304 16777216" net.ipv4.tcp_wmem="4096 4194304 16777216"' || exit 1
    done
fi
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
export TUTTI_SECRET_FILE=$work/secret TUTTI_HEARTBEAT_S=${TUTTI_HEARTBEAT_S:-60} TUTTI_TRANSPORT=tcp
job=0
start() { # N PROGRAM...: a rank on each of N hosts; the first one's output is ours
    local n=$1 i pids=()
    shift
    job=$((job + 1))
    for ((i = n - 1; i >= 0; i--)); do
        RANK=$i WORLD_SIZE=$n LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.88.0.1 MASTER_PORT=$((29500 + job)) \
            nsenter --target "${host_pids[i]}" --net "$@" >"$work/out.$i" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}" && return
    cat "$work"/out.*
    exit 1
}
grep -m 1 'model name' /proc/cpuinfo
echo "rate $rate Mbit/s, delay $delay us, $(nproc) cores, load $(cut -d ' ' -f 1-3 /proc/loadavg)"
printf '%5s %9s %-20s %12s %12s %6s\n' ranks bytes algorithm "real us" "simulated" ratio
for n in $ranks; do
    for i in 1 2 3; do
        start "$n" "$TUTTI" bench barrier --tune "$work/links.$i" --iterations 1
    done
    grep -h '^links 1 ' "$work"/links.[123] | awk '{ for (i = 3; i <= 6; i++) v[i, NR] = $i }
        function mid(a, b, c) { return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b) }
        END { printf "links 1"; for (i = 3; i <= 6; i++) printf " %d", mid(v[i, 1], v[i, 2], v[i, 3]); print "" }' >"$work/links"
    start "$n" "$TUTTI" bench all_reduce --algorithms --sizes "$sizes" --iterations "${ITERATIONS:-3}" --warmup 1
    awk '!/^#/ && NF >= 12 { print $1, $12, $6 }' "$work/out.0" | sort >"$work/real"
    "$TUTTI" simulate --ranks "$n" --ranks-per-host 1 --size "$sizes" --algorithm all --links "$work/links" --data none |
        awk '$1 == "all_reduce" { print $5, $2, $6 }' | sort >"$work/simulated"
    grep '^links 1' "$work/links" | sed "s/^/# $n ranks: /"
    awk -v n="$n" -v only="${ALGORITHMS:-.}" 'NR == FNR { real[$1 " " $2] = $3; next }
        ($1 " " $2) in real && $2 ~ only { printf "%5d %9d %-20s %12.1f %12.1f %6.2f\n", n, $1, $2, real[$1 " " $2], $3, $3 / real[$1 " " $2] }' \
        "$work/real" "$work/simulated" | sort -k 2n,2
done
