# tutti run: what an elastic job survives: frozen workers, killed agents and front processes, loss of the rendezvous host, and kills
# at any moment. The final state is that of an undisturbed run, and no process is left.
# timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"
worker=$BUILD_DIR/tests/program/elastic_worker
export TUTTI_LOG=error

begin() { # NAME...: two workers each, the first is the rendezvous host
    node "$1" $flags -n 2 "$worker" "$shared" 200 4 8 brake=100
    saying "$1" 'generation 1 of 2'
    while shift && [ $# -gt 0 ]; do node "$1" $flags -n 2 "$worker" "$shared" 200 4 8 brake=100; done
}
all_end() { # N: N workers finish, with the undisturbed state
    equal "ends" "$(cat "$work"/?.out | sed -n 's/.*finished at //p' | sort | uniq -c | tr -s ' ')" " $1 step 200 with $undisturbed"
    wait_until "no worker is left" nobody_works
}

new_job 0
run 0 "$TUTTI" run "$worker" "$shared" 200 0 8
undisturbed=$(sed -n 's/.*finished at step 200 with //p' "$work/out")

# The others wait for a frozen worker until one of them declares it dead; then it is killed and replaced.
new_job 0
timeout 90 "$TUTTI" run -n 3 "$worker" "$shared" 200 4 8 brake=100 >"$work/a.out" 2>&1 &
launcher=$!
saying a 'generation 1 of 3'
kill -STOP "$(cat "$shared/pid.1")"
saying a 'rank 1 \(process [0-9]+\) was killed by SIGKILL .*: a replacement'
saying a 'generation [2-9] of 3'
release
wait $launcher
equal "exit code" $? 0
all_end 3

# A worker that can reach no other is removed; the job continues.
new_job 0
run 0 "$TUTTI" run -n 3 "$worker" "$shared" 200 1 8 alone=1
cp "$work/out" "$work/a.out"
grep -q 'rank 1 (process [0-9]*) is killed: no group can be formed with it (it says: cannot connect)' "$work/out" "$work/err" ||
    fail "nothing says why it was killed"
all_end 2

# Kills the front process of a node, then the agent of another; that one's front reports it.
new_job 0
begin a b c
wait_until "six are at work" at_work 6
front=$(front b)
kill -KILL "$front"
wait "${node_pid[b]}"
saying a 'node .* was lost with 2 workers: .*; the others continue'
wait_until "four are at work" at_work 4
kill -KILL "$(pgrep -P "$(front c)")"
ended c 137
wait_until "two are at work" at_work 2
release
ended a 0
all_end 2

# The rendezvous host is killed: another takes over. Workers die meanwhile.
new_job 0
begin a b c
wait_until "six are at work" at_work 6
kill -KILL "$(front a)"
wait "${node_pid[a]}"
kill -KILL "$(cat "$shared/pid.3")"
wait_until "four are at work" at_work 4
says b 'the coordinator node at .* was lost: .*; the next one takes over'
kill -KILL "$(cat "$shared/pid.4")"
release
ended b 0
ended c 0
all_end 4
cat "$work/b.out" "$work/c.out" | grep -cq 'a replacement takes its place' || fail "no worker was replaced"
none_says 'starting the workers again'

# All are told to end at once: the last workers get the signal as usual.
new_job 0
begin a b
wait_until "four are at work" at_work 4
kill -TERM "$(front a)" "$(front b)"
wait "${node_pid[a]}" "${node_pid[b]}"
wait_until "no worker is left" nobody_works

# The rendezvous host is told to end when its worker has ended and the other one's has not: it ends, and is in no round that follows.
new_job 20
node_seconds=60
late='"$@"; code=$?; echo "group rank $GROUP_RANK ends with $code"
    while [ "$GROUP_RANK.$TUTTI_ATTEMPT" = 1.0 ] && [ ! -e "$0" ]; do sleep 0.01; done; [ "$GROUP_RANK.$TUTTI_ATTEMPT" = 1.0 ] && exit 1; exit $code'
late_job() { # NAME
    node "$1" ${flags/1:3/1:2} --max-restarts 2 -n 1 sh -c "$late" "$shared/go" "$worker" "$shared" 20 0 8
}
late_job a
wait_until "the rendezvous is open" grep -qi ":$(printf %04X "$port") " /proc/net/tcp
late_job b
saying a 'group rank 0 ends with 0'
saying b 'group rank 1 ends with 0'
saying a 'finished at step 20'
kill -TERM "$(front a)"
ended a 0
release
ended b 0
says b 'starting the workers again: 1 rank on 1 node, restart 1 of 2'
node_seconds=

# Kills at any moment, several at once.
new_job 0
RANDOM=7
begin a b c
for i in $(seq 8); do
    for k in $(seq $((RANDOM % 3 + 1))); do
        file=$shared/pid.$((RANDOM % 6))
        [ -s "$file" ] && kill -KILL "$(cat "$file")" 2>/dev/null
    done
    sleep 0.0$((RANDOM % 10)) # it varies the moment, not the outcome
done
wait_until "six are at work" at_work 6
release
for name in a b c; do ended $name 0; done
all_end 6
finish
