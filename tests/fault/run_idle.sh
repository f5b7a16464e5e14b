# run_idle.sh -- a launcher that waits for slowly exiting workers blocks in the kernel.   timeout: 60   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"

deaf="trap '' TERM; echo started; sleep $marker"
spent() { # NAME: CPU seconds of a node's launcher and workers, once it has exited
    awk '$1 == "user" || $1 == "sys" { n += $2 } END { print n + 0 }' "$work/$1.time"
}
launch() { # NAME FLAGS AND PROGRAM...: `node`, with its CPU time in NAME.time
    local name=$1
    shift
    { time -p timeout -k 2 150 "$TUTTI" run "$@" >"$work/$name.out" 2>&1; } 2>"$work/$name.time" &
    node_pid[$name]=$!
}
waited_idly() { # NAME SECONDS: half of what polling for that time would take
    wait "${node_pid[$1]}"
    awk "BEGIN { exit !($(spent "$1") < $2 / 2) }" || fail "node $1 spent $(spent "$1") s of CPU time waiting"
}
launcher_of() { pgrep -f -o -- "^$TUTTI run .*$1"; }

# One node is told to end: the job is over for all others long before its worker is killed. A rendezvous host is lost:
# no node searches for it while workers exit. Both in parallel, since each takes seconds.
launch alone --rdzv-id idle-$$-alone --shutdown-timeout 7 sh -c "$deaf"
new_port
static="--nnodes 2 --master-addr 127.0.0.1 --master-port $port --shutdown-timeout 3 --max-restarts 1 --rdzv-conf join_timeout=0.2"
launch host $static --rdzv-id idle-$$ --node-rank 0 sh -c "$deaf"
launch other $static --rdzv-id idle-$$ --node-rank 1 sh -c "$deaf"
for name in alone host other; do saying "$name" started; done
kill -TERM "$(launcher_of "idle-$$-alone")"
kill -KILL "$(launcher_of "idle-$$ --node-rank 0")"
waited_idly other 3
says other '1 still there 3 s after being told to end: killing'
waited_idly alone 7
says alone '1 still there 7 s after being told to end: killing'
wait "${node_pid[host]}"
nobody_left
finish
