# TUTTI_TOPOLOGY: hosts, as network namespaces, below switches: which levels are used and with what cost, the same sums by every
# algorithm in that order, an order of hosts that does not follow switches, files that are refused.   timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter h0 h1 h2 h3 h4 h5 h6 h7 h8 h9 h10 h11 h12 h13 h14 h15
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/nodes.sh"
hosts_up
job=0
start() { # N RANKS PROGRAM...: on the first N hosts
    local n=$1 ranks=$2 i
    shift 2
    rm -f "$work"/*.out
    job=$((job + 1))
    for ((i = 0; i < n; i++)); do
        on=(nsenter --target "${host_pids[i]}" --net --uts)
        node $i --nnodes $n --node-rank $i --master-addr 10.88.0.1 --master-port $((29500 + job)) -n $ranks "$@"
    done
}
rows() { sed -n 's/^\[[^]]*\] *\([0-9]\)/\1/p' "$work/0.out"; } # of bench's table
all_ended() { # N CODE
    local i
    for ((i = 0; i < $1; i++)); do ended $i $2; done
}

# Four switches of four hosts, below one: 16 ranks by TCP, of which 4 are near each other.
for s in 0 1 2 3; do echo "SwitchName=leaf$s Nodes=h[$((4 * s))-$((4 * s + 3))]"; done >"$work/tree"
echo "SwitchName=spine Switches=leaf[0-3]" >>"$work/tree"
export TUTTI_TOPOLOGY=$work/tree
start 16 1 "$TUTTI" bench all_reduce --sizes 4K,3M --iterations 1 --algorithms
all_ended 16 0
equal "algorithms" "$(rows | awk '$1 == 4096 { print $12 }' | paste -sd ' ')" "direct recursive_doubling rabenseifner ring tree hierarchical"
equal "wrong" "$(rows | awk '{ n += $10 } END { print NR, n }')" "12 0"
start 16 1 "$TUTTI" bench all_reduce --sizes 4K --explain
all_ended 16 0
says 0 'all_reduce, 16 ranks, 4096 B: (recursive_doubling|rabenseifner), the least estimate of those that keep the order of sums; estimates: .*hierarchical [0-9]+ us'
start 16 1 "$TUTTI" bench reduce_scatter --sizes 64K --iterations 1 --tune "$work/tuner"
all_ended 16 0
equal "levels in the file" "$(grep -c '^links [12] [0-9]' "$work/tuner")" 2 # a host has one rank

# Two ranks a host: hosts in an order that alternates between switches are taken switch by switch.
printf '%s\n' 'SwitchName=a Nodes=h[0,2,4,6]' 'SwitchName=b Nodes=h[1,3,5,7]' >"$work/tree"
TUTTI_ALGORITHM=all_reduce:hierarchical start 8 2 "$TUTTI" bench all_reduce --sizes 4K,3M --iterations 1
all_ended 8 0
none_says 'does not fit|does not use the levels'
equal "wrong" "$(rows | awk '{ n += $10 } END { print NR, n }')" "2 0"
# Ranks themselves cannot be taken in another order: one says so.
start 4 1 "$TUTTI" bench all_reduce --sizes 4K --iterations 1
all_ended 4 0
says 0 'does not use the levels of TUTTI_TOPOLOGY in calls among 4 ranks: those of the switch of rank 0 and of rank 2 are not consecutive'

# Files
printf '%s\n' 'SwitchName=a Nodes=h0' 'SwitchNam=b Nodes=h1' >"$work/tree"
start 2 1 "$TUTTI" bench all_reduce --sizes 4K
ended 0 2
says 0 'tree:2: there is no key "SwitchNam"; .*did you mean SwitchName'
wait "${node_pid[1]}"
echo 'SwitchName=a Nodes=h0' >"$work/tree"
start 2 1 "$TUTTI" bench all_reduce --sizes 4K
wait "${node_pid[0]}"
wait "${node_pid[1]}"
says 1 'tree: this host, h1, is below no switch'
finish
