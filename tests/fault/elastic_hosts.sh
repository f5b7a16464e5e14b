# Hosts of a run by shards, each a network namespace, are disconnected, frozen, killed, and come back: it ends with the bits of an
# undisturbed run, and nothing hangs. One that coordinated does so again. One that hears late of the others' leaving does not
# continue alone. Two that cannot reach each other end with one excluded; with fixed ranks they say so. One that comes back after
# the end ends well, too. One that wakes up too late does not take the run folder from a later group.   timeout: 400   run: waiting
# SPDX-License-Identifier: MIT
# HOSTS is the minimum number of disturbances (default 3), CUTS of hosts that are cut off (default 0); elastic_hosts_all: 20, 20.
# SEED repeats a plan.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter a.test b.test c.test
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/elastic.sh"
wanted=${HOSTS:-3} cuts=${CUTS:-0} misses=()
export TUTTI_LOG=warn,elastic:debug TUTTI_SECRET_FILE=$work/secret TUTTI_HEARTBEAT_S=1
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
hosts_up
flags="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs ${EPOCHS:-150} --checkpoint-every 1000 --threads 1 --log-every 1"
train whole $flags
steps=$(field whole/summary.json steps)


members() { generations "$run".*.out | tail -n 1 | cut -d ' ' -f 2; } # of the last generation
step() { tail -c 4096 "$run/metrics.jsonl" 2>no-metrics | sed -n 's/^{"step": \([0-9]*\),.*/\1/p' | tail -n 1; }
at_its_end() {
    local now
    now=$(step || true)
    [ "${now:-0}" -gt $((steps * 3 / 4)) ]
}
begin_node() { # HOST: with one worker; a silent host is detected within a second, or after misses[HOST] intervals
    tries[$1]=$((${tries[$1]:-0} + 1))
    on_host "$1" timeout -k 2 300 "$TUTTI" run --nnodes 1:3 --rdzv-backend native --rdzv-endpoint "a.test:$port" \
        --rdzv-conf last_call_timeout=20,keep_alive_interval=0.3,keep_alive_max_attempt=${misses[$1]:-3},join_timeout=30 -n 1 \
        "$TUTTI" train --run-dir "$work/$run" $flags >"$run.$1.${tries[$1]}.out" 2>&1 &
    node_pid[$1]=$!
}
# Fails if COMMAND does not succeed in time: something hangs.
await() { # WHAT COMMAND...
    local end=$((SECONDS + 90)) what=$1
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || failed_run "$run" "never: $what"
        pause 50
    done
}
all_at_work() { [ "$(members)" = 3 ] || at_its_end; }
processes_on() { # HOST: of the job's
    local p
    for p in $(pgrep -f -- "^$TUTTI "); do
        [ "$(readlink "/proc/$p/ns/net" 2>no-process)" != "$(readlink "/proc/${host_pids[$1]}/ns/net")" ] || echo "$p"
    done
}
cut_off() { ip link set "port$1" nomaster; } # no packet passes, and no peer is notified
mend() { ip link set "port$1" master hub; }
# Gives every host its node, and waits until all of them train.
mend_all() {
    local i
    for i in 0 1 2; do
        kill -0 "${node_pid[i]}" 2>no-node || { ! at_its_end && begin_node "$i"; } || true
    done
    await "all are at work again" all_at_work
}
disturb() { # WHAT HOST
    local all
    echo "$EPOCHREALTIME $*" >>"$run.events"
    case $1 in
    cut)
        cut_off "$2"
        pause $((200 + RANDOM % 2500))
        mend "$2"
        ;;
    freeze)
        all=$(processes_on "$2")
        [ -n "$all" ] || return 0 # it has just exited
        kill -STOP $all 2>no-process || true
        pause $((200 + RANDOM % 2500))
        kill -CONT $all 2>no-process || true
        ;;
    power) # it dies before it can notify any peer
        all=$(processes_on "$2")
        cut_off "$2"
        [ -z "$all" ] || kill -KILL $all 2>no-process || true
        pause $((200 + RANDOM % 1500))
        mend "$2"
        ;;
    esac
}

