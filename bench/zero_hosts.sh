#!/bin/bash
# zero_hosts.sh: what a host sends to the other in a step of ZeRO, with shares of all ranks and of a host's: two hosts of two ranks each
# (network namespaces joined by a veth pair; root). MiB by the interface's counter, as a multiple of the parameters' bytes too, without
# what a run sends before and after its steps; and the parameter_digest, which is the same for all.
#
#   STEPS=8 bench/zero_hosts.sh [KEYS...]        keys of tutti train, in place of a small gpt2
. "$(dirname "$0")/lib.sh"
STEPS=${STEPS:-8}
keys=(--model gpt2 --data shakespeare --layers 4 --heads 4 --width 256 --context 32 --batch-size 1 --optimizer adamw)
[ $# = 0 ] || keys=("$@")
keys+=(--epochs 1 --eval-every 0 --sample-tokens 0 --threads 1 --progress quiet --bucket-mb 4)
hosts_open

sent() { ip netns exec "$(host 1)" cat /sys/class/net/eth0/statistics/tx_bytes; }
train() { # STEPS FLAGS...: prints what the first host has sent
    local rank pids="" failed=0 before
    rm -rf "$work/run"
    before=$(sent)
    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.79.0.1 MASTER_PORT=29500 \
            TUTTI_SECRET_FILE=$work/secret ip netns exec "$(host $((rank / 2 + 1)))" "$TUTTI" train "${keys[@]}" \
            --max-steps "$1" "${@:2}" --run-dir "$work/run" >"$work/out.$rank" 2>&1 &
        pids="$pids $!"
    done
    for rank in $pids; do wait "$rank" || failed=1; done
    [ $failed = 0 ] || { cat "$work"/out.* >&2 && return 1; }
    echo $(($(sent) - before))
}

echo '| layout | MiB a step, host 0 to host 1 | of the parameters | parameter_digest |'
echo '|---|---|---|---|'
for flags in "" "--zero 1" "--zero 2" "--zero 3" "--zero 1 --zero-ranks 2" "--zero 2 --zero-ranks 2" "--zero 3 --zero-ranks 2"; do
    # shellcheck disable=SC2086 # flags
    few=$(train "$STEPS" $flags) more=$(train $((2 * STEPS)) $flags)
    parameters=$(sed -n 's/.*"parameters": \([0-9]*\).*/\1/p' "$work/run/summary.json")
    digest=$(sed -n 's/.*"parameter_digest": "\([^"]*\)".*/\1/p' "$work/run/summary.json")
    awk -v bytes=$((more - few)) -v steps="$STEPS" -v n="$parameters" -v layout="${flags:-plain}" -v digest="$digest" \
        'BEGIN {each = bytes / steps; printf "| %s | %.2f | %.2f | %s |\n", layout, each / 1048576, each / (4 * n), digest}'
done
