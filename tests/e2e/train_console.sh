# train_console.sh -- the output of `tutti train`: lines, bar, nothing; in narrow and dumb terminals; results and times at the end, and
# the cost of a failure.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export OMP_NUM_THREADS=1

# Lines agree with metrics.jsonl.
train plain -n 2 --model mlp --epochs 2 --log-every 15
sed -n 's/^epoch .* step \([0-9]*\)\/.* \([0-9]*\) images\/s .*/\1 \2/p' plain.out >said
sed -n 's/^{"step": \([0-9]*\),.*"images_per_s": \([^,]*\),.*/\1 \2/p' plain/metrics.jsonl | awk '{ printf "%d %.0f\n", $1, $2 }' >written
cmp -s said written && [ -s said ] || { paste said written; fail "the console's throughput is not that of metrics.jsonl"; }
! grep -q $'[\r\033]' plain.out || fail "the output of a run that is no terminal has control characters"

# The tables are summary.json's figures; parts of the time add up.
for row in "test accuracy" "images/s" "waiting for rank|start and end" "in all"; do
    grep -qE "^  ($row) " plain.out || fail "no row \"$row\" at the end"
done
[ "$(sed -n 's/^  images\/s *//p' plain.out)" = "$(printf %.0f "$(field plain/summary.json images_per_s)")" ] || fail "images/s differ"
[ "$(sed -n 's/^  compute *\([0-9.]*\) s.*/\1/p' plain.out)" = "$(printf %.2f "$(field plain/summary.json compute_s)")" ] || fail "times differ"
awk '/^where the time went/ { on = 1 } on && / %$/ { if (/in all/) all = $(NF - 1); else sum += $(NF - 1) }
     END { exit !(all == 100 && sum > 99 && sum < 101) }' plain.out || { cat plain.out; fail "the parts of the time are not all of it"; }
awk 'length($0) > 38 && on { exit 1 } /^result/ { on = 1 } /^run folder/ { on = 0 }' plain.out || fail "the tables are wider than 38 columns"

# Only errors.
train quiet --model mlp --epochs 1 --progress quiet
[ ! -s quiet.out ] || { cat quiet.out; fail "quiet is not quiet"; }
train quiet_shards -n 1 --model linear --shards 2 --max-steps 2 --progress quiet
[ ! -s quiet_shards.out ] || { cat quiet_shards.out; fail "quiet is not quiet about shards"; }
train shards -n 1 --model linear --shards 2 --max-steps 2
grep -q '^tutti train: 2 steps in ' shards.out || { cat shards.out; fail "no line about the deaths"; }
refused 1 'diverged' "$TUTTI" train --run-dir loud --model mlp --lr 1000 --progress quiet
[ "$(wc -l <refused.out)" = 1 ] || { cat refused.out; fail "a quiet failure says more than what failed"; }
refused 2 'expected auto, bar, plain or quiet' "$TUTTI" train --progress quite

