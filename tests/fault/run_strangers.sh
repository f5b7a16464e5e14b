# tutti run on two nodes while strangers without the secret flood the rendezvous with silent connections: the second node joins,
# the flood is named once, memory stays, and Ctrl-C ends the job at once.   timeout: 90
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"

agent_of() { pgrep -P "$(front "$1")" -x run-agent; }
peak_kb() { awk '/^VmHWM/ { print $2 }' "/proc/$1/status"; }

new_port
flags="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=30"
node a $flags --node-rank 0 sh -c "echo start \$RANK; exec sleep $marker"
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") .* 0A " /proc/net/tcp
agent=$(agent_of a)
before=$(peak_kb "$agent")
"$BUILD_DIR/tests/program/flood" "$port" 60 & # longer than all that follows: nothing here waits for its end
flood=$!
saying a 'the rendezvous is flooded: .* most of them from 127.0.0.[23]\. .* admit only the job.s hosts to 127.0.0.1:'"$port"
node b $flags --node-rank 1 sh -c "echo start \$RANK; exec sleep $marker"
saying a 'start 0'
saying b 'start 1'
grown=$(($(peak_kb "$agent") - before))
[ "$grown" -lt 8000 ] || fail "the flood cost $grown kB of memory"
kill -INT "$(front a)"
ended a 130
ended b 130
kill "$flood" || fail "the job ended only after the flood"
wait "$flood"
equal "lines about the flood" "$(grep -c flooded "$work/a.out")" 1
none_says 'rejects .*too many'
finish
