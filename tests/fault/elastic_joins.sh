# Nodes join a run by shards and leave it at random moments, the rendezvous host too: it ends with the bits of an undisturbed
# run.   timeout: 150
# SPDX-License-Identifier: MIT
# EVENTS is the minimum number of joins and leaves (default 6; elastic_joins_all does 20 and more), SEED repeats a plan.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/elastic.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/nodes.sh"
wanted=${EVENTS:-6}
export TUTTI_LOG=warn,elastic:debug
node_seconds=300
flags="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs ${EPOCHS:-120} --checkpoint-every 1000 --threads 1 --log-every 1"
train whole $flags
steps=$(field whole/summary.json steps)

members() { generations "$run".*.out | tail -n 1 | cut -d ' ' -f 2; } # of the last generation
step() { tail -c 4096 "$run/metrics.jsonl" 2>no-metrics | sed -n 's/^{"step": \([0-9]*\),.*/\1/p' | tail -n 1; }
at_its_end() { ! kill -0 "${node_pid[${nodes[0]}]}" 2>no-node || [ "$(step || true)" -gt $((steps * 3 / 4)) ]; }
# Waits for a generation of all expected workers, of which the last node knows: an earlier generation may have had as many. False: the
# run is about to end.
all_there() {
    until [ "$(members)" = "$workers" ] && [ "$(generations "$run.$last.out")" ]; do
        ! at_its_end || return
        pause 20
    done
}
begin_node() { # starts the next one, with one worker or two
    name=$run.$((++last))
    count[$last]=$((1 + RANDOM % 2))
    node "$name" --nnodes 1:4 --rdzv-backend native --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf last_call_timeout=6 \
        -n "${count[last]}" "$TUTTI" train --run-dir "$work/$run" $flags
    workers=$((workers + count[last]))
    nodes+=("$name")
}
# Also ends the rendezvous host: a later node learns from its successor where the job is, within the last-call time.
end_node() { # NAME
    local i=${1##*.} k pid
    pid=$(front "$1") && kill -TERM $pid || true
    workers=$((workers - count[i]))
    for k in "${!nodes[@]}"; do
        [ "${nodes[k]}" != "$1" ] || unset "nodes[k]"
    done
    nodes=("${nodes[@]}")
    gone+=("$1")
}
ends_well() { # NAME
    local code=0
    wait "${node_pid[$1]}" || code=$?
    [ $code = 0 ] || failed_run "$run" "node $1 ended with $code"
}

echo "SEED=$SEED, load $(cut -d ' ' -f 1 /proc/loadavg)"
joins=0 leaves=0
for ((i = 0; joins + leaves < wanted; i++)); do
    run=run$i last=0 workers=0 nodes=() gone=() count=()
    new_port
    begin_node
    until [ "$(members)" = "$workers" ]; do kill -0 "${node_pid[$name]}" || failed_run "$run" "the first node"; pause 20; done
    for ((k = 0; k < 10; k++)); do
        ! at_its_end || break
        if [ ${#nodes[@]} = 1 ] || { [ ${#nodes[@]} -lt 4 ] && [ $((RANDOM % 2)) = 0 ]; }; then
            begin_node
            joins=$((joins + 1))
            # A node that arrives after the end would start another job.
            all_there || break
        else
            choose 1 "${nodes[@]}"
            end_node "${chosen[0]}"
            leaves=$((leaves + 1))
            [ $((RANDOM % 3)) = 0 ] || all_there || break
        fi
        pause $((RANDOM % 150))
    done
    for name in "${nodes[@]}" "${gone[@]}"; do ends_well "$name"; done
    same_end whole "$run"
    grep -h ' steps in .*lost to deaths' "$run".*.out | sed 's/^/    /'
    rm -r "$run"*
done
echo "$i runs, $joins nodes joined, $leaves left; load $(cut -d ' ' -f 1 /proc/loadavg)"
