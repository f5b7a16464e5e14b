# tutti run --chaos: workers are killed, stopped, slowed and disconnected as requested, each with a line, and no other process is.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export TUTTI_LOG=error

# A bad SPEC is refused before anything starts.
run 2 "$TUTTI" run --chaos kil=1 touch "$work/started"
err_has '^tutti run: --chaos has no key "kil" \(do you mean kill\?\)'
run 2 "$TUTTI" run --chaos kill=1,seed=x touch "$work/started"
err_has 'seed is "x"'
run 2 "$TUTTI" run -n 2 --chaos kill=1,keep=2 touch "$work/started"
err_has 'keep is 2, expected less than this node.s 2 workers'
[ -e "$work/started" ] && fail "a refused job was started"

# Another job, which must not be affected.
timeout 180 "$TUTTI" run -n 2 sh -c "trap 'touch $work/bystander' CONT; until [ -e $work/end ]; do sleep 0.05; done" \
    >/dev/null 2>"$work/err.bystander" &
bystander=$!

# Kills: each is a failure, until no restart is left. A kill between two starts has no victim, and with two workers, one of them
# left alone, a second one before the launcher has seen the first has none either.
run 137 "$TUTTI" run -n 2 --max-restarts 1 --chaos kill=10,seed=3 sleep "$marker"
equal "announcement" "$(head -1 "$work/err")" \
    "tutti run: chaos IS ON, this job's workers are disturbed on purpose: kill 10/s, seed 3; 1 of 2 left alone"
equal "kills" "$(grep -cE '^tutti run: chaos at [0-9.]+ s: rank [01] \(process [0-9]+\) killed$' "$work/err")" 2
err_has 'failed first: killed by SIGKILL'
err_has '^tutti run: chaos: in [0-9.]+ s 2 killed, 0 stopped, 0 cut off \(0 connections\), 0 slowed; [0-9]+ events? had no target; seed 3$'
nobody_left

# A stopped worker continues, and a slowed one is stopped and continued repeatedly.
run 0 "$TUTTI" run --chaos stop=20:0.05 sh -c 'n=0; trap "n=\$((n + 1))" CONT; until [ $n -ge 2 ]; do :; done'
err_has 'rank 0 \(process [0-9]+\) stopped for 0.05 s$'
run 0 "$TUTTI" run --chaos slow=100:3:3600 sh -c 'n=0; trap "n=\$((n + 1))" CONT; until [ $n -ge 5 ]; do :; done'
equal "slowed once" "$(grep -c 'slowed to 1/3 for 3600 s$' "$work/err")" 1
err_has ' 1 slowed; '

# One of three is not disturbed, and when it has ended none is: the others continue.
run 0 "$TUTTI" run -n 3 --chaos stop=100:3600,burst=3 sh -c 'until [ -e "$1/done" ]; do
        [ "$(ps -o stat= --ppid $PPID | grep -c "^T")" = 2 ] && touch "$1/done"
    done
    exit 0' sh "$work"
equal "stopped" "$(grep -c 'stopped for 3600 s$' "$work/err")" 2

# A stopped job can be ended.
: >"$work/err"
timeout 60 "$TUTTI" run --chaos stop=1000:3600 sleep "$marker" >"$work/out" 2>"$work/err" &
launcher=$!
wait_until "the worker is stopped" grep -q 'stopped for' "$work/err"
kill -TERM $launcher
wait $launcher
equal "exit code" $? 143
err_has 'chaos: in [0-9.]+ s 0 killed, 1 stopped'
nobody_left

# Bits are flipped by the workers: the same ones for the same seed, in one of three, and of the kind that is asked for.
flips() { sed -n 's/.*chaos: \(training step .*\)/\1/p' "$work/err"; }
flip() { # KIND EXIT
    TUTTI_LOG=chaos:warn run "$2" "$TUTTI" run -n 3 --chaos "flip=0.2:$1,keep=2,seed=5" "$TUTTI" train --model mlp --data digits --max-steps 12 \
        --guard 1 --eval-every 0 --threads 1 --progress quiet --run-dir "$work/flipped"
    equal "ranks with $1" "$(grep -o '^\[[0-9]\] tutti warn chaos' "$work/err" | sort -u | wc -l)" 1
}
flip parameters 4
flips >"$work/flips"
grep -qE '^training step [0-9]+: bit [0-9]+ of element [0-9]+ of fc[123]\.(weight|bias) flipped, [0-9a-f]{8} -> [0-9a-f]{8}$' "$work/flips" || fail "no parameter: $(cat "$work/flips")"
flip parameters 4
flips | cmp "$work/flips" - || fail "the same seed flips other bits"
flip means 4
flips | grep -q 'of the mean gradient of fc' || fail "no mean"
flip gradients 0
flips | grep -q 'of the gradient of fc' || fail "no gradient"

# A wrapper that closes the launcher's descriptor and opens a file, which gets its number: nothing is written there.
cat >"$work/wrapper" <<'END'
counter=${TUTTI_CHAOS_FLIP##*:}
eval "exec $counter>\"\$0.file\""
exec "$@"
END
run 2 "$TUTTI" run --chaos flip=1:gradients bash "$work/wrapper" "$TUTTI" train --model mlp --data digits --max-steps 2 --eval-every 0 --progress quiet --run-dir "$work/wrapped"
err_has 'TUTTI_CHAOS_FLIP names descriptor [0-9]+, which is not the counter of flipped bits'
[ ! -s "$work/wrapper.file" ] || fail "flips were counted in a file of the program"

# Connections: a group of Tutti's over TCP loses its peers in every start.
if "$TUTTI" run --chaos cut=1 true 2>"$work/err"; then
    run 3 env TUTTI_TRANSPORT=tcp "$TUTTI" run -n 2 --max-restarts 1 --chaos cut=2 "$TUTTI" bench barrier --iterations 100000000
    [ "$(grep -cE 'rank [01] \(process [0-9]+\): [1-9][0-9]* TCP connections? cut$' "$work/err")" -ge 2 ] || fail "fewer than two cuts"
    err_has ' [1-9][0-9]* cut off \([1-9][0-9]* connections\)'
else
    err_has 'cut is not possible here: the kernel does not let'
    echo "not tested: $(cat "$work/err")"
fi

touch "$work/end"
wait $bystander
equal "exit code of the job beside it" $? 0
[ -e "$work/bystander" ] && fail "the job beside it was disturbed"
finish
