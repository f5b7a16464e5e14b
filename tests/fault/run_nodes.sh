# tutti run on several nodes when something is lost: a worker, a node, the rendezvous host, by kill, by signal, by silence.
# Nodes are agents on loopback.   timeout: 180   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"

# Runs until stopped: `touch go` ends it successfully.
forever='echo "start $TUTTI_ATTEMPT restart $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE"
while [ ! -e '"$work"'/go ]; do sleep 0.02; done; echo "finished $TUTTI_ATTEMPT"'
elastic() { # MORE FLAGS: sets $flags of a job of 1 or 2 nodes at its own port
    new_port
    rm -f "$work/go"
    flags="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=20,join_timeout=20,keep_alive_interval=0.2 $*"
}
fixed() {
    new_port
    rm -f "$work/go"
    flags="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=20,keep_alive_interval=0.2 $*"
}
find_host() { # sets $host, $other: the one of nodes a and b that hosts the rendezvous, and the one that does not
    local socket
    socket=$(awk -v at=":$(printf %04X "$port")" 'substr($2, length($2) - 4) == at && $4 == "0A" { print $10 }' /proc/net/tcp)
    host=a other=b
    ls -l "/proc/$(agent_of b)/fd" | grep -qF "socket:[$socket]" && host=b other=a
}
agent_of() { pgrep -P "$(front "$1")" -x run-agent; }

# A worker fails on one node: all nodes restart; with no restart left, all exit with its code and report its name.
fixed --max-restarts 1
fail_on_1='if [ $RANK = 1 ]; then echo "the reason" >&2; exit 7; fi; exec sleep '"$marker"
for i in 0 1; do node $i $flags --node-rank $i sh -c "$fail_on_1"; done
ended 0 7
ended 1 7
says 0 'rank 1 on .* failed first: exit code 7 \(process [0-9]+.*; stopping the workers'
says 0 'starting the workers again: 2 ranks on 2 nodes, restart 1 of 1'
says 0 'no restart is left \(--max-restarts 1\)'
says 1 'the reason'
nobody_left

# A node is lost (its launcher killed): the others continue without it at once, if that is allowed.
elastic --max-restarts 1
for name in a b; do node $name $flags sh -c "$forever"; saying a waiting\|start; done
saying b 'of 2'
saying a 'of 2'
kill -KILL "$(front b)"
saying a 'node .* was lost: the connection was lost; stopping the workers'
saying a 'start 1 restart 1 rank 0 of 1'
touch "$work/go"
ended a 0
wait "${node_pid[b]}"

# With no restart left: the job ends, exit code 3.
elastic
for name in a b; do node $name $flags sh -c "$forever"; done
saying a 'of 2'
saying b 'of 2'
find_host
kill -KILL "$(front $other)"
ended $host 3
says $host 'was lost: the connection was lost'
wait "${node_pid[$other]}"

# The rendezvous host is lost and comes back: the other waits for it, and both restart, with one restart used.
fixed --max-restarts 1
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 0 'start 0'
saying 1 'start 0'
kill -KILL "$(front 0)"
wait "${node_pid[0]}"
saying 1 'the rendezvous host 127.0.0.1:[0-9]+ was lost: .*; stopping the workers'
node back $flags --node-rank 0 sh -c "$forever"
saying back 'start 1 restart 1 rank 0 of 2'
saying 1 'start 1 restart 1 rank 1 of 2'
touch "$work/go"
ended back 0
ended 1 0

# The host of a job that may continue with fewer nodes is lost: the next one at that address takes over, without a last call.
elastic --max-restarts 1
node host $flags sh -c "$forever"
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") .* 0A " /proc/net/tcp
node other $flags sh -c "$forever"
saying host 'start 0'
saying other 'start 0'
begin=$SECONDS
kill -KILL "$(front host)"
saying other 'start 1 restart 1 rank 0 of 1'
[ $((SECONDS - begin)) -lt 18 ] || fail "it waited for a last call"
touch "$work/go"
ended other 0
wait "${node_pid[host]}"

