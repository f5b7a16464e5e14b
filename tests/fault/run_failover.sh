# tutti run: the rendezvous host of an elastic job dies during a training, and so does its successor; it is frozen and resumed;
# one has lost a worker for good; a node connects to the job's first address. Others coordinate, no step is lost, and the final state is the undisturbed one.   timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"
worker=$BUILD_DIR/tests/program/elastic_worker
export TUTTI_LOG=error TUTTI_COLOR=never
slow_work="400 1 8 brake=20" # of elastic_worker: it ends soon after `release`, and not before

begin() { # PROGRAM...: starts nodes a, b, c; a is the rendezvous host
    node a $flags "$@"
    wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") " /proc/net/tcp
    node b $flags "$@"
    node c $flags "$@"
    find_launchers
}
agent_of() { pgrep -P "$(front "$1")" -x run-agent; }
declare -A launcher
find_launchers() { # before they are needed: meanwhile a training might end
    local name
    for name in a b c; do
        wait_until "node $name has begun" agent_of $name
        launcher[$name]="$(agent_of $name) $(front $name)"
    done
}
kill_node() { # NAME: its launcher, both processes at once; its workers die with it
    kill -KILL ${launcher[$1]}
    wait "${node_pid[$1]}" 2>/dev/null
}
steps() { sed -n 's/.*"step": \([0-9]*\),.*/\1/p' "$shared/run/metrics.jsonl" 2>/dev/null | sort -n | tail -1; }
has_steps() { [ "$(steps)" -ge "$1" ] 2>/dev/null; }
digest() { sed -n 's/.*"parameter_digest": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
coordinators() { cat "$work"/?.out | grep -c 'this node coordinates the job from now on'; }

# A training, slow until the second has died. The first host dies, then the second: each time the next one takes over.
options="train --model $BUILD_DIR/standin/braked_model.so --dropout 0.3 --shards 6 --batch-size 8 --max-steps 3000 --epochs 300 --log-every 1 --eval-every 0 --threads 1"
(cd "$work" && timeout 180 "$TUTTI" $options --run-dir undisturbed >"$work/undisturbed.out" 2>&1) || fail "the undisturbed training"
new_job 20,keep_alive_interval=5
export GO=$shared/go BRAKE_MS=20
begin "$TUTTI" $options --run-dir "$shared/run"
wait_until "20 steps are done" has_steps 20
kill_node a
at=$(steps)
begin=$(date +%s%N) # its silence would be noticed after three times keep_alive_interval
wait_until "it goes on after the first host" has_steps $((at + 10))
took=$((($(date +%s%N) - begin) / 1000000))
[ $took -lt 12000 ] || fail "it took $took ms"
second=$(grep -l 'this node coordinates the job from now on (term 2), with 2 of 3 nodes' "$work"/[bc].out)
second=$(basename "${second:-b.out}" .out)
third=$([ "$second" = b ] && echo c || echo b)
wait_until "it goes on" has_steps $((at + 30))
kill_node "$second"
release
ended "$third" 0
says "$third" 'this node coordinates the job from now on \(term 3\), with 1 of 2 nodes'
equal "digest" "$(digest "$shared/run")" "$(digest "$work/undisturbed")"
none_says 'starting the workers again'

# A node that connects later to the job's first address, even one that could host another job there, is redirected to the job.
new_job 20,keep_alive_interval=5
begin "$worker" "$shared" $slow_work
wait_until "three are at work" grep -hq 'of 3' "$work/a.out" "$work/b.out" "$work/c.out"
kill_node a
wait_until "another coordinates" sh -c "cat '$work'/?.out | grep -q 'this node coordinates the job'"
node d $flags "$worker" "$shared" $slow_work
saying d 'the job continues elsewhere: joining it at 127.0.0.1:'
wait_until "the third is in" sh -c "cat '$work'/[bcd].out | grep -q 'generation [0-9]* of 3'"
host=$(grep -l 'this node coordinates the job' "$work"/[bc].out)
kill -TERM "$(front "$(basename "${host:-b.out}" .out)")" # a host may also leave
wait_until "the next coordinates" sh -c "cat '$work'/?.out | grep -q 'this node coordinates the job from now on (term 3)'"
release
for name in b c d; do ended $name 0; done
equal "states" "$(cat "$work"/[bcd].out | sed -n 's/.*finished at //p' | sort | uniq -c | wc -l)" 1

# One worker has ended for good before the host dies: nobody waits for it.
new_job 20,keep_alive_interval=5
begin -n 2 "$worker" "$shared" $slow_work die=3:5:0
wait_until "five are at work" at_work 5
kill_node a
begin=$(date +%s%N)
wait_until "three are at work" at_work 3
took=$((($(date +%s%N) - begin) / 1000000))
[ $took -lt 12000 ] || fail "it took $took ms"
release
for name in b c; do ended $name 0; done

# The host is frozen: the others are a majority and continue. When resumed, it rejoins as an ordinary node.
new_job 20,keep_alive_interval=0.3
begin "$worker" "$shared" $slow_work
wait_until "three are at work" grep -hq 'of 3' "$work/a.out" "$work/b.out" "$work/c.out"
frozen=$(agent_of a)
kill -STOP "$frozen"
wait_until "another coordinates" sh -c "cat '$work'/?.out | grep -q 'this node coordinates the job from now on (term 2), with 2 of 3 nodes'"
wait_until "two are at work" sh -c "cat '$work'/[bc].out | grep -q 'of 2'"
kill -CONT "$frozen"
saying a 'another node coordinates the job: this one rejoins it'
wait_until "it is back at work" at_work 3
release
for name in a b c; do ended $name 0; done
equal "coordinators" "$(coordinators)" 1
equal "ends" "$(cat "$work"/?.out | sed -n 's/.*finished at //p' | sort | uniq -c | tr -s ' ' | cut -d ' ' -f 2 | tr '\n' ,)" "3,"

# Of two, the other is no majority: it waits, and rejoins the host when that is resumed.
new_job 20,keep_alive_interval=0.3
flags=${flags/1:3/1:2}
node a $flags "$worker" "$shared" $slow_work
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") " /proc/net/tcp
node b $flags "$worker" "$shared" $slow_work
wait_until "two are at work" sh -c "cat '$work'/[ab].out | grep -q 'generation 1 of 2'"
frozen=$(agent_of a)
kill -STOP "$frozen"
saying b 'only 1 of 2 nodes are connected, and the others may continue without this node: waiting'
kill -CONT "$frozen"
saying b 'another node coordinates the job: this one rejoins it'
wait_until "both are at work" at_work 2
release
for name in a b; do ended $name 0; done
equal "coordinators" "$(coordinators)" 0
equal "ends" "$(cat "$work"/?.out | sed -n 's/.*finished at //p' | sort | uniq -c | tr -s ' ' | cut -d ' ' -f 2 | tr '\n' ,)" "2,"

# The host's machine reboots and starts a launcher with the same command line before the others have tried to reconnect: they do not take it for their host.
new_job 20,keep_alive_interval=0.3
begin "$worker" "$shared" $slow_work
wait_until "three are at work" sh -c "cat '$work'/[abc].out | grep -q 'of 3'"
frozen="$(agent_of b) $(agent_of c)"
kill -STOP $frozen
kill_node a
node d $flags "$worker" "$shared" $slow_work
wait_until "another rendezvous is open" grep -qi ":$(printf %04X "$port") .* 0A " /proc/net/tcp
kill -CONT $frozen
saying d 'the job continues elsewhere: joining it at 127.0.0.1:'
wait_until "three are at work again" at_work 3
release
for name in b c d; do ended $name 0; done
equal "coordinators" "$(coordinators)" 1

wait_until "no worker is left" nobody_works
finish
