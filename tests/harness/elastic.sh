# elastic.sh -- for test scripts: disturbed runs by shards, compared with an undisturbed one.   SPDX-License-Identifier: MIT
#
# . "${SOURCE_DIR:?is set by ctest}/tests/harness/elastic.sh"   after train.sh
# SEED repeats a test's choices. Short tests make the same ones each time, the long ones others.
[ -n "${HOSTS:-}${KILLS:-}${EVENTS:-}" ] && SEED=${SEED:-$((${EPOCHREALTIME//[!0-9]/} % 32768))}
SEED=${SEED:-1}
RANDOM=$SEED
export TMPDIR=$work/.tmp # a launcher must leave nothing there
mkdir "$TMPDIR"

now_us() { echo "${EPOCHREALTIME//[!0-9]/}"; }
# Checks that an ended job left no processes with its folder, and no temporary files.
nothing_left() { # DIR
    local end=$((SECONDS + 60))
    while pgrep -f -- "--run-dir $PWD/$1 " >left; do
        pause 10
        [ $SECONDS -lt $end ] || fail "$1: left $(pgrep -af -- "--run-dir $PWD/$1 ")"
    done
    [ -z "$(find "$1" -name '*.tmp' -o -name 'earlier*')" ] || fail "$1: temporary files are left: $(find "$1" -name '*.tmp' -o -name 'earlier*')"
    [ -z "$(ls "$TMPDIR")" ] || fail "$1: left in the temporary folder: $(ls "$TMPDIR")"
}
lines() { sed 's/"images_per_s.*//' "$1/metrics.jsonl" | grep '^{"step"'; } # DIR: each step's loss
# A disturbed run has the result of the undisturbed one, each step's line once, and leaves nothing.
results="status steps train_loss val_loss val_accuracy samples_digest parameter_digest" # of its summary
same_bits() { # WHOLE DIR
    local key
    for key in $results; do
        [ "$(field "$2/summary.json" $key)" = "$(field "$1/summary.json" $key)" ] ||
            failed_run "$2" "$key is $(field "$2/summary.json" $key), undisturbed $(field "$1/summary.json" $key)"
    done
    same_saved "$1/checkpoints/latest" "$2/checkpoints/latest" || failed_run "$2" "the last checkpoint"
    nothing_left "$2"
}
same_end() { # WHOLE DIR
    same_bits "$@"
    diff <(lines "$1") <(lines "$2") >lines.diff || { head lines.diff; failed_run "$2" "lines of metrics.jsonl"; }
}
failed_run() { # DIR WHAT
    for file in "$1".*out; do
        echo "---- $file"
        tail -n 60 "$file"
    done
    [ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP"
    fail "$1 (SEED=$SEED): $2"
}
# A run of the braked model is slow until $GO exists: until all that disturbs it has happened (`end`). Until then it does not pass 9/10 of the
# steps of `whole`.
begin() { # DIR N ARGUMENTS...: in the background, as $job
    local dir=$1 n=$2
    shift 2
    rm -f "$GO"
    BRAKE_FILE=$PWD/$dir/metrics.jsonl BRAKE_AT=$(($(field whole/summary.json steps) * 9 / 10)) timeout 300 "$TUTTI" train -n "$n" --run-dir "$PWD/$dir" "$@" >"$dir.out" 2>&1 &
    job=$!
}
# Waits for a step's line, so that the next event happens near that step on machines of any speed.
reach() { # DIR STEP
    until grep -q "^{\"step\": $2," "$1/metrics.jsonl" 2>reach.err; do
        kill -0 $job 2>kill.err || failed_run "$1" "it has ended before step $2"
        pause 20
    done
}
end() { # DIR CODE
    local code=0
    : >"$GO"
    wait $job || code=$?
    [ $code = "$2" ] || failed_run "$1" "exit code $code, expected $2"
    ! pgrep -f "^tutti train --run-dir $PWD/$1 " || fail "$1: workers are left"
}
running() { pgrep -f "^tutti train --run-dir $PWD/$1 " || true; } # DIR: its workers
worker() { process_of "$2" "^tutti train --run-dir $PWD/$1 "; } # DIR RANK
# A launcher of this shell's, $job, and its workers: children of the agent, which is a child of the front.
agent_of() { pgrep -P "$1" -x run-agent || true; } # PID
workers_of() {                                 # AGENT: $workers
    workers=()
    read -ra workers <"/proc/$1/task/$1/children" 2>no-children || true
}
# chosen N LIST...: N of the list at random, in $chosen
choose() {
    local n=$1 i
    shift
    chosen=()
    local list=("$@")
    while [ ${#chosen[@]} -lt "$n" ] && [ ${#list[@]} -gt 0 ]; do
        i=$((RANDOM % ${#list[@]}))
        chosen+=("${list[i]}")
        list=("${list[@]:0:i}" "${list[@]:i+1}")
    done
}
# The generations in a run's output: "seconds size" of each one's first committed step (TUTTI_LOG=warn,elastic:debug).
generations() { sed -n 's/.*, \([0-9]*\) ranks: step [0-9]* is its first, at \([0-9]*\.[0-9]\{3\}\)$/\2 \1/p' "$@" | sort -n; }
middle() { sort -g | awk '{ all[NR] = $1 } END { print NR ? all[int((NR + 1) / 2)] : "-" }'; } # the median
most() { sort -g | awk 'END { print NR ? $1 : "-" }'; }
