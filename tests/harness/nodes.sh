# nodes.sh -- for test scripts: one job of several `tutti run`, each as a node.   SPDX-License-Identifier: MIT
#
# . "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"   after expect.sh
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
export TUTTI_SECRET_FILE=$work/secret
declare -A node_pid
on=() # what starts a node: empty, or ip netns exec HOST

new_port() { # $port: free, and not in the kernel's range for outgoing connections
    port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
}
folders=0
new_job() { # --rdzv-conf: $flags of a job of up to 3 nodes, and $shared, its folder
    rm -f "$work"/*.out*
    new_port
    shared=$work/shared$((++folders))
    mkdir "$shared"
    flags="--nnodes 1:3 --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=$1"
}
nobody_works() { ! pgrep -f "$worker $work" >/dev/null; } # no $worker of any job
node() { # NAME FLAGS AND PROGRAM...: starts a node; its output goes to NAME.out
    local name=$1
    shift
    : >"$work/$name.out" # empty before the checks, which must not see an earlier node's output
    "${on[@]}" timeout -k 2 "${node_seconds:-150}" "$TUTTI" run "$@" >"$work/$name.out" 2>&1 &
    node_pid[$name]=$!
}
# NAME: the front process of its tutti run, a child of timeout (and of ip netns exec's successor)
front() { pgrep -P "${node_pid[$1]}" -x tutti || pgrep -P "${node_pid[$1]}"; }
ended() { # NAME CODE
    local code
    wait "${node_pid[$1]}"
    code=$?
    [ "$code" = "$2" ] || fail "node $1 ended with $code, expected $2"
}
says() { # NAME REGEX
    grep -qE -- "$2" "$work/$1.out" || fail "node $1 does not say \"$2\""
}
none_says() { # REGEX: none of the nodes with output files
    ! cat "$work"/*.out | grep -qE -- "$1" || fail "a node prints \"$1\""
}
saying() { # NAME REGEX: waits until it does
    wait_until "node $1 says \"$2\"" grep -qE -- "$2" "$work/$1.out"
}
at_work() { # N: N elastic_workers in the last generation of $shared
    local last
    last=$(ls "$shared" | sed -n 's/^generation-//p' | sort -n | tail -1)
    cat "$work"/*.out | grep -qE "generation $last of $1$"
}
release() { : >"$shared/go"; } # lets elastic_workers with brake=STEP go on
details() { # what the nodes have said, as far as it was not shown with the failure before
    local file
    for file in "$work"/*.out; do
        [ ! -e "$file" ] || cmp -s "$file" "$file.shown" && continue
        cp "$file" "$file.shown"
        echo "    ---- node $(basename "$file" .out):"
        tail -n 40 "$file" | sed 's/^/    /'
    done
}