braked="--model $BUILD_DIR/standin/braked_model.so --shards 8 --batch-size 8 --max-steps 400 --epochs 300 --eval-every 0 --threads 1 --log-every 1"
begin_braked() { # RUN PORT: all are at work, in steps that wait for $GO
    local host
    run=$1 port=$2 tries=() node_pid=()
    local max=${flags##*--max-steps }
    export GO=$work/$run.go BRAKE_MS=20 BRAKE_FILE=$work/$run/metrics.jsonl BRAKE_AT=$((${max%% *} * 3 / 4))
    for host in 0 1 2; do begin_node $host; done
    await "all are at work" all_at_work
}
let_end() { # HOST...: the steps wait no longer, and these nodes end with 0
    local host
    : >"$GO"
    for host in "$@"; do
        wait "${node_pid[host]}" || failed_run "$run" "the node of host $host ended with $?"
    done
}

# The coordinator's host is cut off, comes back, and coordinates again when its successor's is cut off.
again() {
    local host
    flags=$braked
    begin_braked again 29398
    for host in 0 1; do
        cut_off $host
        await "the others go on without host $host" all_but_one_at_work
        mend $host
        await "all are at work again" all_at_work
    done
    grep -q 'this node coordinates the job from now on (term 3)' $run.0.1.out || failed_run "$run" "host 0 does not coordinate again"
    let_end 0 1 2
    unset GO BRAKE_MS
}

# A coordinator that hears late of nodes that have left it learns that they live, and does not continue alone.
late() {
    misses=([0]=20)
    flags=$braked
    begin_braked late 29397
    cut_off 0
    pause 2500
    mend 0
    await "both are known to live" both_live
    await "all are at work again" all_at_work
    let_end 0 1 2
    misses=()
    unset GO BRAKE_MS
}
both_live() { [ "$(grep -c 'was lost with 1 worker: it no longer hears from this node' $run.0.1.out)" = 2 ]; }

# With fixed ranks all are needed: who cannot be reached is said long before the time limit. Beside `pair`, whose hosts it needs.
begin_fixed() {
    local host
    fixed_pid=()
    for host in 0 1 2; do
        TUTTI_LOG=warn TUTTI_TIMEOUT_S=8 on_host $host timeout -k 2 100 "$TUTTI" run --nnodes 3 --rdzv-backend native --rdzv-endpoint a.test:29398 -n 1 \
            "$TUTTI" train --run-dir "$work/fixed" --model mlp --max-steps 1 --threads 1 >"fixed.$host.out" 2>&1 &
        fixed_pid[host]=$!
    done
}
end_fixed() {
    local host
    run=fixed
    await "the pair is named" grep -qE 'rank [12] of 3 cannot reach rank 1 \([bc], process [0-9]+\) at 10.88.0.[23]:[0-9]+, .* firewall' $run.1.out $run.2.out
    for host in 0 1 2; do
        code=0
        wait "${fixed_pid[host]}" || code=$?
        [ $code = 3 ] || failed_run "$run" "the node of host $host ended with $code"
    done
}

# Two hosts that cannot reach each other, while both reach the third, would form groups in vain: one is excluded, and both are named.
pair() {
    local host codes=""
    flags=$braked
    begin_braked pair 29399
    part_pair
    begin_fixed
    await "one is excluded" grep -q 'nodes [bc] (process [0-9]*) and [bc] (process [0-9]*) cannot reach each other' $run.0.1.out
    await "the others go on" all_but_one_at_work
    : >"$GO"
    for host in 0 1 2; do
        code=0
        wait "${node_pid[host]}" || code=$?
        codes="$codes $code"
    done
    case "$codes" in " 0 0 3" | " 0 3 0") ;; *) failed_run "$run" "the nodes ended with$codes" ;; esac
    ! grep 'after being told to end' $run.*.out || failed_run "$run" "a worker of the excluded node has not ended by itself"
    [ "$(field $run/summary.json steps)" = 400 ] || failed_run "$run" "the job has not ended"
    unset GO BRAKE_MS
    end_fixed
    join_pair
}
part_pair() { # no packet passes between hosts 1 and 2
    on_host 1 ip neigh replace 10.88.0.3 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
    on_host 2 ip neigh replace 10.88.0.2 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
}
join_pair() {
    on_host 1 ip neigh del 10.88.0.3 dev eth0
    on_host 2 ip neigh del 10.88.0.2 dev eth0
}
all_but_one_at_work() { [ "$(members)" = 2 ] && has_step; }

