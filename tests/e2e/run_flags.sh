# run_flags.sh -- the command line of `tutti run`: its errors.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"

refuses() { # PATTERN FLAGS...
    local pattern=$1
    shift
    run 2 "$TUTTI" run "$@"
    err_has "$pattern"
    equal "lines of the message" "$(wc -l <"$work/err")" 1
}
refuses 'no program was given'
refuses 'no program was given' -n 2 --
refuses 'there is no flag "--nproc-per-nude" \(did you mean "--nproc-per-node"\?\)' --nproc-per-nude 2 true
refuses 'did you mean "--redirects"' --redirect-s 3 true
refuses '--no is the beginning of several flags: --node-rank, --no-python' --no true
refuses 'there is no flag "--xyzzyxyzzyxyzzy"; see tutti run --help \(flags of the program come after it\)' --xyzzyxyzzyxyzzy true
refuses 'there is no flag "-q"; see tutti run --help' -q true
refuses '--nproc-per-node is "0", expected a number' --nproc-per-node 0 true
refuses '-n is "two"' -n two true
refuses '-n is "-3"' -n -3 true
refuses '-n is ""' -n '' true
refuses '-n is "2.5"' -n2.5 true
CUDA_VISIBLE_DEVICES= refuses '-n is "gpu", but CUDA_VISIBLE_DEVICES names no device' -n gpu true
CUDA_VISIBLE_DEVICES=-1 refuses 'names no device' -n gpu true
refuses '-n is "xpu"' -n xpu true
refuses '-n is "99999999999"' -n 99999999999 true
refuses '--nproc-per-node needs a value' --nproc-per-node
refuses '--standalone takes no value' --standalone=yes true
refuses '--master-port is "65536"' --master-port 65536 true
refuses '--nnodes is "2:20:30", expected N or MIN:MAX' --nnodes 2:20:30 true
refuses 'where do the nodes meet\? Give --rdzv-endpoint HOST:PORT, or --master-addr' --nnodes 2 --node-rank 0 true
refuses 'which of them is this\? Give --node-rank K' --nnodes 2 --rdzv-endpoint h:5 true
refuses 'the port is missing' --nnodes 2 --node-rank 1 --rdzv-endpoint h true
refuses '--rdzv-backend etcd is not in this version' --rdzv-backend etcd true
refuses '-t is "4"' -t 4 true
refuses '--tee is "0:1,"' --tee 0:1, true
refuses '--tee is "5:1", expected local ranks from 0 to 1' -n 2 --tee 5:1 true
refuses '--local-ranks-filter is "0,x"' --local-ranks-filter 0,x true
refuses '--signals-to-handle is "SIGKILL"' --signals-to-handle SIGKILL true
refuses '--signals-to-handle is "TERM,NONE"' --signals-to-handle TERM,NONE true
refuses '--shutdown-timeout is "-1"' --shutdown-timeout -1 true
refuses '--shutdown-timeout is "soon"' --shutdown-timeout soon true
refuses '--rdzv-id is "a/b"' --rdzv-id a/b true
refuses '--rdzv-id is "latest"' --rdzv-id latest true
refuses '--start-method thread is not in this version, only spawn' --start-method thread true
refuses '--event-log-handler console is not in this version' --event-log-handler console true
refuses '--logs-specs is not in this version: it names a Python class' --logs-specs mine true
refuses '--print-completion is not in this version' --print-completion bash true
refuses '--numa-binding is "near", expected node, socket' --numa-binding near true
refuses '--max-restarts is "-1"' --max-restarts -1 true
refuses 'exclude each other' -m --no-python true
PET_NNODES=2 PET_NODE_RANK=0 refuses 'PET_NNODES is "2", but where' true
PET_NPROC_PER_NODE=x refuses 'PET_NPROC_PER_NODE is "x"' true
PET_LOGS_SPECS=mine refuses 'PET_LOGS_SPECS is not in this version' true
PET_STANDALONE=perhaps refuses 'PET_STANDALONE is "perhaps", expected 0 or 1' true
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-2 refuses 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT is "-2"' true

