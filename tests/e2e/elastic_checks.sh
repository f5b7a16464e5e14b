# TUTTI_CHECK_SHARDS and TUTTI_CHECK_REPLICAS find an elastic program's mistakes, and change no bit of one without.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
program=$BUILD_DIR/tests/program/elastic_mistakes
export TUTTI_LOG=info

digest() { sed -n 's/.*step 12  digest //p' "$work/out" "$work/err"; }

run 0 "$TUTTI" run -n 1 "$program" none
undisturbed=$(digest)
[ -n "$undisturbed" ] || fail "no digest"
for n in 1 2 3; do
    TUTTI_CHECK_SHARDS=1 TUTTI_CHECK_REPLICAS=1 run 0 "$TUTTI" run -n $n "$program" none
    equal "digest with $n" "$(digest)" "$undisturbed"
done
# The replacement has compared nothing in that step, and the others have.
TUTTI_CHECK_SHARDS=1 run 0 "$TUTTI" run -n 3 "$program" death
equal "digest after a death" "$(digest)" "$undisturbed"
grep -q 'a replacement takes its place' "$work/out" "$work/err" || fail "nobody died"
TUTTI_CHECK_SHARDS=2 TUTTI_CHECK_REPLICAS=3 run 0 "$TUTTI" train -n 2 --shards 4 --model mlp --data digits --max-steps 8 \
    --eval-every 0 --run-dir "$work/checked"
run 0 "$TUTTI" train -n 2 --shards 4 --model mlp --data digits --max-steps 8 --eval-every 0 --run-dir "$work/plain"
equal "digest of tutti train" "$(grep -o '"parameter_digest": *"[^"]*"' "$work/checked/summary.json")" \
    "$(grep -o '"parameter_digest": *"[^"]*"' "$work/plain/summary.json")"

# Without a check nobody notices these.
for mistake in rank count; do
    run 0 "$TUTTI" run -n 3 "$program" $mistake
    TUTTI_CHECK_SHARDS=2 run 2 "$TUTTI" run -n 3 "$program" $mistake
    cat "$work/out" "$work/err" | grep -qE 'step [0-9]+: shard [0-5] has other gradients on rank [0-2] \(digest [0-9a-f]{16}\) than on rank [0-2] \([0-9a-f]{16}\): its data or random numbers were chosen by rank or by a count of this process.s own; they must be a function of \(seed, step, shard\)' ||
        fail "$mistake: $(cat "$work/err")"
done
TUTTI_CHECK_SHARDS=2 run 0 "$TUTTI" run -n 3 "$program" blind
equal "warnings" "$(cat "$work/out" "$work/err" | grep -c 'TUTTI_CHECK_SHARDS: no shard is compared, because part "sums" takes shards and has no `compare`')" 1
TUTTI_CHECK_REPLICAS=1 run 2 "$TUTTI" run -n 3 "$program" optimizer
grep -q 'replicas differ at step 7: .*"momentum_buffer of fc.weight" is the first that differs' "$work/out" "$work/err" || fail "the optimizer is not named"
TUTTI_CHECK_REPLICAS=2 run 2 "$TUTTI" run -n 3 "$program" part
grep -q 'replicas differ at step 8: part "steps seen" has digest .* on rank 0 and .* on rank 1\.' "$work/out" "$work/err" || fail "the part is not named"
finish
