# kubernetes.sh -- the manifests of scripts/kubernetes, as pods: their commands with their environment, each on its own host
# and as process 1 there; training, eviction, resuming; a lost and recreated pod.
# timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
python3 -c 'import yaml' 2>/dev/null || skip_test "no python3 with yaml (python3-yaml of Debian)"
hosts_enter tutti-0.tutti tutti-1.tutti tutti-master-0 tutti-worker-0
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
hosts_up
mkdir bin
ln -s "$TUTTI" bin/tutti

# manifest NAME FIRST-HOST: reads it, for the two pods that begin there
manifest() {
    local name
    pods=$work/$1 root=$work/root-$1 first=$2
    mkdir "$pods"
    python3 "$SOURCE_DIR/tests/harness/kubelet.py" "$SOURCE_DIR/scripts/kubernetes/$1.yaml" "$pods" "$root" || fail "$1.yaml"
    for i in 0 1; do
        mapfile -d '' -t name <"$pods/pod-$i/hostname"
        [ "${name[0]}" = "${host_names[first + i]}" ] || fail "pod $i of $1 is called ${name[0]}"
    done
    run_dir=$root/runs/tutti
}
# pod I MORE...: in the background, as $!; MORE is appended to `tutti train`
pod() {
    local i=$1 argv env
    shift
    mapfile -d '' -t argv <"$pods/pod-$i/argv"
    mapfile -d '' -t env <"$pods/pod-$i/env"
    on_host $((first + i)) unshare --pid --fork --kill-child --mount-proc \
        env -i PATH="$work/bin:$PATH" TUTTI_COLOR=never "${env[@]}" "${argv[@]}" "$@"
}
start() { # MORE...
    pod 0 "$@" >"$pods/0.out" 2>&1 </dev/null &
    pod_pids=($!)
    pod 1 "$@" >"$pods/1.out" 2>&1 </dev/null &
    pod_pids+=($!)
}
show() { cat "$pods"/?.out; }
ends() { # I: its code, as $code
    code=0
    wait "${pod_pids[$1]}" || code=$?
}
both_end() { # CODE
    for i in 0 1; do
        ends $i
        [ $code = "$1" ] || { show && fail "pod $i ended with $code, expected $1"; }
    done
}
main_process() { pgrep -P "${pod_pids[$1]}"; } # of pod I: the one that Kubernetes signals
trains() {
    for _ in $(seq 2000); do
        n=$(grep -c '"step"' "$run_dir/metrics.jsonl" 2>/dev/null) || true
        [ "${n:-0}" -ge "$1" ] && return
        sleep 0.05
    done
    show && fail "never: step $1"
}
small=(--model=mlp --epochs=100000 --log-every=1 --schedule=constant)
try() {
    # Evicted: both pods get SIGTERM, save, and resume when they are recreated.
    start "${small[@]}"
    trains 20
    for i in 0 1; do kill -TERM "$(main_process $i)"; done
    both_end 143
    grep -q '"status": "interrupted"' "$run_dir/summary.json" || { show && fail "nothing was saved"; }
    saved=$(field "$run_dir/summary.json" steps)
    start "${small[@]}"
    trains $((saved + 20))
    [ "$(grep -c "\"step\": $saved," "$run_dir/metrics.jsonl")" = 1 ] || { show && fail "step $saved was done anew"; }

    # A lost pod is recreated; the other waits for it, and both resume from the last checkpoint.
    kill -KILL "$(main_process 1)"
    ends 1
    begin=$(date +%s%N)
    pod 1 "${small[@]}" >"$pods/1.out" 2>&1 </dev/null &
    pod_pids[1]=$!
    for _ in $(seq 2000); do
        grep -q 'resume' "$pods/0.out" && [ "$(grep -c 'run folder' "$pods/0.out")" = 2 ] && break
        sleep 0.05
    done
    trains $((saved + 40))
    lost="$lost $((($(date +%s%N) - begin) / 1000000)) ms"
    for i in 0 1; do kill -TERM "$(main_process $i)"; done
    both_end 143
    [ -z "$(pgrep -f '^tutti')" ] || { pgrep -af '^tutti' && fail "processes are left"; }
    rm -r "$run_dir"
    start --model=mlp --epochs=1
    both_end 0
    [ "$(field "$run_dir/summary.json" world_size)" = "$1" ] || { cat "$run_dir/summary.json" && fail "not one job"; }
    ! grep -q 'secret' "$pods"/?.out || { show && fail "the secret was not taken"; }
}
lost=""
export -n TUTTI
manifest indexed-job 0
try $((2 * $(nproc)))
manifest pytorchjob 2
try 4
echo "from a lost pod, made anew at once, to the next steps:$lost"
