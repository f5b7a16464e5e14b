# slurm_requeue.sh -- scripts/slurm/*.sbatch under a Slurm of three nodes: requeued by hand, preempted, out of time, a rank or a
# launcher killed; what is resumed has the parameters of an undisturbed run.
# timeout: 600  tier: long
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/slurm.sh"
slurm_needed
hosts_enter n0 n1 n2
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
trap 'slurm_stop; rm -rf "$work"' EXIT
export HOME=$work SLURM_KILL_WAIT=10 RANKS_PER_NODE=2
hosts_up
slurm_start

# Long enough to be disturbed, short enough to wait for.
keys=(--model mlp --epochs 400 --lr 0.01 --eval-every 1000000 --checkpoint-every 1000000 --log-every 100 --schedule constant)
wait_for() { # WHAT SECONDS COMMAND...
    local what=$1 end=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { tail -n 20 ./*.out && squeue && fail "never: $what"; }
        sleep 0.05
    done
}
steps_done() { [ "$(grep -c '"step"' "$1/metrics.jsonl" 2>/dev/null || true)" -ge "$2" ]; } # DIR LINES
state() { scontrol show job "$1" | sed -n 's/^ *JobState=\([A-Z]*\).*/\1/p'; }
is() { [ "$(state "$1")" = "$2" ]; } # JOB STATE
waiting() { is "$1" PENDING; }
finished() { case $(state "$1") in COMPLETED | FAILED | TIMEOUT | CANCELLED | NODE_FAIL) ;; *) false ;; esac }
# submit DIR SCRIPT FLAGS...: as $job; $more is appended to its training's flags
more=()
submit() {
    local dir=$1 script=$2
    shift 2
    job=$(RUN_DIR=$dir sbatch --parsable -N3 -o "$dir.out" "$@" "$SOURCE_DIR/scripts/slurm/$script" "${keys[@]}" "${more[@]}")
    wait_for "$dir trains" 30 steps_done "$dir" 2
}
# Slurm lets a requeued job wait for two minutes, until nodes have forgotten that its credential was revoked, which counts for
# all of the same second or before. Some seconds do.
again() { # DIR [not saved]
    wait_for "job $job is back in the queue" 110 waiting "$job"
    [ $# = 2 ] || grep -q '"status": "interrupted"' "$1/summary.json" || { cat "$1.out" && fail "$1 was not saved"; }
    saved=$(field "$1/summary.json" steps)
    wait_for "job $job may begin" 10 scontrol update JobId="$job" StartTime=now+3
}
to_the_end() {
    wait_for "job $job ends" 90 finished "$job"
    is "$job" COMPLETED || { cat "$1.out" && scontrol show job "$job" && tail -n 30 slurm/*.out && fail "$1: $(state "$job")"; }
    same plain "$1"
    echo "$1: interrupted after step $saved of $(field "$1/summary.json" steps)"
}

# Undisturbed.
timeout 360 srun -N3 --ntasks-per-node=2 "$TUTTI" train --run-dir plain "${keys[@]}" >plain.out 2>&1 </dev/null || { tail plain.out && fail "the plain run"; }

for script in srun run; do
    tasks=$([ $script = srun ] && echo 2 || echo 1)
    submit requeued-$script $script.sbatch --ntasks-per-node=$tasks
    scontrol requeue "$job"
    again requeued-$script
    to_the_end requeued-$script

    # Preempted by a job of a better partition: Slurm gives it a grace time.
    submit preempted-$script $script.sbatch --ntasks-per-node=$tasks
    sbatch -Q -p urgent -N3 --exclusive -o urgent.out --wrap 'srun sleep 2'
    again preempted-$script
    to_the_end preempted-$script

    # A rank of srun or a launcher is killed.
    victim=$([ $script = srun ] && echo train || echo run)
    MAX_REQUEUES=1 submit killed-$script $script.sbatch --ntasks-per-node=$tasks
    kill -KILL "$(pgrep -f "^[^ ]*tutti $victim .*--run-dir killed-$script " | tail -n 1)"
    again killed-$script 'not saved'
    to_the_end killed-$script
    # Out of time: SIGUSR1, and the script requeues itself. Then cancelled: saved, and not requeued.
    more=(--epochs 1000000)
    submit late-$script $script.sbatch --ntasks-per-node=$tasks --time=2 --signal=USR1@20
    again late-$script
    wait_for "late-$script goes on" 30 grep -q "step-0*$saved: $saved of" late-$script.out
    rm -f late-$script/summary.json
    wait_for "late-$script trains" 30 steps_done late-$script $((saved / 100 + 2))
    scancel "$job"
    wait_for "late-$script is saved" 30 grep -q '"status": "interrupted"' late-$script/summary.json
    wait_for "job $job ends" 30 finished "$job"
    is "$job" CANCELLED || fail "cancelled, and $(state "$job")"
    echo "late-$script: interrupted after step $saved, and cancelled"
    more=()
done

# As often as MAX_REQUEUES allows.
MAX_REQUEUES=0 submit failed srun.sbatch --ntasks-per-node=2
kill -KILL "$(pgrep -f "^[^ ]*tutti train .*--run-dir failed " | tail -n 1)"
wait_for "job $job ends" 60 finished "$job"
is "$job" FAILED || fail "requeued in spite of MAX_REQUEUES=0: $(state "$job")"
