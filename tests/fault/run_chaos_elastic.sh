# tutti run --chaos on an elastic job: workers are killed and slowed while it trains, and the result is that of an undisturbed run.
# timeout: 150
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export TUTTI_LOG=error
seconds_at_most=120

# train NAME STEPS FLAGS: a short training of 4 shards a step, on three workers
train() {
    local name=$1 steps=$2
    shift 2
    run 0 "$TUTTI" run -n 3 "$@" "$TUTTI" train --shards 4 --batch-size 16 --max-steps "$steps" --eval-every 0 --run-dir "$work/$name"
}
digests() {
    grep -e '"parameter_digest"' -e '"samples_digest"' "$work/$1/summary.json"
}

# A worker killed before its program has said that it is elastic is a failure of the job. So the events begin when an undisturbed
# job has done its first step, and come as often as this machine needs for the other steps; a start that is slower this time is
# repeated. A job that ends before the first kill, because this time it started faster, is repeated with more steps.
train start 1
start=$seconds
for steps in 20 80 320 1280; do
    rm -rf "$work/peace" "$work/chaos"
    train peace "$steps"
    rates=$(awk "BEGIN { rest = $seconds - $start; if (rest < 0.2) rest = 0.2; print \"kill=\" 8 / rest \",slow=\" 4 / rest }")
    train chaos "$steps" --max-restarts 9 --chaos "$rates:3:1,burst=2,seed=5,after=$start"
    grep -q ' killed$' "$work/err" && break
done
err_has 'rank [012] \(process [0-9]+\) killed$'
err_has 'a replacement takes its place'
err_has '^tutti run: chaos: in [0-9.]+ s [1-9][0-9]* killed, 0 stopped'
equal "digests" "$(digests chaos)" "$(digests peace)"
equal "how many digests" "$(digests chaos | wc -l)" 2
finish
