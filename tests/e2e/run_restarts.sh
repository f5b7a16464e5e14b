# tutti run --max-restarts: a failure restarts all workers, as often as allowed; the environment of each start, and where its
# logs are.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"

# Always failing: two restarts are three starts; the code is the worker's.
run 7 "$TUTTI" run -n 2 --max-restarts 2 sh -c 'echo "start $TUTTI_ATTEMPT restart $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
    [ $RANK = 1 ] && exit 7; exec sleep '"$marker"
equal "starts" "$(grep -c 'start [012] restart [012] of 2' "$work/out")" 6
err_has 'rank 1 failed first: exit code 7'
err_has 'starting the workers again: 2 ranks, restart 2 of 2'
err_has 'no restart is left \(--max-restarts 2\)'
nobody_left

# A refused command line or environment is not tried again; a program's own code 2 is.
for wrong in "train --model mpl" "train --shards 4 --sync-bn" "bench all_reduce --op summ" "bench barrier --backend mip"; do
    run 2 "$TUTTI" run -n 2 --max-restarts 2 "$TUTTI" $wrong
    err_has '^tutti run: no restart \(--max-restarts 2\): each round would end so$'
    equal "restarts of $wrong" "$(grep -c 'starting the workers again' "$work/err")" 0
done
TUTTI_TRANSPORT=tpc run 2 "$TUTTI" run -n 2 --max-restarts 2 "$TUTTI" train --model linear
err_has '^tutti run: no restart '
# A host that DNS does not know may be known to the next attempt.
run 1 "$TUTTI" run -n 2 --max-restarts 1 sh -c 'TUTTI_STORE=no-such-host.invalid:29500 exec "$0" bench barrier' "$TUTTI"
err_has 'host "no-such-host.invalid" has no address'
equal "restarts without DNS" "$(grep -c 'starting the workers again' "$work/err")" 1
# A program that ends with another code after such a refusal is started again, and a launcher above is told nothing of it.
TORCHELASTIC_ERROR_FILE=$work/above run 0 "$TUTTI" run --max-restarts 1 sh -c '[ $TUTTI_ATTEMPT = 0 ] || exit 0; "$0" train --model mpl; exit 1' "$TUTTI"
err_has 'restart 1 of 1'
equal "the error file of the launcher above" "$(cat "$work/above" 2>/dev/null)" ""
run 2 "$TUTTI" run -n 2 --max-restarts 2 sh -c 'exit 2'
equal "restarts" "$(grep -c 'starting the workers again' "$work/err")" 2

# The third start succeeds.
run 0 "$TUTTI" run -n 2 --max-restarts 3 --log-dir "$work/log" --rdzv-id job --tee 3 sh -c 'echo text; exit $((2 - TUTTI_ATTEMPT))'
equal "folders" "$(cd "$work/log/job" && echo attempt_*)" "attempt_0 attempt_1 attempt_2"
equal "log of the last" "$(cat "$work/log/job/attempt_2/1/stdout.log")" text

# A killed worker, a worker that kills itself and leaves children: no process of the old start is left in the new one.
run 0 "$TUTTI" run -n 3 --max-restarts 1 sh -c 'if [ $TUTTI_ATTEMPT = 1 ]; then pgrep -fc "^sleep '"$marker"'"; exit 0; fi
    setsid sleep '"$marker"' & sleep '"$marker"' & [ $RANK = 2 ] && kill -KILL $$; wait'
equal "sleepers of the first start in the second" "$(sort -u "$work/out" | tr '\n' ,)" "[0] 0,[1] 0,[2] 0,"
nobody_left

# A signal is no failure: no restart.
timeout 60 "$TUTTI" run -n 2 --max-restarts 3 sh -c 'echo up; exec sleep '"$marker" >"$work/out" 2>"$work/err" &
launcher=$!
wait_until "workers are up" sleepers 2
kill -TERM $launcher
wait $launcher
equal "exit code" $? 143
equal "starts" "$(grep -c up "$work/out")" 2
nobody_left

# A Tutti program: groups of the first start do not disturb the second, which begins at once.
run 0 "$TUTTI" run -n 2 --max-restarts 1 sh -c '[ $TUTTI_ATTEMPT = 1 ] || [ $RANK = 0 ] || exit 9
    exec "$0" train --model mlp --max-steps 5 --run-dir '"$work"'/run' "$TUTTI"
err_has 'rank 1 failed first: exit code 9'
out_has '2 ranks \(shared memory\)'

# What every rank was doing is reported for each start, by its attempt.
run 137 "$TUTTI" run -n 2 --max-restarts 2 sh -c '[ $RANK = 0 ] || { p=$$; (until [ -s "$1/up$TUTTI_ATTEMPT" ]; do sleep 0.01; done
    kill -KILL $p) & }; exec "$0" bench barrier --iterations 100000000 >>"$1/up$TUTTI_ATTEMPT"' "$TUTTI" "$work"
equal "tables of three starts" "$(grep -c 'the group "world" of 2 ranks died' "$work/err")" 3
grep -q 'rejects' "$work/err" && fail "a worker was rejected: $(grep 'rejects' "$work/err")"
finish
