# Asked to stop: the step is finished, a checkpoint is written, the exit code tells the signal; resuming loses nothing.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
# The signal must come before the end: a run prints more than fits into the pipes between it and this shell.
mlp="--model mlp --threads 1 --epochs 300 --lr 0.001 --log-every 1 --eval-every 50"
[ -p pipe ] || mkfifo pipe

# stopped DIR SIGNAL CODE LINE ARGUMENTS...: a run gets SIGNAL when its output has a line like LINE; ends with CODE.
stopped() {
    local dir=$1 signal=$2 code=$3 wanted=$4 line pid got=0
    shift 4
    timeout 180 "$TUTTI" train --run-dir "$dir" "$@" >pipe 2>"$dir.err" &
    pid=$!
    while read -r line; do
        printf '%s\n' "$line"
        case $line in $wanted) kill -s "$signal" "$(cat "/proc/$pid/task/$pid/children")" && wanted=seen ;; esac
    done <pipe >"$dir.out"
    wait $pid || got=$?
    [ $wanted = seen ] || { cat "$dir.out" "$dir.err"; fail "$dir: no line matches"; }
    [ $got = "$code" ] || { tail -3 "$dir.out"; cat "$dir.err"; fail "$dir: exit code $got after SIG$signal, expected $code"; }
}
# saved DIR: interrupted, and all work is in the checkpoint.
saved() {
    local steps
    steps=$(field "$1/summary.json" steps)
    [ "$(field "$1/summary.json" status)" = interrupted ] || { cat "$1.err"; fail "$1: status"; }
    [ "$(readlink "$1/checkpoints/latest")" = "step-$(printf %08d "$steps")" ] ||
        fail "$1: $steps steps, and the last checkpoint is $(readlink "$1/checkpoints/latest")"
    [ -z "$(find "$1" -name '*.tmp')" ] || fail "$1: left $(find "$1" -name '*.tmp')"
    [ "$(grep -c '^tutti train: stopping: ' "$1.err")" = 1 ] || { cat "$1.err"; fail "$1: is not answered, once"; }
    ! grep -vE '^tutti train: (stopping: |SIG[A-Z0-9]+: stopping 2 workers)|^tutti warn launch: 2 workers share 1 core' "$1.err" || fail "$1: text on standard error"
}
train whole $mlp --max-steps 1500
for each in "TERM 143" "INT 130" "HUP 129" "USR1 138"; do
    set -- $each
    stopped "$1" "$1" "$2" "*step 6?/1500*" $mlp --max-steps 1500
    saved "$1"
    grep -q '^interrupted' "$1.out" || fail "$1: does not say that it was interrupted"
    train "$1" $mlp --max-steps 1500 --resume auto
    same "$1" whole
done

# Several ranks stop at the same step; the launcher returns their exit code.
train two -n 2 $mlp --max-steps 3000
for each in "TERM 143" "USR1 138"; do
    set -- $each
    stopped "two-$1" "$1" "$2" "*step 5?/3000*" -n 2 $mlp --max-steps 3000
    saved "two-$1"
    train "two-$1" -n 2 $mlp --max-steps 3000 --resume auto
    same "two-$1" two
done

# One request arrives several times: Slurm signals every process of a step, and each launcher forwards its signals.
timeout 180 "$TUTTI" train --run-dir often $mlp --max-steps 1500 >pipe 2>often.err &
pid=$! got=0
while read -r line; do
    case $line in
    *"step 60/1500"*)
        child=$(cat "/proc/$pid/task/$pid/children")
        for ((k = 0; k < 200; k++)); do kill -s TERM $child 2>/dev/null || break; done
        ;;
    esac
done <pipe >often.out
wait $pid || got=$?
[ $got = 143 ] || fail "exit code $got after many signals"
saved often

# During an evaluation: it stops at once, and is repeated when the run resumes.
slow="--max-steps 4 --batch-size 1 --log-every 1 --threads 1"
train evaluated $slow
stopped during TERM 143 "*step 4/4*" $slow
saved during
[ "$(grep -c eval during/metrics.jsonl)" = 0 ] || fail "an interrupted evaluation has a result"
train during $slow --resume auto
same during evaluated
[ "$(grep -c eval during/metrics.jsonl)" = 1 ] || fail "the missed evaluation was not done later"
[ "$(field during/summary.json val_accuracy)" = "$(field evaluated/summary.json val_accuracy)" ] || fail "accuracy"

# At any moment of the set-up: no rank hangs, no file is incomplete.
for ms in 000 001 002 003 004 006 008 010 015 020 030; do
    got=0 name=""
    rm -rf early
    "$TUTTI" train -n 2 --run-dir early $mlp >early.out 2>&1 &
    pid=$!
    while [ "$name" != tutti ]; do # until then it is this shell, with its traps
        read -r name <"/proc/$pid/comm" || { cat early.out; fail "it has ended by itself"; }
    done
    sleep 0.$ms
    kill -TERM $pid 2>kill.err || true
    begin=$SECONDS
    wait $pid || got=$?
    [ $got = 143 ] || { cat early.out; fail "exit code $got, stopped after 0.$ms s"; }
    ((SECONDS - begin < 20)) || fail "took $((SECONDS - begin)) s to stop after 0.$ms s"
    [ -z "$(find early -name '*.tmp' 2>/dev/null)" ] || fail "left: $(find early -name '*.tmp')"
done

# Signals ignored at the start stay ignored.
(trap '' HUP; exec "$TUTTI" train --run-dir nohup $mlp --max-steps 3000 >pipe 2>nohup.err) &
pid=$!
while read -r line; do
    case $line in *"step 5"?/*) kill -HUP "$pid" ;; esac
done <pipe
wait $pid || fail "a hang-up that nohup told to ignore: $(cat nohup.err)"
[ "$(field nohup/summary.json status)" = completed ] || fail "SIGHUP stopped a run under nohup"

# A reader that closes the pipe ends the run, as any program, without a message.
for n in "" "-n 1" "-n 2"; do
    rm -rf reader
    got=0
    TUTTI_LOG=error timeout 180 "$TUTTI" train $n --run-dir reader $mlp --epochs 100000 2>reader.err | head -1 >head.out || got=$? # pipefail
    [ $got = 141 ] || { cat reader.err; fail "exit code of tutti train $n | head -1"; }
    [ ! -s reader.err ] || { cat reader.err; fail "messages about a closed reader, $n"; }
done
echo "stopped, saved, resumed"
