# 64 hosts of 4 ranks each, as network namespaces: set-up and all_reduce, a rank that is killed, a host that is cut off, a rendezvous host
# that is killed: the right names, the right ends, nothing left. Prints the times. HOSTS, RANKS: other numbers.
# tier: long
# timeout: 600   run: serial
# SPDX-License-Identifier: MIT
HOSTS=${HOSTS:-64} RANKS=${RANKS:-4}
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
names=()
for ((i = 0; i < HOSTS; i++)); do names+=("$(printf 'host%02d' $i)"); done
hosts_enter "${names[@]}"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/nodes.sh"
details() { cp "$work"/*.out "${KEEP:-/nowhere}" 2>/dev/null; } # of hundreds of ranks: only if asked for
hosts_up
# The kernel keeps at most 1,024 neighbours for all namespaces together, but for permanent ones.
mac() { printf '02:00:00:00:00:%02x' "$1"; }
for ((i = 0; i < HOSTS; i++)); do echo "neigh replace 10.88.0.$((i + 1)) lladdr $(mac $i) dev eth0 nud permanent"; done >"$work/neighbours"
for ((i = 0; i < HOSTS; i++)); do
    on_host $i ip link set eth0 address "$(mac $i)"
    on_host $i ip -batch "$work/neighbours" || skip_test "no permanent neighbours here"
done
all=$((HOSTS * RANKS)) node_seconds=300 here=$((HOSTS / 2 + 1)) # here: the host that is disturbed
export TUTTI_HEARTBEAT_S=${TUTTI_HEARTBEAT_S:-5}
us() { echo "${EPOCHREALTIME//[!0-9]/}"; }
# PROGRAM...: starts it on all hosts, as one job; each rank notes its process first.
start() {
    local i
    rm -f "$work"/*.out "$work"/pid.*
    job=$((${job:-0} + 1)) # a port of its own for each
    for ((i = 0; i < HOSTS; i++)); do
        on=(nsenter --target "${host_pids[i]}" --net --uts)
        node "${names[i]}" --nnodes $HOSTS --node-rank $i --master-addr 10.88.0.1 --master-port $((29500 + job)) -n $RANKS \
            sh -c 'echo $$ >'"$work"'/pid.$RANK; exec "$@"' sh "$@"
    done
}
all_ended() { # EXCEPT...: $ends: how the nodes ended but for these, "3 x 63"
    local name got=()
    for name in "${names[@]}"; do
        [[ " $* " == *" $name "* ]] && continue
        wait "${node_pid[$name]}"
        got+=($?)
    done
    ends=$(printf '%s\n' "${got[@]}" | sort | uniq -c | awk '{ printf "%s%d x %d", n++ ? ", " : "", $2, $1 }')
}
left() { pgrep -f -- "$TUTTI bench" | wc -l; }
working() { [ "$(ls "$work"/pid.* 2>/dev/null | wc -l)" = $all ] && grep -q '#  *size' "$work/${names[0]}.out"; }
endless=("$TUTTI" bench all_reduce --sizes 4K --iterations 100000000)

began=$(us)
start "$TUTTI" bench all_reduce --sizes 4,4K,1M --iterations 5
all_ended
equal "ends" "$ends" "0 x $HOSTS"
echo "set-up and all_reduce of $all ranks on $HOSTS hosts, start to end: $((($(us) - began) / 1000)) ms"
equal "rows" "$(grep -cE '\] +(4|4096|1048576) .* 0$' "$work/${names[0]}.out")" 3
cat "$work/${names[0]}.out"

# A killed rank: all others say which, and all nodes end with its signal, the first failure of the job.
start "${endless[@]}"
wait_until "all are at work" working
sleep 1
victim=$((here * RANKS + 1))
began=$(us)
kill -KILL "$(cat "$work/pid.$victim")"
all_ended
echo "a killed rank: all nodes have ended after $((($(us) - began) / 1000)) ms"
equal "ends" "$ends" "137 x $HOSTS"
for name in "${names[@]}"; do says "$name" "rank $victim\b"; done
equal "another rank is blamed" "$(cat "$work"/*.out | grep -oE 'rank [0-9]+ \(host[0-9]+, process [0-9]+\) was lost' | sort -u | grep -cv "rank $victim (${names[here]},")" 0
equal "left" "$(left)" 0

# A host that is cut off: its silence is noticed on both sides.
start "${endless[@]}"
wait_until "all are at work" working
sleep 1
began=$(us)
ip link set "port$here" nomaster
all_ended "${names[here]}"
echo "a host that is cut off, heartbeat $TUTTI_HEARTBEAT_S s: the other nodes have ended after $((($(us) - began) / 1000)) ms"
equal "ends of the others" "$ends" "3 x $((HOSTS - 1))"
ended "${names[here]}" 3
echo "  it itself after $((($(us) - began) / 1000)) ms"
ip link set "port$here" master hub
for ((i = 0; i < HOSTS; i++)); do
    [ $i = $here ] || says "${names[i]}" "rank $((here * RANKS))\b|${names[here]}"
done
equal "left" "$(left)" 0

# The rendezvous host is killed: its launcher, and with it its workers.
start "${endless[@]}"
wait_until "all are at work" working
sleep 1
began=$(us)
kill -KILL $(front "${names[0]}")
all_ended "${names[0]}"
echo "a killed rendezvous host: the other nodes have ended after $((($(us) - began) / 1000)) ms"
equal "ends of the others" "$ends" "3 x $((HOSTS - 1))"
for name in "${names[@]:1}"; do says "$name" "rank [0-$((RANKS - 1))] |10.88.0.1|${names[0]}"; done
wait_until "nothing is left" test "$(left)" = 0
finish
