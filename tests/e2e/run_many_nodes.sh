# tutti run on 40 nodes (NODES), here agents on loopback that write to one file: more connections than the usual limit of descriptors,
# one of many that fails, all that fail alike, Ctrl-C: what concerns all is said once.   timeout: 60
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"
n=${NODES:-40}
details() { head -n 20 "$work/all" | cut -c1-200 | sed 's/^/    /'; }

begin() { # LIMIT PROGRAM...: starts them, with this limit of descriptors, which they may raise
    local limit=$1
    shift
    new_port
    : >"$work/all"
    for ((i = 0; i < n; i++)); do
        (
            ulimit -Sn "$limit"
            exec timeout -k 2 "${node_seconds:-120}" "$TUTTI" run --nnodes "$n" --node-rank "$i" --rdzv-endpoint "127.0.0.1:$port" "$@"
        ) >>"$work/all" 2>&1 </dev/null &
        node_pid[$i]=$!
    done
}
all_end() { # CODE
    local code others=""
    for ((i = 0; i < n; i++)); do
        wait "${node_pid[$i]}"
        code=$?
        [ $code = "$1" ] || others="$others $i: $code"
    done
    equal "nodes that do not end with $1" "$others" ""
}
lines() { # WHAT REGEX NUMBER
    equal "lines $1" "$(grep -cE -- "$2" "$work/all")" "$3"
}

# The rendezvous host has a connection to each node, and to each of their workers from its store.
begin $((n + 30)) -n 1 "$TUTTI" bench barrier --iterations 1 --warmup 1
all_end 0
lines "of the result" "# barrier, $n ranks" 1

# One fails: its node and the rendezvous host say which.
export PET_RDZV_CONF=merge_output=1
begin 1024 -n 1 sh -c 'echo up; [ "$RANK" = 7 ] && exit 9; exec sleep '"$marker"
all_end 9
lines "about the failure" 'rank 7 on .* failed' 2
lines "of all launchers" '^tutti run: ' 2
nobody_left

# All fail alike, those that are not stopped before: their message is shown once, with the ranks, and the report is that of the first.
begin 1024 -n 2 "$TUTTI" bench nothing
all_end 2
lines "with the message" '^\[[a-zA-Z0-9_.-]* [0-9]+\] .*there is no benchmark' 1
grep -qE '^\[[0-9, -]+\] as rank [0-9]+: ' "$work/all" || fail "no line with the ranks"
reports=$(grep -cE '^tutti run: (rank [0-9]+ on .* failed first|all 2 ranks failed)' "$work/all")
[ "$reports" = 1 ] || [ "$reports" = 2 ] || fail "$reports reports"  # of the first node, and the rendezvous host's line about another node
lines "about how many" "^tutti run: workers of [0-9]+ of $n nodes failed" 1
[ "$(wc -l <"$work/all")" -lt 12 ] || fail "$(wc -l <"$work/all") lines about one failure"

# Ctrl-C on one node ends all.
begin 1024 -n 2 sleep "$marker"
wait_until "all workers run" sleepers $((2 * n))
kill -INT "$(front 3)"
all_end 130
nobody_left
[ "$(wc -l <"$work/all")" -lt 6 ] || fail "$(wc -l <"$work/all") lines about Ctrl-C"
finish
