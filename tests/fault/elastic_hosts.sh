# Hosts of a run by shards, each a network namespace, are cut off, frozen, killed, and come back: it ends with the bits of one that
# nothing happened to, and nothing hangs.   timeout: 170
# SPDX-License-Identifier: MIT
# HOSTS is how many hosts are cut or frozen at least (default 3; elastic_hosts_all does 20), SEED repeats a plan.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter a.test b.test c.test
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "${SOURCE_DIR:?is set by ctest}/tests/harness/elastic.sh"
wanted=${HOSTS:-3}
export TUTTI_LOG=warn,elastic:debug TUTTI_SECRET_FILE=$work/secret
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
hosts_up
flags="--model mlp --dropout 0.3 --shards 8 --batch-size 8 --epochs ${EPOCHS:-150} --checkpoint-every 1000 --threads 1 --log-every 1"
train whole $flags
steps=$(field whole/summary.json steps)

members() { generations "$run".*.out | tail -n 1 | cut -d ' ' -f 2; } # of the last generation
step() { tail -c 4096 "$run/metrics.jsonl" 2>no-metrics | sed -n 's/^{"step": \([0-9]*\),.*/\1/p' | tail -n 1; }
# A node a host, with one worker: silence is noticed in a second. The majority is what goes on when the network parts.
begin_node() { # HOST
    tries[$1]=$((${tries[$1]:-0} + 1))
    on_host "$1" timeout -k 2 100 "$TUTTI" run --nnodes 1:3 --rdzv-backend native --rdzv-endpoint 10.88.0.1:29400 \
        --rdzv-conf last_call_timeout=3,keep_alive_interval=0.3,join_timeout=30 -n 1 \
        "$TUTTI" train --run-dir "$work/$run" --heartbeat-timeout 1 $flags >"$run.$1.${tries[$1]}.out" 2>&1 &
    node_pid[$1]=$!
}
processes_of() { # HOST: of its job
    local p
    for p in $(pgrep -f -- "$TUTTI"); do
        [ "$(readlink "/proc/$p/ns/net")" != "$(readlink "/proc/${host_pids[$1]}/ns/net")" ] || echo "$p"
    done
}
at_its_end() { [ "$(step || true)" -gt $((steps * 3 / 4)) ] || [ "$SECONDS" -gt "$limit" ]; }
await_members() { # N
    until [ "$(members)" = "$1" ]; do
        ! at_its_end || return
        pause 20
    done
}