# It is lost, with no restart left.
fixed
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 1 'start 0'
kill -KILL "$(front 0)"
ended 1 3
says 1 'the rendezvous host .* was lost: .*; no restart is left to wait for it'
wait "${node_pid[0]}"

# Both processes of a launcher killed at once: the other node still detects it.
fixed
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 0 'start 0'
saying 1 'start 0'
kill -KILL "$(agent_of 1)" "$(front 1)"
ended 0 3
says 0 'node .* was lost'
wait "${node_pid[1]}"

# A node that is frozen, not dead, is detected by its silence; when resumed, it is rejected and exits.
fixed
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 0 'start 0'
saying 1 'start 0'
frozen=$(agent_of 1)
kill -STOP "$frozen"
ended 0 3
says 0 'was lost: it has not been heard from for 0.6 s'
kill -CONT "$frozen"
ended 1 3

# All nodes are frozen, as by the suspension of their machine: when resumed, none mistakes its own pause for a peer's silence.
fixed
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 0 'start 0'
saying 1 'start 0'
frozen="$(agent_of 0) $(agent_of 1)"
kill -STOP $frozen
sleep 1.5 # more than the silence that is tolerated
kill -CONT $frozen
touch "$work/go"
ended 0 0
ended 1 0

# A node is told to end: a job that can continue without it does; one that cannot ends on all nodes.
elastic
for name in a b; do node $name $flags sh -c "$forever"; done
saying a 'of 2'
saying b 'of 2'
find_host
kill -TERM "$(front $other)"
ended $other 143
saying $host 'start 1 restart 0 rank 0 of 1'
touch "$work/go"
ended $host 0
fixed
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 0 'start 0'
saying 1 'start 0'
kill -TERM "$(front 1)"
ended 1 143
ended 0 143
says 0 'node .* ends: SIGTERM'
fixed --max-restarts 1
for i in 0 1; do node $i $flags --node-rank $i sh -c "$forever"; done
saying 1 'start 0'
kill -INT "$(front 0)" # Ctrl-C ends the job, even with restarts left
ended 0 130
ended 1 130
fixed --max-restarts 2 # also after a restart, which then must not report that none is left
for i in 0 1; do node $i $flags --node-rank $i sh -c "[ \$TUTTI_ATTEMPT\$RANK = 00 ] && exit 5; $forever"; done
saying 1 'start 1 restart 1'
kill -INT "$(front 0)"
ended 0 130
ended 1 130
! grep -q 'no restart is left' "$work/1.out" || fail "a restart is left, and node 1 says that none is"
equal "left behind" "$(pgrep -fc "$work/go")" 0

# A name server that does not answer for 30 s delays no Ctrl-C.
on=(env LD_PRELOAD="$BUILD_DIR/standin/libslow_names.so" ASAN_OPTIONS=verify_asan_link_order=0)
node a --nnodes 2 --node-rank 1 --master-addr slow.test --master-port 1 sleep $marker
saying a 'waiting for the rendezvous at slow.test:1 .*: no name server has answered for host "slow.test" yet'
begin=$SECONDS
kill -INT "$(front a)"
ended a 130
[ $((SECONDS - begin)) -lt 15 ] || fail "Ctrl-C waited for a name server"
on=()

# A node that comes later with another configuration is refused, and names the difference; the job goes on, elastic or not.
for shards in "" "--shards 4"; do
    elastic
    export GO=$work/go BRAKE_MS=20
    rm -rf "$work/run"
    options="train --model $BUILD_DIR/standin/braked_model.so --batch-size 8 --max-steps 400 --epochs 300 --log-every 10 --eval-every 0 --threads 1 --run-dir $work/run --checkpoint-every 50 --resume auto $shards"
    flags=${flags/last_call_timeout=20/last_call_timeout=1}
    node a $flags "$TUTTI" $options --lr 0.1
    saying a 'step 20/'
    node b $flags "$TUTTI" $options --lr 0.2
    ended b 2
    says b 'this node is refused: .*lr: .* has 0.2(, the others| and rank 0 has) 0.1.* the same configuration'
    : >"$work/go"
    ended a 0
    grep -q '"steps": 400' "$work/run/summary.json" || fail "the job has not ended"
done
finish
