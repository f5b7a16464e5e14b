# elastic_flips_all.sh -- by shards, 100 bits that flip on one of three workers: 50 of gradients before they are added up, 50 of the sums. Each is found in
# its step, the worker is named, and the weights are those of an undisturbed run. And no false alarm in 100,000 checked shards.
# tier: long   timeout: 600   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
seconds_at_most=900
export TUTTI_LOG=warn
keys="--shards 6 --model mlp --data digits --batch-size 8 --epochs 1000000 --eval-every 0 --threads 1 --progress quiet --checkpoint-every 100"
digest() { sed -n 's/.*"parameter_digest": *"\([0-9a-f]*\)".*/\1/p' "$work/$1/summary.json"; }
steps_of() { grep "$1" "$work/out" | grep -o 'training step [0-9]*' | sort -u; }

disturbed() { # KIND CHECK STEPS FOUND: seeds until 50 bits have flipped
    local kind=$1 check=$2 steps=$3 seed=0 flips=0 rows=0 who
    TUTTI_CHECK_SHARDS=0 run 0 "$TUTTI" train -n 1 $keys --max-steps "$steps" --run-dir "$work/plain"
    while [ $flips -lt 50 ] && [ $seed -lt 40 ]; do
        seed=$((seed + 1))
        rm -rf "$work/run"
        TUTTI_CHECK_SHARDS=$check run 0 "$TUTTI" run -n 3 --chaos "flip=0.05:$kind,keep=2,seed=$seed" "$TUTTI" train $keys --max-steps "$steps" \
            --run-dir "$work/run"
        cat "$work/err" >>"$work/out"
        equal "$kind, seed $seed: digest" "$(digest run)" "$(digest plain)"
        equal "$kind, seed $seed: steps in which a flip was found" "$(steps_of "$4")" "$(steps_of 'tutti warn chaos: training step')"
        # The process that is named is of the worker that says that it is disturbed.
        who=$(grep -oE '^\[[0-9]+\] tutti warn chaos' "$work/out" | sort -u)
        [ "$(wc -l <<<"$who")" -le 1 ] || fail "$kind, seed $seed: several workers were disturbed"
        ! grep -E '^\[[0-9]+\] tutti train: .*for the second time|^\[[0-9]+\] tutti train: .*second time that this rank' "$work/out" | grep -vF "${who%% *}" ||
            fail "$kind, seed $seed: another worker is blamed"
        flips=$((flips + $(grep -c 'tutti warn chaos: training step' "$work/out" || true)))
        rows=$((rows + $(grep -c 'a replacement takes its place' "$work/out" || true)))
    done
    echo "$kind: $flips bits flipped in $seed runs of $steps steps, each found in its step; $rows workers replaced; the digest is always that of the undisturbed run"
    [ $flips -ge 50 ] || fail "$kind: only $flips flips"
}
disturbed gradients 1 100 'computed shard [0-9]* with other bits'
disturbed sums 0 100 'have changed since they were added up'

TUTTI_CHECK_SHARDS=1 run 0 "$TUTTI" train -n 2 $keys --max-steps 50000 --log-every 10000 --run-dir "$work/calm"
! grep -q elastic "$work/out" "$work/err" || fail "a false alarm: $(grep elastic "$work/out" "$work/err" | head -3)"
finish
