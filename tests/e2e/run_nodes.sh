# tutti run: several nodes, here several agents on loopback: ranks, numbers of nodes, mismatched nodes, and the
# ends.   timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"

where='echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE node $GROUP_RANK of $GROUP_WORLD_SIZE"'

# Static: numbers are those of --node-rank; nodes may have different numbers of workers.
new_port
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port"
node b $static --node-rank 1 -n 1 sh -c "$where; echo master \$MASTER_ADDR:\$MASTER_PORT"
saying b 'waiting for the rendezvous at 127.0.0.1:[0-9]+ \([0-9]+ s so far, at most 600\): Connection refused' # the first has not started yet
node a $static --node-rank 0 -n 2 sh -c "$where; echo master \$MASTER_ADDR:\$MASTER_PORT"
ended a 0
ended b 0
says a 'rank 0 of 3 local 0 of 2 node 0 of 2$'
says a 'rank 1 of 3 local 1 of 2 node 0 of 2$'
says b ' 2\] rank 2 of 3 local 0 of 1 node 1 of 2$'
equal "masters" "$(sed -n 's/.*master //p' "$work/a.out" "$work/b.out" | sort -u | wc -l)" 1

# Workers are counted by role as well, in the order of their nodes.
new_port
static="--nnodes 3 --master-addr 127.0.0.1 --master-port $port"
roles='echo "rank $RANK is $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE"'
node a $static --node-rank 0 --role trainer -n 2 sh -c "$roles"
node b $static --node-rank 1 --role reader -n 1 sh -c "$roles"
node c $static --node-rank 2 --role trainer -n 2 sh -c "$roles"
for name in a b c; do ended $name 0; done
equal "roles" "$(cat "$work"/[abc].out | sed -n 's/.*\] rank \([0-9] is .*\)/\1/p' | sort | tr '\n' ,)" \
    "0 is trainer 0 of 4,1 is trainer 1 of 4,2 is reader 0 of 1,3 is trainer 2 of 4,4 is trainer 3 of 4,"

# A refused command line is not tried again: both nodes say why, also the one whose worker is right.
new_port
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --max-restarts 2"
node a $static --node-rank 0 sleep "$marker"
node b $static --node-rank 1 "$TUTTI" train --model mpl
ended a 2
ended b 2
for name in a b; do says $name '^tutti run: no restart \(--max-restarts 2\): each round would end so$'; done

# Native: any order, 1 to 3 nodes, here 2 within the last call; without --node-rank.
new_port
native="--nnodes 1:3 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=4"
for name in a b; do node $name $native -n 2 sh -c "$where"; done
ended a 0
ended b 0
equal "ranks" "$(cat "$work"/[ab].out | sed -n 's/.*\] rank \([0-9] of [0-9]\).*/\1/p' | sort | tr '\n' ,)" "0 of 4,1 of 4,2 of 4,3 of 4,"

# A late node: workers are told to end, and start again with it; no restart is taken.
new_port
native="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=0"
program='trap "exit 0" TERM; echo "world of $WORLD_SIZE, start $TUTTI_ATTEMPT, restart $TORCHELASTIC_RESTART_COUNT"
while [ "$WORLD_SIZE" = 1 ]; do sleep 0.05; done'
node a $native sh -c "$program"
saying a 'world of 1, start 0'
node b $native sh -c "$program"
ended a 0
ended b 0
says a '1 more node came; stopping the workers'
says a 'world of 2, start 1, restart 0'
says b 'world of 2, start 1, restart 0'

# The end waits for the slowest (torchrun: at most 300 s).
new_port
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port"
node a $static --node-rank 0 sh -c 'while [ ! -e '"$work"'/go ]; do sleep 0.05; done'
node b $static --node-rank 1 sh -c 'echo finished'
saying b finished
kill -0 "${node_pid[b]}" || fail "node b did not wait for a"
touch "$work/go"
ended a 0
ended b 0

# Mismatches are refused, on both sides, with a remedy; the others continue waiting.
new_port
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=20"
node a $static --node-rank 0 true
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") .* 0A " /proc/net/tcp
run 2 "$TUTTI" run $static --nnodes 3 --node-rank 2 true
err_has 'refused: it was started with --nnodes 3, the rendezvous host with 2:'
run 2 "$TUTTI" run --nnodes 2 --rdzv-backend native --rdzv-conf is_host=0 --rdzv-endpoint 127.0.0.1:$port true
err_has 'refused: it was started with --rdzv-backend native, the rendezvous host with static'
head -c 32 /dev/zero | od -An -v -tx1 | tr -d ' \n' >"$work/other"; chmod 600 "$work/other"
run 1 env TUTTI_SECRET_FILE="$work/other" "$TUTTI" run $static --node-rank 1 true
err_has 'the rendezvous at 127.0.0.1:[0-9]+ has another secret'
rm -f "$work/go"
for name in c d; do node $name $static --node-rank 1 sh -c 'while [ ! -e '"$work"'/go ]; do sleep 0.05; done'; done
wait_until "one of them is refused" grep -q 'node-rank 1 is taken' "$work/c.out" "$work/d.out"
touch "$work/go"
wait "${node_pid[c]}"; c=$?
wait "${node_pid[d]}"; d=$?
equal "one of two nodes of one number" "$(printf '%s\n' $c $d | sort | tr '\n' ,)" "0,2,"
grep -qE -- '--node-rank 1 is taken by .*process [0-9]+\): each node needs its own, from 0 to 1' "$work/c.out" "$work/d.out" ||
    fail "the message does not name the process that has the rank"
ended a 0
says a 'is refused: --node-rank 1 is taken'

# No host; another program as host; the port in use.
new_port
run 3 "$TUTTI" run --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=0.5 true
err_has "trying to reach the rendezvous at 127.0.0.1:$port: Connection refused; is .tutti run. of node 0 running"
run 3 "$TUTTI" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=0.5 true
err_has 'waited 0.5 s for 2 nodes, but only 1 came'
if command -v python3 >/dev/null; then
    python3 -c '
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); sys.stdin.read()' \
        >"$work/port" < <(tail -f /dev/null --pid=$$) &
    other=$!
    wait_until "a port is taken" test -s "$work/port"
    port=$(cat "$work/port")
    run 1 "$TUTTI" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port true
    err_has "cannot host the rendezvous at 127.0.0.1:$port: the port is in use by process $other \(python3\)"
    kill $other
fi
run 3 "$TUTTI" run --nnodes 2 --node-rank 0 --master-addr no-such-host.invalid --master-port 29500 --rdzv-conf join_timeout=0.5 true
err_has 'host "no-such-host.invalid" has no address'
finish
