# tutti run --chaos on an elastic job: workers are killed and slowed while it trains, and the result is that of an undisturbed run.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
export TUTTI_LOG=error
seconds_at_most=50

# train NAME FLAGS: a short training of 4 shards a step, on three workers
train() {
    local name=$1
    shift
    run 0 "$TUTTI" run -n 3 "$@" "$TUTTI" train --shards 4 --batch-size 16 --max-steps 20 --eval-every 0 --run-dir "$work/$name"
}
digests() {
    grep -e '"parameter_digest"' -e '"samples_digest"' "$work/$1/summary.json"
}

train peace
train chaos --chaos kill=20,slow=2:3:1,burst=2,until=1,seed=5
err_has 'rank [012] \(process [0-9]+\) killed$'
err_has 'a replacement takes its place'
err_has '^tutti run: chaos: in [0-9.]+ s [1-9][0-9]* killed, 0 stopped'
equal "digests" "$(digests chaos)" "$(digests peace)"
equal "how many digests" "$(digests chaos | wc -l)" 2
finish
