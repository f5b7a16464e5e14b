#!/bin/bash
# plan_scaling.sh: a step as `tutti plan` says it, and as ranks take it on hosts that are network namespaces with shaped links (root, tc's
# tbf), in Markdown; milliseconds. The model sleeps instead of computing (tests/standin/paced_model.c), so that cores which ranks share do
# not matter much; its computation is that of a run of one rank. A run's figure is the slowest of the faster quarter of its steps:
# what other programs do only delays.
#
#   STEPS=16 MBIT="100 400" bench/plan_scaling.sh
#   FIRST="chrt -f 10" bench/plan_scaling.sh        beside other programs: ranks come before them
case $0 in */*) cd "$(dirname "$0")/.." || exit 2 ;; esac # it is started again in namespaces, as bash $0
. tests/harness/hosts.sh
hosts_enter h0 h1 h2 h3 h4 h5 h6 h7
set -euo pipefail
TUTTI=$PWD/${TUTTI:-build/tutti} MODEL=$PWD/${MODEL:-build/standin/paced_model.so}
STEPS=${STEPS:-16} MBIT=${MBIT:-100 400} FIRST=${FIRST:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hosts_up
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
cd "$work"
status=0 port=29500
keys="--model $MODEL --data digits --augment off --batch-size 8 --threads 1 --bucket-mb 0.5 --first-bucket-mb 0.1"
quiet="--max-steps $STEPS --log-every 1 --eval-every 0 --eval-steps 0 --progress quiet"

shape() { # MBIT: both directions of every host's link
    local i bucket=$(($1 * 320 < 65536 ? 65536 : $1 * 320)) # bytes
    for i in "${!host_names[@]}"; do # what is sent at once must be less than the bucket
        ip link set "port$i" gso_max_size 16384
        on_host "$i" ip link set eth0 gso_max_size 16384
        tc qdisc replace dev "port$i" root tbf rate "$1mbit" burst $bucket latency 400ms
        on_host "$i" tc qdisc replace dev eth0 root tbf rate "$1mbit" burst $bucket latency 400ms
    done
    # 1448 bytes of 1514 are a message's
    echo '{"core": {"latency_us": 5, "gbps": 5, "message_us": 1, "reduce_gbps": 5},
        "host": {"latency_us": 40, "message_us": 5, "gbps": '"$(awk -v m="$1" 'BEGIN { print m / 8000 * 1448 / 1514 }')"'},
        "switch": {"hosts": 8, "gbps": 1000}}' >links.json
}
step_of() { # SAMPLES of each step, but for the first two
    sed -n 's/.*"images_per_s": \([0-9.]*\),.*/\1/p' run/metrics.jsonl | tail -n +3 | sort -g |
        awk -v n="$1" '{ v[NR] = n * 1000 / $1 } END { print v[int((3 * NR + 3) / 4)] }'
}
measure() { # HOSTS EACH KEYS...
    local hosts=$1 each=$2 rank pids="" world=$(($1 * $2))
    shift 2
    rm -rf run
    port=$((port + 1))
    for rank in $(seq 0 $((world - 1))); do
        RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each MASTER_ADDR=10.88.0.1 \
            MASTER_PORT=$port TUTTI_SECRET_FILE=$work/secret on_host $((rank / each)) $FIRST timeout 300 \
            "$TUTTI" train --run-dir run $keys $quiet "$@" >"rank.$rank" 2>&1 &
        pids="$pids $!"
    done
    for rank in $pids; do wait "$rank" || { cat rank.* >&2 && status=1; }; done
    step_of $((world * 8))
}
row() { # HOSTS EACH KEYS...
    local hosts=$1 each=$2 planned measured
    shift 2
    "$TUTTI" plan --step-ms "$alone" $keys "$@" --ranks $((hosts * each)) --ranks-per-host "$each" --links links.json --json plan.json >plan.out 2>&1 || { cat plan.out >&2 && status=1; }
    planned=$(sed -n '/^  "step_ms"/s/[^0-9.]//gp' plan.json)
    measured=$(measure "$hosts" "$each" "$@")
    awk -v p="$planned" -v m="$measured" -v e="$(sed -n '/^  "exposed_ms"/s/[^0-9.]//gp' plan.json)" -v h="$hosts x $each" -v k="$rate" -v more="${*:-plain}" \
        'BEGIN { printf "| %s | %s | %s | %.1f | %.1f | %.1f | %.3f |\n", more, h, k, e, p, m, p / m }'
}

alone=$(measure 1 1)
echo "a step of one rank: $alone ms"
echo "| keys | hosts x ranks | Mbit/s | planned: exposed | planned: step | measured: step | planned / measured |"
echo "|---|---|---|---|---|---|---|"
for rate in $MBIT; do
    shape "$rate"
    for hosts in 2 4 8; do row $hosts 1; done
    row 2 2
    row 4 2
    row 2 4
    row 4 1 --zero 2
    row 4 1 --zero 3
done
exit $status