# Terminals. in_terminal COLUMNS ENVIRONMENT... -- ARGUMENTS...: a run on its own terminal, in `screen`
in_terminal() {
    local columns=$1 environment=()
    shift
    while [ "$1" != -- ]; do environment+=("$1") && shift; done
    shift
    printf -v command ' %q' "$TUTTI" train --run-dir terminal --model mlp --epochs 2 "$@"
    timeout 180 env TUTTI_COLOR=auto TERM=xterm LC_ALL=C "${environment[@]}" script -qec "stty cols $columns rows 10; $command" /dev/null \
        >screen </dev/null || { cat -v screen; fail "exit code $? in a terminal: $*"; }
}
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then # a terminal can be made
    in_terminal 40 --
    grep -q $'\r\033\[36mepoch' screen || fail "no coloured bar in a terminal"
    tr '\r' '\n' <screen | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | awk '/^epoch [0-9]*\/[0-9]*.*(loss|left)/ && !/lr|test/ && length($0) > 39 { exit 1 }' ||
        fail "the bar is wider than the window"
    in_terminal 40 NO_COLOR=1 --
    ! grep -q $'\033\[[0-9;]*m' screen || fail "colours in spite of NO_COLOR"
    grep -q $'\033\[K' screen || fail "no bar with NO_COLOR"
    in_terminal 80 TERM=dumb --
    ! grep -q $'\033' screen || fail "escapes on a dumb terminal"
    grep -q '^epoch .* images/s' screen || fail "no lines on a dumb terminal"
    in_terminal 80 -- --progress plain
    ! grep -q $'\033' screen || fail "escapes with --progress plain"
    in_terminal 80 -- --progress quiet
    [ ! -s screen ] || fail "quiet is not quiet on a terminal"
    in_terminal 90 --
    grep -q 'epoch 1/2 \[.*\].*loss' screen || fail "no bar in a wide window"
    grep -q 'evaluation' screen || fail "no bar of the evaluation"
    ! LC_ALL=C grep -q $'[\x80-\xff]' screen || fail "the bar is not ASCII"
    in_terminal 60 --
    grep -q 'epoch 1/2 \[.*\].*loss' screen || fail "no bar in 60 columns"
    # Ctrl-C: clears the bar, and the ^C that the terminal wrote after it, for which the line has room.
    TERM=xterm script -qec "stty cols 60; exec '$TUTTI' train --run-dir torn --model mlp --epochs 100000 --log-every 1 --eval-every 0" /dev/null \
        >screen </dev/null &
    job=$!
    for _ in $(seq 3000); do
        [ "$(cat torn/metrics.jsonl 2>/dev/null | wc -l)" -gt 5 ] && break
        sleep 0.02
    done
    kill -INT "$(cat "/proc/$job/task/$job/children")"
    code=0
    wait $job || code=$?
    [ $code = 130 ] || fail "exit code $code after Ctrl-C in a terminal"
    grep -q $'\r\033\[Ktutti train: stopping: ' screen || { cat -v screen; fail "the progress bar remains after Ctrl-C"; }
    tr '\r' '\n' <screen | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | awk '/^epoch .*loss/ && length($0) > 57 { exit 1 }' || fail "no room for ^C"
else
    echo "script(1) is not installed: terminals are not looked at"
fi
train forced --model mlp --epochs 1 --progress bar
grep -q $'\033\[K' forced.out || fail "--progress bar draws none into a file"

# A run killed after its checkpoint has lost the work since; one that was asked to stop has lost nothing.
killed() { # SIGNAL: a run that ends by it after step 40
    local job
    rm -rf run
    "$TUTTI" train --run-dir run --model mlp --epochs 4000 --schedule constant --checkpoint-every 20 --log-every 1 --eval-every 0 >run.out 2>&1 &
    job=$!
    for _ in $(seq 3000); do
        [ -e run/checkpoints/latest ] && [ "$(wc -l <run/metrics.jsonl)" -gt 60 ] && break
        sleep 0.02
    done
    kill "-$1" $job
    wait $job || true
    set -- "$(ls run/checkpoints | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | sort -n | tail -1)"
    train run --model mlp --epochs 4000 --schedule constant --max-steps $(($1 + 20)) --checkpoint-every 20 --log-every 1 --eval-every 0 --resume auto
}
killed KILL
awk -v lost="$(field run/summary.json lost_s)" 'BEGIN { exit !(lost > 0 && lost < 30) }' || fail "no time was lost to a kill"
grep -q '"failures": \[{"step": [0-9]*, "lost_s": [0-9.e-]*, "reason": null}\]' run/summary.json || fail "the failure is not told"
grep -q '^  lost to failures ' run.out || fail "the table does not say what was lost"
killed TERM
[ "$(field run/summary.json lost_s)" = 0.0 ] || fail "an interrupted run lost something"
grep -q '"failures": \[\]' run/summary.json || fail "an interruption is called a failure"
exit 0
