# One job at a time in a run folder; a remaining rank records the end of a run; small limits and names.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
long="--model mlp --threads 1 --epochs 100000 --lr 0.001 --log-every 1 --eval-every 0"

# begin DIR N: a job of N workers into DIR, in the background; returns when it trains. $job: its launcher's process.
begin() {
    rm -rf "$1"
    "$TUTTI" run -n "$2" "$TUTTI" train --run-dir "$1" $long >"$1.out" 2>&1 &
    job=$!
    until grep -qs '"step": 20,' "$1/metrics.jsonl"; do
        kill -0 $job 2>kill.err || { cat "$1.out"; fail "$1 has ended by itself"; }
        sleep 0.01
    done
}
worker() { # DIR RANK: its process
    local pid
    for pid in $(pgrep -f -- "--run-dir $1 "); do
        grep -zqsx "RANK=$2" "/proc/$pid/environ" && echo "$pid" && return
    done
}

# A second job is told who has the folder, and changes nothing in it.
begin busy 2
owner=$(worker busy 0)
refused 1 "the run folder busy is in use by process $owner on $(hostname), since 20" "$TUTTI" train --run-dir busy --model mlp
refused 1 "process $owner" "$TUTTI" train -n 2 --run-dir busy --model mlp --resume auto
[ "$(grep -c 'is in use' refused.out)" = 1 ] || { cat refused.out; fail "the message is printed more than once"; }
[ "$(cat "/proc/$owner/comm")" = tutti ] || fail "the worker is called $(cat "/proc/$owner/comm")"
kill -0 "$owner" || fail "the first job was disturbed"

# A killed job does not block the folder, nor does its record.
kill -KILL $job "$owner" "$(worker busy 1)" 2>kill.err || true
wait $job || true
train busy --model mlp --threads 1 --max-steps 2
# A restart waits for an earlier start that is just ending.
begin ending 1
owner=$(worker ending 0)
(sleep 2; kill -KILL "$owner") &
TUTTI_ATTEMPT=1 TORCHELASTIC_RUN_ID=x train ending --model mlp --threads 1 --max-steps 2
wait

# Rank 0 is killed: another rank writes the summary, once; rank 0 does if another was killed.
for victim in 0 2; do
    begin lost 3
    rm -f lost/summary.json
    kill -KILL "$(worker lost $victim)"
    wait $job && fail "exit code 0 after a kill"
    [ "$(field lost/summary.json status)" = failed ] || { ls -a lost; cat lost.out; fail "no summary after rank $victim was killed"; }
    grep -q "\"reason\": \".*rank $victim .*was lost" lost/summary.json || { cat lost/summary.json; fail "the reason"; }
    ! grep 'rank [0-9]*: rank [0-9]' lost.out || fail "a message contains its rank twice"
    [ "$(grep -c '": ' lost/summary.json)" = 29 ] || fail "two have written summary.json"
    [ -z "$(find lost -maxdepth 1 -name '*.tmp')" ] || fail "temporary files are left: $(find lost -maxdepth 1 -name '*.tmp')"
done
[ "$(field lost/summary.json parameter_digest)" != null ] || fail "rank 0 knows its parameters"
refused 1 'diverged' "$TUTTI" train -n 2 --run-dir lost --model mlp --lr 1000 --weight-decay 1000
grep -q '"reason": ".*diverged' lost/summary.json || { cat lost/summary.json; fail "the reason of a failure"; }

# A limit below a millisecond is a limit.
refused 3 'tutti train: ' env RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$("$TUTTI" run sh -c 'echo $MASTER_PORT')" \
    timeout 60 "$TUTTI" train --model mlp --run-dir limit --timeout-s 0.0001

# Under Open MPI standard output is a terminal, whatever mpirun's own is: no bar, no escapes.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then # a terminal can be made
    bar=(timeout 180 "$TUTTI" train --run-dir bar --model mlp --threads 1 --epochs 1)
    TERM=xterm script -qec "${bar[*]}" /dev/null >terminal.out </dev/null
    grep -q "$(printf '\033\\[K')" terminal.out || fail "no bar on a terminal"
    TERM=xterm OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
        script -qec "${bar[*]}" /dev/null >mpi.out </dev/null || { cat mpi.out; fail "under Open MPI's variables"; }
    ! grep -q "$(printf '\033')" mpi.out || { cat -v mpi.out; fail "escapes under Open MPI"; }
    grep -q 'epoch 1/1  step 40/45' mpi.out || { cat mpi.out; fail "no lines under Open MPI"; }
fi
echo "one at a time"
