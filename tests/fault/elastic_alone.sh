# Elastic training without tutti run: the group comes from the environment, the result is the same, and a lost rank ends the others.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
program=$BUILD_DIR/examples/example_elastic_reducer
folder=$work
pids=
trap 'kill -9 $pids 2>/dev/null; rm -rf "$work"' EXIT

if [ ! -x "$program" ]; then
    echo "skipped: $program is not built"
    exit 77
fi

# start SIZE STEPS: the ranks' processes in $pids, their output in $folder/RANK
start() {
    pids=
    rm -f "$folder/store"
    for rank in $(seq 0 $(($1 - 1))); do
        RANK=$rank WORLD_SIZE=$1 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$1 TUTTI_STORE=file:$folder/store \
            timeout -k 1 120 "$program" "$2" >"$folder/$rank" 2>&1 &
        pids="$pids $!"
    done
}

alone=$(timeout 120 "$program" 300)
for size in 2 4; do
    start $size 300
    for pid in $pids; do wait "$pid" || fail "$size ranks: exit code $?: $(cat "$folder"/[0-9])"; done
    [ "$(cat "$folder/0")" = "$alone" ] || fail "$size ranks: $(cat "$folder/0"), alone: $alone"
done

# Rank 1 is killed; rank 0 reports it and exits with the code for a lost peer.
export TUTTI_LOG=warn,elastic:debug
start 2 100000000
set -- $pids
until grep -q "rank 1 of 2: .* for the group" "$folder/1"; do
    kill -0 "$2" || break
    sleep 0.05
done
kill -9 $(cat "/proc/$2/task/$2/children")
wait "$1"
code=$?
wait "$2"
[ $code = 3 ] || fail "a lost rank: exit code $code, expected 3: $(cat "$folder/0")"
grep -q "rank 1" "$folder/0" || fail "a lost rank: nothing says which: $(cat "$folder/0")"

# A descriptor that does not belong to an agent is refused, with a hint.
TUTTI_AGENT_FD=0 timeout 120 "$program" 1 >"$folder/out" 2>&1 </dev/null && fail "TUTTI_AGENT_FD=0: exit code 0"
grep -q TUTTI_AGENT_FD "$folder/out" || fail "TUTTI_AGENT_FD=0: $(cat "$folder/out")"

finish
