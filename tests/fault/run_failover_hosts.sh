# tutti run on three hosts, which are network namespaces: the rendezvous host of an elastic job is disconnected, and comes back; it loses
# power; one of two hosts is disconnected. The two sides never both continue, and the final state is the undisturbed one.   timeout: 120   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter one two three
. "$SOURCE_DIR/tests/harness/expect.sh"
. "$SOURCE_DIR/tests/harness/nodes.sh"
hosts_up
worker=$BUILD_DIR/tests/program/elastic_worker
export TUTTI_LOG=error

node_on() { # I NAME ARGUMENTS...: runs `tutti run` on a host, as a child of timeout
    local i=$1 name=$2
    shift 2
    on_host "$i" timeout -k 2 180 "$TUTTI" run "$@" >"$work/$name.out" 2>&1 &
    node_pid[$name]=$!
}
steps=400 # slow ones, until `release`
begin() { # N: starts nodes a, b, c on that many hosts; a is the rendezvous host
    local i names=(a b c)
    rm -f "$work"/?.out
    shared=$work/shared$((++folders))
    mkdir "$shared"
    for i in $(seq 0 $(($1 - 1))); do
        node_on "$i" "${names[i]}" --nnodes "1:$1" --rdzv-backend native --rdzv-endpoint one:$((29400 + folders)) \
            --rdzv-conf "last_call_timeout=20,keep_alive_interval=0.3${conf:+,$conf}" "$worker" "$shared" $steps 1 8 brake=20
    done
    wait_until "$1 are at work" sh -c "cat '$work'/?.out | grep -q 'generation [0-9]* of $1'"
}
cut() { ip link set "port$1" nomaster; } # no packet passes, and no peer is notified
mend() { ip link set "port$1" master hub; }
all_say() { # COUNT REGEX
    equal "\"$2\"" "$(cat "$work"/?.out | grep -cE "$2")" "$1"
}
same_end() { # N
    equal "ends" "$(cat "$work"/?.out | sed -n 's/.*finished at //p' | sort | uniq -c | tr -s ' ')" " $1 $undisturbed"
}
mkdir "$work/alone"
run 0 "$TUTTI" run "$worker" "$work/alone" $steps 0 8
undisturbed=$(sed -n "s/.*finished at //p" "$work/out")

# The rendezvous host is disconnected: it waits, the other two continue; when it is reconnected, all train together.
begin 3
cut 0
saying a 'only 1 of 3 nodes are connected, and the others may continue without this node: waiting'
wait_until "another coordinates" sh -c "cat '$work'/[bc].out | grep -q 'coordinates the job from now on (term 2), with 2 of 3 nodes'"
wait_until "two are at work" sh -c "cat '$work'/[bc].out | grep -q 'generation [0-9]* of 2'"
grep -q 'generation [0-9]* of 1' "$work"/a.out && fail "both sides of the split continued"
mend 0
saying a 'another node coordinates the job: this one rejoins it'
wait_until "three are at work again" at_work 3
release
for name in a b c; do ended $name 0; done
all_say 1 'this node coordinates the job'
same_end 3

# It loses power: no peer is notified, and it does not come back.
begin 3
cut 0
kill -KILL $(pgrep -P "$(front a)") "$(front a)"
wait "${node_pid[a]}" 2>/dev/null
wait_until "two are at work" at_work 2
release
for name in b c; do ended $name 0; done
all_say 1 'this node coordinates the job'
same_end 2
mend 0

# Of two hosts disconnected from each other the rendezvous host continues, and the other waits until it is reconnected.
begin 2
cut 1
saying a 'generation [0-9]* of 1'
saying b 'only 1 of 2 nodes are connected, and the others may continue without this node: waiting'
mend 1
saying b 'another node coordinates the job: this one rejoins it'
wait_until "both are at work again" at_work 2
release
for name in a b; do ended $name 0; done
all_say 0 'this node coordinates the job'
same_end 2

# It stays disconnected: the waiting host gives up, and its workers with it.
conf=join_timeout=5 begin 2
cut 1
ended b 3
says b 'timed out after 5 s waiting for nodes that may have continued without this one'
release
ended a 0
same_end 1
equal "left behind" "$(pgrep -fc "$worker $shared ")" 0
finish
