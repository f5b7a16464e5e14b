# tutti run on hosts, which are network namespaces: IPv4 and IPv6, the ranks' MASTER_ADDR, training over them, a network that
# is cut and restored, an unreachable master.   timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter one two
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/nodes.sh"
hosts_up
node_on() { # HOST NAME FLAGS...
    on=(nsenter --target "${host_pids[$1 - 1]}" --net --uts)
    node "${@:2}"
}

# Static, over both families; every rank gets rank 0's address. The second host is numbered first.
for address in 10.88.0.2 fd88::2; do
    flags="--nnodes 2 --master-addr $address --master-port 29500 -n 2"
    for i in 1 2; do
        node_on $i $i $flags --node-rank $((2 - i)) sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR by $TUTTI_STORE"'
    done
    ended 1 0
    ended 2 0
    says 1 "3 of 4 at $address by \[?$address\]?:[0-9]+$"
    says 2 "0 of 4 at $address by"
done

# Native: the node with the endpoint's address hosts; training gives the parameters of the same layout started by hand.
flags="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint [fd88::1]:29400 --rdzv-conf last_call_timeout=20"
mlp="train --model mlp --data digits --max-steps 20 --batch-size 8 --lr 0.05 --threads 1"
for i in 2 1; do node_on $i $i $flags "$TUTTI" $mlp --run-dir "$work/native"; done
ended 1 0
ended 2 0
(cd "$work" && "$TUTTI" run -n 2 "$TUTTI" $mlp --run-dir one_host >/dev/null 2>&1) || fail "one host"
digest() { sed -n 's/.*"parameter_digest": "\(.*\)".*/\1/p' "$work/$1/summary.json"; }
equal "parameters of two hosts" "$(digest native)" "$(digest one_host)"

# The network is cut: both sides notice the silence; the host's side continues alone if it may.
program='echo "start $TUTTI_ATTEMPT of $WORLD_SIZE"; while [ ! -e '"$work"'/go ]; do sleep 0.02; done'
flags="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint 10.88.0.1:29400 --max-restarts 1 --rdzv-conf last_call_timeout=20,join_timeout=2,keep_alive_interval=0.2"
for i in 1 2; do node_on $i $i $flags sh -c "$program"; done
saying 1 'start 0 of 2'
saying 2 'start 0 of 2'
ip link set port1 down
saying 1 'was lost: it has not been heard from for 0.6 s'
saying 1 'start 1 of 1'
ended 2 3
says 2 'the rendezvous host 10.88.0.1:29400 was lost'
says 2 'trying to reach the rendezvous at 10.88.0.1:29400: (Network is unreachable|No route to host|Connection timed out)'
# Restored, and the node restarted: it takes part.
ip link set port1 up
node_on 2 again $flags sh -c "$program"
saying 1 'start 2 of 2'
saying again 'start 2 of 2'
touch "$work/go"
ended 1 0
ended again 0

# A master that drops all packets, or has no machine: the time limit holds, and Ctrl-C works meanwhile.
on_host 0 ip neigh replace 10.88.0.78 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
node_on 1 hole --nnodes 2 --node-rank 1 --master-addr 10.88.0.78 --master-port 29500 true
saying hole 'waiting for the rendezvous at 10.88.0.78:29500 .*Connection timed out'
began=${EPOCHREALTIME//[!0-9]/}
kill -INT $(front hole)
ended hole 130
[ $((${EPOCHREALTIME//[!0-9]/} - began)) -lt 2000000 ] || fail "Ctrl-C took $((${EPOCHREALTIME//[!0-9]/} - began)) us"
node_on 1 silent --nnodes 2 --node-rank 1 --master-addr 10.88.0.77 --master-port 29500 --rdzv-conf join_timeout=1 true
ended silent 3
says silent 'trying to reach the rendezvous at 10.88.0.77:29500: (Connection timed out|No route to host)'
finish
