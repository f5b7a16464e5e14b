# nodes.sh -- for test scripts: several `tutti run` of one job, each a node.   SPDX-License-Identifier: MIT
#
# . "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"   after expect.sh
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
export TUTTI_SECRET_FILE=$work/secret
declare -A node_pid
on=() # what starts a node: empty, or ip netns exec HOST

new_port() { # $port: free, and not the kernel's to give away
    port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
}
node() { # NAME FLAGS AND PROGRAM...: starts a node; its output goes to NAME.out
    local name=$1
    shift
    "${on[@]}" timeout -k 2 "${node_seconds:-50}" "$TUTTI" run "$@" >"$work/$name.out" 2>&1 &
    node_pid[$name]=$!
}
# NAME: the front process of its tutti run, a child of timeout (and of ip netns exec's successor)
front() { pgrep -P "${node_pid[$1]}" -x tutti || pgrep -P "${node_pid[$1]}"; }
ended() { # NAME CODE
    local code
    wait "${node_pid[$1]}"
    code=$?
    [ "$code" = "$2" ] && return
    fail "node $1 ended with $code, expected $2:"
    sed 's/^/    /' "$work/$1.out" | head -30
}
says() { # NAME REGEX
    grep -qE -- "$2" "$work/$1.out" && return
    fail "node $1 does not say \"$2\":"
    sed 's/^/    /' "$work/$1.out" | head -30
}
saying() { # NAME REGEX: waits until it does
    wait_until "node $1 says \"$2\"" grep -qE -- "$2" "$work/$1.out" || sed 's/^/    /' "$work/$1.out" | head -30
}
