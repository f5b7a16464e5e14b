# SIGKILL of a random rank at a random step: restarted by tutti run, the training ends with the digest of an undisturbed
# one; measures the time from the kill to the next finished step; no process is left.   timeout: 120
# SPDX-License-Identifier: MIT
# KILLS is how many (default 5; train_kills_all does 50), SEED repeats a choice of ranks and steps.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
kills=${KILLS:-5}
SEED=${SEED:-$((${EPOCHREALTIME//[!0-9]/} % 32768))}
RANDOM=$SEED
export TUTTI_HEARTBEAT_S=60 # a kill is noticed before
# Kinds of runs, used in turn: flags, and the number of steps.
kinds=("--model mlp --epochs 30 --checkpoint-every 10" "--model mlp --epochs 24 --grad-accumulation 2 --optimizer adamw --zero 3"
    "--max-steps 40 --batch-size 8 --checkpoint-every 5")
steps=(690 288 40)
shm=$(ls /dev/shm | wc -l)

workers() { pgrep -f -- "--run-dir $work/" || true; } # all processes of a job, launchers included
now_us() { echo "${EPOCHREALTIME//[!0-9]/}"; }

# disturbed DIR STEP RANK FLAGS...: prints the milliseconds from the kill to the next finished step.
disturbed() {
    local dir=$1 step=$2 rank=$3 line began='' resumed='' victim
    shift 3
    "$TUTTI" run --max-restarts 1 -n 2 "$TUTTI" train --run-dir "$work/$dir" "$@" --threads 1 --log-every 1 >pipe 2>"$dir.err" &
    while read -r line; do
        case $line in
        *"step $step/"*)
            [ -z "$began" ] || continue
            victim=$(process_of "$rank" "--run-dir $work/" || true)
            began=$(now_us)
            kill -KILL "$victim" 2>kill.err || began=none # it had already finished
            ;;
        *"training images"*) [ -z "$began" ] || resumed=yes ;;
        *"  step "*)
            [ -z "$resumed" ] || { echo $((($(now_us) - began) / 1000)); resumed='' began=done; }
            ;;
        esac
        printf '%s\n' "$line" >>"$dir.out"
    done <pipe
    wait $! || { tail -20 "$dir.out" "$dir.err" >&2; fail "exit code $? after rank $rank was killed at step $step of $*" >&2; }
}

mkfifo pipe
echo "SEED=$SEED"
for k in 0 1 2; do
    train "whole$k" -n 2 ${kinds[k]} --threads 1
    [ "$(field "whole$k/summary.json" steps)" = "${steps[k]}" ] || fail "kind $k has $(field "whole$k/summary.json" steps) steps"
done
: >times
for ((i = 0; i < kills; i++)); do
    k=$((i % 3)) rank=$((RANDOM % 2)) step=$((1 + RANDOM % (steps[k] * 3 / 4)))
    disturbed run $step $rank ${kinds[k]} >>times
    [ "$(field run/summary.json status)" = completed ] || fail "kill $i: $(field run/summary.json status)"
    [ "$(digest run)" = "$(digest whole$k)" ] ||
        { tail -20 run.out run.err; fail "kill $i (rank $rank, step $step of ${kinds[k]}): another digest"; }
    [ "$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' run/metrics.jsonl | tr '\n' ' ')" = "$(seq "${steps[k]}" | tr '\n' ' ')" ] ||
        fail "kill $i: a step is missing in metrics.jsonl, or there twice"
    [ -z "$(workers)" ] || fail "kill $i: left $(workers)"
    [ -z "$(find run -name '*.tmp')" ] || fail "kill $i: left $(find run -name '*.tmp')"
    rm -r run run.out run.err
done
[ "$(ls /dev/shm | wc -l)" -le "$shm" ] || ls -l /dev/shm
median=$(sort -n times | awk '{ all[NR] = $1 } END { print NR ? all[int((NR + 1) / 2)] : "" }')
echo "$(wc -l <times) kills; from a kill to the next finished step: median $median ms, longest $(sort -n times | tail -1) ms"
[ -s times ] || fail "all runs were over before the kill"
[ "$median" -le 12000 ] || fail "the median is above 12 seconds" # of what takes less than one
