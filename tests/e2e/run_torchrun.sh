# run_torchrun.sh -- compared with torchrun itself: the same environment, each option, one launcher in the other.
# SPDX-License-Identifier: MIT    timeout: 300    tier: long
#
# TUTTI_TEST_TORCHRUN: another torchrun than the one in PATH.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
torchrun=${TUTTI_TEST_TORCHRUN:-$(command -v torchrun)}
unset TUTTI_TEST_TORCHRUN
[ -n "$torchrun" ] && "$torchrun" --help >"$work/help" 2>/dev/null || { echo "skipped: no torchrun (pip install torch; TUTTI_TEST_TORCHRUN says where it is)"; exit 77; }
export TUTTI_LOG=error TUTTI
export PATH="$(dirname "$torchrun"):$PATH" # its Python

# Every option: a row in docs/run.md, and known, or refused with a message.
options=$(grep -E '^  -' "$work/help" | grep -oE -- '--[a-z]+(-[a-z]+)*( |,|$)' | tr -d ' ,' | sort -u)
[ "$(echo "$options" | wc -l)" -ge 25 ] || fail "torchrun --help has only: $options"
for option in $options; do
    grep -q -- "^|.*\`$option[ \`]" "$SOURCE_DIR/docs/run.md" || fail "docs/run.md has no row for $option"
    "$TUTTI" run "$option" </dev/null 2>&1 | grep -q "there is no flag" && fail "tutti run does not know $option"
done

# The environment that a worker sees: names, and values except those that differ by design.
show='env | grep -vE "^(_|SHLVL|PWD|OLDPWD|LC_CTYPE)=" | sort'
for run in torchrun "$TUTTI"; do
    name=$(basename "$run")
    command="$run"
    [ "$name" = tutti ] && command="$run run --no-prefix"
    # shellcheck disable=SC2086
    env -u OMP_NUM_THREADS $command --nproc-per-node 2 --role trainer --max-restarts 2 --no-python \
        sh -c "[ \$RANK = 0 ] || { $show; }" >"$work/$name.env" 2>"$work/$name.err" || { fail "$name: exit code $?"; cat "$work/$name.err"; }
    cut -d= -f1 "$work/$name.env" >"$work/$name.names"
done
equal "torchrun's variables that are missing here" "$(comm -23 "$work/torchrun.names" "$work/tutti.names" | tr '\n' ' ')" ""
equal "variables of ours" "$(comm -13 "$work/torchrun.names" "$work/tutti.names" | grep -v ^TUTTI_ | tr '\n' ' ')" ""
for name in torchrun tutti; do # ours also forwards SIGUSR1
    grep -q '^TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT' "$work/$name.env" || fail "$name: signals to handle"
done
differ='^(TORCHELASTIC_SIGNALS_TO_HANDLE|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS|TORCHELASTIC_ERROR_FILE|TORCHELASTIC_RUN_ID|TORCHELASTIC_USE_AGENT_STORE|TUTTI_[A-Z_]*)='
equal "values that differ" "$(diff <(grep -vE "$differ" "$work/torchrun.env") <(grep -vE "$differ" "$work/tutti.env"))" ""

# PyTorch's own commands.
cat >"$work/script.py" <<'END'
import os, sys
assert os.path.basename(os.environ["TORCHELASTIC_ERROR_FILE"]) == "error.json"
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").close()
END
commands=(
    "--standalone --nnodes=1 --nproc_per_node=2"
    "--nnodes=1 --nproc_per_node=2 --rdzv_id=101 --rdzv_endpoint=localhost:0 --rdzv-backend=c10d"
    "--nnodes 1:1 --nproc-per 2 --max-restarts=3 --monitor-interval 0.1 --start-method spawn"
    "--nproc_per_node 2 --redirects 3 --log-dir $work/logs"
    "--nproc_per_node 2 --tee 0:1,1:2 --log-line-prefix-template \${role_name}:\${rank}: --role r"
    "--nproc_per_node 2 --standalone --rdzv-endpoint nowhere:1 --signals-to-handle SIGTERM,SIGUSR1 --shutdown-timeout 5"
)
for command in "${commands[@]}"; do
    mkdir "$work/ranks"
    # shellcheck disable=SC2086
    run 0 "$TUTTI" run $command "$work/script.py" "$work/ranks"
    equal "ranks of tutti run $command" "$(ls "$work/ranks" | tr '\n' ' ')" "0 1 "
    rm -r "$work/ranks"
done

# An unmodified DDP script with Gloo: the same parameters on both ranks, and the same as under torchrun.
cat >"$work/ddp.py" <<'END'
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(10, 1))
optim = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(5):
    optim.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(8, 10)), torch.ones(8, 1)).backward()
    optim.step()
sys.stdout.write(f"weights {model.module.weight.sum().item()}\n") # in one write: torchrun's workers are unbuffered
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
os._exit(0) # an interpreter that ends with PyTorch 2.15's threads aborts now and then
END
seconds_at_most=60 # importing torch takes its time
run 0 "$TUTTI" run --no-prefix -n 2 "$work/ddp.py"
equal "ranks that have weights" "$(grep -c '^weights -\?[0-9.]*$' "$work/out")" 2
sort -u "$work/out" >"$work/ours"
run 0 "$torchrun" --nproc-per-node 2 "$work/ddp.py"
equal "weights, and those under torchrun" "$(cat "$work/ours")" "$(sort -u "$work/out")"

# A Python worker that fails: its message.
cat >"$work/fails.py" <<'END'
import os
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("out of luck")
    import time
    time.sleep(60)
main()
END
run 1 "$TUTTI" run -n 2 "$work/fails.py"
err_has '^tutti run: rank 1 failed first: exit code 1 '
err_has '^\[1\] ValueError: out of luck$'
equal "reports of an error that its own line has" "$(grep -c '^tutti run: its error' "$work/err")" 0
run 1 "$TUTTI" run -n 2 --redirects 2 --log-dir "$work/logs" "$work/fails.py" # no line of its own on the console
err_has '^tutti run: its error: ValueError: out of luck$'

# Under torchrun: it reports the first failure, with and without an error file of the worker.
run 1 "$torchrun" --nproc-per-node 1 --no-python "$TUTTI" run -n 2 "$work/fails.py"
err_has 'ValueError: out of luck'
run 1 "$torchrun" --nproc-per-node 1 --no-python "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || exit 7; sleep 60'
err_has 'exitcode  : 7 '
err_has 'tutti run: rank 1 failed first: exit code 7'
finish