# A host comes back when the others have completed the run, and have ended.
past_end() { # HOST
    local others=(0 1 2)
    unset "others[$1]"
    flags=${braked/--max-steps 400/--max-steps 200}
    begin_braked "past$1" $((29390 + $1))
    await "there is a step" has_step
    cut_off "$1"
    await "the others go on" all_but_one_at_work
    let_end "${others[@]}"
    [ "$(field $run/summary.json steps)" = 200 ] || failed_run "$run" "the others have not completed it"
    mend "$1"
    wait "${node_pid[$1]}" || failed_run "$run" "the late node has failed"
    grep -q 'the run was completed by others, while this worker was cut off' "$run.$1.1.out" || failed_run "$run" "the late worker does not say so"
    unset GO BRAKE_MS
}
has_step() { [ -n "$(step)" ]; }

# A rank 0 that waits for the run folder's lock is frozen meanwhile. When it wakes up, the owner is in a later group, and keeps the folder.
overtaken() {
    local owner waiting
    flags=$braked
    begin_braked overtaken 29396
    kill -KILL "$(worker_on 0)"
    await "host 1 has the folder" grep -q 'this rank takes over' $run.1.1.out
    await "all are at work again" at_work 'generation 3, 3 ranks'
    owner=$(processes_on 1)
    kill -STOP $owner
    kill -KILL "$(worker_on 0)" # so host 2 is the only one with the state
    await "host 1 is lost" grep -q 'node b .* was lost' $run.0.1.out
    pause 1000 # of the 2 s for which the new rank 0 waits
    ! grep -q 'generation 4, rank 0' $run.2.1.out || echo "host 2 did not wait for the lock"
    waiting=$(processes_on 2)
    kill -STOP $waiting
    kill -CONT $owner
    await "the owner goes on" at_work 'generation [5-9], 2 ranks'
    pause 1500
    kill -CONT $waiting
    await "all are at work at last" at_work 'generation [6-9], 3 ranks'
    let_end 0 1 2
    unset GO BRAKE_MS
    lines $run | sed 's/^{"step": \([0-9]*\),.*/\1/' | diff - <(seq 400) >lines.diff || failed_run "$run" "lines of metrics.jsonl: $(head -n 1 lines.diff)"
}
worker_on() { # HOST
    local p
    for p in $(processes_on "$1"); do
        ! grep -qz '^train$' "/proc/$p/cmdline" || grep -qz '^--nnodes$' "/proc/$p/cmdline" || echo "$p"
    done
}
at_work() { grep -q "$1: step" $run.?.1.out; }

echo "SEED=$SEED, load $(cut -d ' ' -f 1 /proc/loadavg)"
more() { [ "$events" -lt "$wanted" ] || [ "${done[cut]}" -lt "$cuts" ]; }
declare -A done=([cut]=0 [freeze]=0 [power]=0)
events=0
for ((i = 0; ; i++)); do
    more || break
    run=run$i port=$((29400 + i)) tries=() node_pid=() began=$SECONDS
    for host in 0 1 2; do begin_node $host; done
    await "all are at work" all_at_work
    for ((k = 0; k < 5; k++)); do
        ! at_its_end && more || break
        what=cut
        case $((RANDOM % 3)) in 0) what=freeze ;; 1) [ $((RANDOM % 2)) = 0 ] || what=power ;; esac
        disturb $what $((RANDOM % 3))
        done[$what]=$((done[$what] + 1)) events=$((events + 1))
        mend_all
        pause $((RANDOM % 300))
    done
    for host in 0 1 2; do
        code=0
        wait "${node_pid[host]}" || code=$?
        [ $code = 0 ] || failed_run "$run" "the node of host $host ended with $code"
    done
    ! grep -q power "$run.events" || rm -rf "$TMPDIR"/* # left by a launcher whose processes were all killed at once
    same_end whole "$run"
    echo "run $i: $k events in $((SECONDS - began)) s: $(cut -d ' ' -f 2- "$run.events" | tr '\n' ',') $(generations "$run".*.out | cut -d ' ' -f 2 | tr '\n' ' ')"
    rm -r "$run"*
done
late
again
pair
past_end 0
[ "$cuts" = 0 ] || past_end 2 # not the first coordinator's
overtaken
echo "$i runs: ${done[cut]} hosts cut off, ${done[freeze]} frozen, ${done[power]} lost their power; load $(cut -d ' ' -f 1 /proc/loadavg)"