# torchrun's spellings of one node.
run 0 "$TUTTI" run --standalone --nnodes 1 --nproc-per-node 2 --max-restarts=0 --monitor-interval 5 true
run 0 "$TUTTI" run --nnodes=1:1 --node_rank=0 --rdzv_backend=static --start-method spawn --no_python true
PET_NNODES=1 PET_NODE_RANK=0 PET_RDZV_BACKEND='' run 0 "$TUTTI" run true
run 0 "$TUTTI" run --nnodes=1 --nproc_per_node=2 --rdzv_id=101 --rdzv_endpoint="localhost:0" \
    sh -c 'echo $MASTER_ADDR $TORCHELASTIC_RUN_ID $TORCHELASTIC_MAX_RESTARTS'
out_has '^\[1\] localhost 101 0$'
run 0 "$TUTTI" run --nproc 2 --max-r 3 --rdzv-backend c10d --rdzv-endpoint somewhere:29400 sh -c 'echo $TORCHELASTIC_MAX_RESTARTS'
out_has '^\[1\] 3$'
run 0 "$TUTTI" run --stand --rdzv-endpoint localhost:1 -n 2 true

# Flags of torchrun that are accepted and ignored.
for method in spawn fork forkserver; do
    run 0 "$TUTTI" run --start-method $method --event-log-handler=null --monitor-interval=0.1 true
done

# Workers on devices: as many as are visible; none: one per core.
CUDA_VISIBLE_DEVICES=4,GPU-8932f937,6 run 0 "$TUTTI" run -n gpu sh -c 'echo $WORLD_SIZE'
out_has '^\[2\] 3$'
CUDA_VISIBLE_DEVICES=1,0,-1,3 run 0 "$TUTTI" run --nproc_per_node=auto sh -c 'echo $WORLD_SIZE'
out_has '^\[1\] 2$'
CUDA_VISIBLE_DEVICES= run 0 "$TUTTI" run -n auto sh -c 'echo $WORLD_SIZE'
out_has "(^|\] )$(nproc)\$"
CUDA_VISIBLE_DEVICES=5,7 run 0 "$TUTTI" run -n 2 --virtual-local-rank sh -c 'echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES'
out_has '^\[0\] 0 5$'
out_has '^\[1\] 0 7$'
run 0 env -u CUDA_VISIBLE_DEVICES PET_VIRTUAL_LOCAL_RANK=1 "$TUTTI" run -n 2 sh -c 'echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES'
out_has '^\[1\] 0 1$'

# Binding to CPUs.
allowed='sed -n "s/^Cpus_allowed_list:\t//p" /proc/self/status'
if "$TUTTI" run --numa-binding node true 2>"$work/err"; then
    for where in node socket core-complex; do
        run 0 "$TUTTI" run -n 2 --numa-binding $where sh -c "$allowed"
        equal "CPUs near by ($where)" "$(grep -cE '^\[[01]\] [0-9,-]+$' "$work/out")" 2
    done
    PET_NUMA_BINDING=exclusive run 0 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "$TUTTI" run -n 1 sh -c "$allowed"
    out_has '^[0-9]+$'
    run 2 "$TUTTI" run -n 5000 --numa-binding exclusive true
    err_has '--numa-binding exclusive: [0-9]+ workers on NUMA node [0-9]+, which has [0-9]+ cores'
    if [ "$(nproc)" -ge 2 ]; then
        run 0 "$TUTTI" run -n 2 --numa-binding exclusive sh -c "$allowed"
        equal "shares of the cores" "$(cut -d' ' -f2 "$work/out" | sort -u | wc -l)" 2
    fi
else
    err_has 'needs hwloc|mount /sys'
fi

# More workers than cores: a warning with the numbers, which TUTTI_LOG=error hides.
cores=$(nproc)
run 0 "$TUTTI" run -n $((cores + 1)) true
err_has "^tutti warn launch: $((cores + 1)) workers share $cores cores?: .* -n $cores gives"
equal "lines of the warning" "$(wc -l <"$work/err")" 1
TUTTI_LOG=error run 0 "$TUTTI" run -n $((cores + 1)) true
equal "silenced" "$(cat "$work/err")" ""
run 0 "$TUTTI" run -n "$cores" true
equal "one worker a core" "$(cat "$work/err")" ""

