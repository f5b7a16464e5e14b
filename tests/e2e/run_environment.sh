# run_environment.sh -- the workers' environment.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"

export SHOW='for name in LOCAL_RANK RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE GROUP_WORLD_SIZE \
    ROLE_WORLD_SIZE MASTER_ADDR TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE \
    TORCH_NCCL_ASYNC_ERROR_HANDLING; do printf "%s=%s " $name "$(printenv $name)"; done; echo'
RANK=9 WORLD_SIZE=77 run 0 "$TUTTI" run -n 3 sh -c "$SHOW"
for rank in 0 1 2; do
    out_has "^\[$rank\] LOCAL_RANK=$rank RANK=$rank GROUP_RANK=0 ROLE_RANK=$rank ROLE_NAME=default LOCAL_WORLD_SIZE=3 WORLD_SIZE=3 GROUP_WORLD_SIZE=1 ROLE_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=False TORCH_NCCL_ASYNC_ERROR_HANDLING=1 $"
done

# The same port, store, secret and id for all; each job its own.
job='echo $MASTER_PORT $TUTTI_STORE $TUTTI_SECRET $TORCHELASTIC_RUN_ID'
run 0 "$TUTTI" run -n 4 sh -c "$job"
equal "different answers of the ranks" "$(cut -d' ' -f2- "$work/out" | sort -u | wc -l)" 1
out_has '^\[0\] [0-9]+ 127\.0\.0\.1:[0-9]+ [0-9a-f]{64} [0-9]{8}-[0-9]{6}-[0-9]+$'
first=$(head -1 "$work/out" | cut -d' ' -f4)
run 0 "$TUTTI" run -n 1 sh -c "$job"
[ "$(cut -d' ' -f3 "$work/out")" != "$first" ] || fail "two jobs with one secret"
run 0 "$TUTTI" run -n 2 sh -c 'tr "\0" "\n" </proc/$PPID/cmdline; tr "\0" "\n" </proc/$PPID/environ'
grep -q "TUTTI_SECRET" "$work/out" && fail "the secret can be read from outside, in the launcher's arguments or environment"

# Flags about the workers' environment, also from PET_ variables; the command line has precedence.
run 0 "$TUTTI" run --nproc_per_node=2 --master-addr=localhost --master-port 0 --rdzv-id job7 --role trainer \
    sh -c 'echo $MASTER_ADDR $TORCHELASTIC_RUN_ID $ROLE_NAME'
out_has '^\[1\] localhost job7 trainer$'
PET_NPROC_PER_NODE=3 PET_ROLE=r run 0 "$TUTTI" run sh -c 'echo $WORLD_SIZE $ROLE_NAME'
out_has '^\[2\] 3 r$'
PET_NPROC_PER_NODE=3 PET_STANDALONE=1 PET_NO_PYTHON=0 run 0 "$TUTTI" run -n 2 sh -c 'echo $WORLD_SIZE'
out_has '^\[1\] 2$'
run 0 env -u OMP_NUM_THREADS "$TUTTI" run -n 64 sh -c 'echo threads $OMP_NUM_THREADS'
out_has 'threads [1-9]'
OMP_NUM_THREADS=5,2 run 0 "$TUTTI" run -n 2 sh -c 'echo threads $OMP_NUM_THREADS'
out_has 'threads 5,2$'
[ "$(nproc)" = 1 ] || { run 0 "$TUTTI" run -n auto sh -c 'echo $WORLD_SIZE' && out_has "[2-9]"; }

# Arguments and the environment of the user arrive unchanged.
MINE='a b' run 0 "$TUTTI" run -n 1 -- sh -c 'printf "<%s>" "$MINE" "$@"' name -n 5 --tee '' '$$ ${local_rank}'
out_has '^<a b><-n><5><--tee><><\$\$ \$\{local_rank\}>$'

# Rank 0 reads standard input, the others find it empty.
echo question | run 0 "$TUTTI" run -n 2 sh -c 'echo "got $(cat)"'
out_has '^\[0\] got question$'
out_has '^\[1\] got $'

# Many workers: more pipes than descriptors at first; workers have the launcher's original limit.
run 0 bash -c 'ulimit -Sn 100; exec "$0" run -n 150 sh -c "ulimit -n"' "$TUTTI"
equal "limits of descriptors" "$(cut -d' ' -f2 "$work/out" | sort | uniq -c | tr -s ' ')" " 150 100"
for inherited in 0 1 2 3 4 5 6; do # which of a worker's descriptors is the first too many depends on it
    run 4 bash -c 'for ((i = 0; i < $1; i++)); do exec {more}</dev/null; done
        ulimit -n 100; exec "$0" run -n 150 sleep '"$marker" "$TUTTI" $inherited
    err_has 'no descriptors for the pipes and sockets of rank [0-9]+ \(see ulimit -n\): Too many open files'
done
nobody_left

# With hardly any descriptors, or stack, it says so at once, whichever descriptor is the first too many.
for few in 5 6 8 10 15; do
    run 4 bash -c 'ulimit -n $0; exec "$@"' $few "$TUTTI" run -n 2 true </dev/null
    err_has "tutti run: $few files may be open at once \\(ulimit -n\\), expected at least 28, .*: raise the limit"
done
for kib in 40 64; do
    run 4 bash -c 'ulimit -s $0; exec "$@"' $kib "$TUTTI" run -n 2 true
    err_has "tutti run: the stack may have $kib KiB here \\(ulimit -s\\), expected at least 128: raise the limit"
done
run 0 bash -c 'ulimit -s 128; exec "$@"' limit "$TUTTI" run -n 2 true
run 5 bash -c 'ulimit -s 128; exec "$@"' limit "$TUTTI" run -n 2 --max-restarts 1 sh -c 'echo wrong >&2; exit 5'

# The chosen port can be listened on, and is not in the kernel's range for outgoing connections.
run 0 "$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT'
read -r low _ </proc/sys/net/ipv4/ip_local_port_range
[ "$low" -lt 20000 ] || [ "$(cat "$work/out")" -lt "$low" ] || fail "port $(cat "$work/out") may be taken by a connection"

# --env: all of env.def, and all that workers get.
run 0 "$TUTTI" run --env
for name in $(sed -n 's/^ENV(\([A-Z_0-9]*\),.*/TUTTI_\1/p' "$SOURCE_DIR/src/base/env.def") \
    $(sed -n 's/^VARIABLE(\([A-Z_0-9]*\),.*/\1/p' "$SOURCE_DIR/src/launch/process/worker_env.def"); do
    out_has "^\| \`$name\` \|"
done
finish
