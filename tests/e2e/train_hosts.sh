# `tutti train` on several hosts, which are network namespaces: one rank per host has the same bits as on one host,
# and so do equal layouts, over IPv4 and IPv6; each rank is started by hand.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
hosts_enter one two
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
hosts_up
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >secret)

# on_hosts DIR ADDRESS EACH ARGUMENTS...: a run of 2 x EACH ranks, which rank 0 hosts at ADDRESS.
on_hosts() {
    local dir=$1 address=$2 each=$3 rank pids=""
    shift 3
    for rank in $(seq 0 $((2 * each - 1))); do
        RANK=$rank WORLD_SIZE=$((2 * each)) LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each MASTER_ADDR=$address \
            MASTER_PORT=29500 TUTTI_SECRET_FILE=$work/secret on_host $((rank / each)) timeout 360 \
            "$TUTTI" train --run-dir "$dir" "$@" >"$dir.$rank.out" 2>&1 &
        pids="$pids $!"
    done
    for rank in $pids; do
        wait "$rank" || { cat "$dir".*.out; fail "a rank of $dir failed"; }
    done
    ! grep -i warn "$dir".*.out || fail "$dir warns"
}

mlp="--model mlp --data digits --augment off --log-every 1 --max-steps 20 --batch-size 8 --lr 0.05 --threads 1"
train one_host -n 2 $mlp
on_hosts two_hosts 10.88.0.1 1 $mlp
same one_host two_hosts
on_hosts two_hosts_v6 fd88::1 1 $mlp
same one_host two_hosts_v6

on_hosts two_by_two 10.88.0.1 2 $mlp
on_hosts two_by_two_v6 "[fd88::1]" 2 $mlp --bucket-mb 0.01 --first-bucket-mb 0.001
same two_by_two two_by_two_v6
train four -n 4 $mlp
losses four >four.loss
losses two_by_two >two_by_two.loss
close four.loss two_by_two.loss 1e-5
echo "one rank a host: the bits of one host; two a host: those of the same layout, and the losses of one host"