# --help and docs/run.md list every flag.
run 0 "$TUTTI" run --help
for name in $(sed -n 's/^[A-Z]*([A-Z_]*, "\([a-z-]*\)",.*/\1/p' "$SOURCE_DIR/src/launch/front/flags.def"); do
    out_has "--$name "
    grep -q -- "\`--$name" "$SOURCE_DIR/docs/run.md" || fail "docs/run.md does not know --$name"
done

# Programs that cannot be run.
run 127 "$TUTTI" run -n 2 no-such-program-here
err_has 'cannot find no-such-program-here in PATH'
run 127 "$TUTTI" run -n 2 ./no-such-program-here
err_has 'cannot find ./no-such-program-here'
run 127 "$TUTTI" run -n 2 "$work/no-such-script.py" --its flags
err_has 'cannot find .*/no-such-script.py: No such file'
equal "lines of the message" "$(wc -l <"$work/err")" 1
run 127 "$TUTTI" run -n 2 --run-path "$work/no-such-script"
err_has 'cannot find .*/no-such-script: No such file'
touch "$work/plain"
run 126 "$TUTTI" run -n 2 "$work/plain"
err_has 'is not executable'
echo 'int main(void) { return 0; }' >"$work/x.c"
run 126 "$TUTTI" run -n 2 "$work/x.c"
err_has "x\.c: it is a source file; compile it \(cc $work/x\.c .*pkg-config --cflags --libs tutti\) -o $work/x\), and run $work/x"
run 126 sh -c 'cd "$0" && exec "$@"' "$work" "$TUTTI" run -n 2 x.c
err_has "cannot run x\.c: it is a source file; compile it \(cc x\.c .*pkg-config --cflags --libs tutti\) -o x\), and run \./x"
run 126 "$TUTTI" run -n 2 "$work"
err_has 'is a folder'
printf '#!/no/such/interpreter\n' >"$work/odd" && chmod +x "$work/odd"
run 127 "$TUTTI" run -n 2 "$work/odd"
err_has 'cannot run .*/odd'
printf 'echo plain "$1"\n' >"$work/script" && chmod +x "$work/script"
run 0 "$TUTTI" run -n 1 "$work/script" words
equal "a script without #!" "$(cat "$work/out")" "plain words"

# A port in use.
port_owner='use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die; print $s->sockport, "\n"; close STDOUT; sleep 300'
if command -v perl >/dev/null; then
    exec 5< <(exec perl -e "\$| = 1; $port_owner")
    owner=$!
    read -r port <&5
    run 1 "$TUTTI" run -n 2 --master-port "$port" true
    err_has "port $port \(--master-port\) cannot be used.*Address already in use"
    kill "$owner"
fi

# Python scripts.
if command -v python3 >/dev/null; then
    printf 'import os, sys\nprint(os.environ["RANK"], sys.argv[1:])\n' >"$work/s.py"
    run 0 "$TUTTI" run -n 2 "$work/s.py" --n 5
    out_has "^\[1\] 1 \['--n', '5'\]$"
    run 0 "$TUTTI" run -n 1 -m platform
    cp "$work/s.py" "$work/script"
    for flags in --run-path "--run-path --no-python"; do # it overrides --no-python, as in torchrun
        run 0 "$TUTTI" run -n 2 $flags "$work/script" x
        out_has "^\[1\] 1 \['x'\]$"
    done
    PET_RUN_PATH=1 run 0 "$TUTTI" run "$work/script"
    PET_MODULE=1 run 0 "$TUTTI" run platform
    PYTHON_EXEC=echo run 0 "$TUTTI" run "$work/s.py"
    out_has '^-u .*/s.py$'
    run 126 "$TUTTI" run -n 1 --no-python "$work/s.py"
fi
finish
