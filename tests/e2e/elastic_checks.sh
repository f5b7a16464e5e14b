# TUTTI_CHECK_SHARDS and TUTTI_CHECK_REPLICAS find an elastic program's mistakes and a rank that computes wrong, and change no bit without.
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
TUTTI_CHECK_SHARDS=2 TUTTI_CHECK_REPLICAS=3 run 0 "$TUTTI" train -n 2 --shards 4 --model mlp --data digits --max-steps 20 \
    --eval-every 0 --run-dir "$work/checked"
run 0 "$TUTTI" train -n 2 --shards 4 --model mlp --data digits --max-steps 20 --eval-every 0 --run-dir "$work/plain"
digest_of() { # RUN RUN: the same
    equal "digest of ${1##*/}" "$(grep -o '"parameter_digest": *"[^"]*"' "$1/summary.json")" \
        "$(grep -o '"parameter_digest": *"[^"]*"' "$2/summary.json")"
}
digest_of "$work/checked" "$work/plain"

# A step that is computed again because its sums did not fit accuses nobody: in 32 bits the first one's do not.
TUTTI_CHECK_SHARDS=1 run 0 "$TUTTI" train -n 3 --shards 6 --wire-bits 32 --model mlp --data digits --batch-size 4 --max-steps 3 --eval-every 0 \
    --run-dir "$work/narrow"
! cat "$work/out" "$work/err" | grep 'with other bits' || fail "a rank is said to have computed wrong"

# A rank that computes wrong bits is named, and none of them reach the weights. It is replaced if that happens again.
said() { cat "$work/out" "$work/err" | grep -qE "$1" || fail "$what: not said: $1"; }
who='rank [01] \(.*, process [0-9]+\) on core [0-9]+'
for n in 1 3; do
    what="wrong once, $n ranks"
    TUTTI_CHECK_SHARDS=2 run 0 "$TUTTI" run -n $n "$program" once
    equal "$what" "$(digest)" "$undisturbed"
    said "training step 7: $who computed shard [0-5] with other bits than $((n + 1)) of $((n + 2)) computations of it; the step is computed again, nothing of it has reached the weights"
done
for n in 2 3; do
    what="wrong twice, $n ranks"
    TUTTI_CHECK_SHARDS=2 run 0 "$TUTTI" run -n $n "$program" twice
    digest | grep -qxF "$undisturbed" || fail "$what: $(digest)"
    said "training step 9: $who computed shard [0-5] .*, for the second time: its processor or memory is faulty"
    said '\) ended with exit code 4 .*: a replacement takes its place'
done
what="always wrong"
TUTTI_CHECK_SHARDS=2 run 0 "$TUTTI" run -n 3 "$program" always
digest | grep -qxF "$undisturbed" || fail "$what: $(digest)"
said "training step 7: rank 1 .* on core [0-9]+ computed shard [0-5] with other bits than 3 of 5 computations of it, and again when it was repeated: its processor or memory is faulty"
said 'a replacement takes its place'
# Of two ranks that differ again, either may be wrong.
what="always wrong, 2 ranks"
TUTTI_CHECK_SHARDS=2 run 2 "$TUTTI" run -n 2 "$program" always
said "Or one of the two computes wrong, rank [01] .* on core [0-9]+ or rank [01] .* on core [0-9]+: test both hosts"

# Sums that change in memory after they were added up. (With three workers the one that is disturbed may have no shard to add.)
steps_of() { cat "$work/out" "$work/err" | grep "$1" | grep -o 'training step [0-9]*' | sort -u; }
for n in 1 3; do
    what="flipped bits of sums, $n ranks"
    [ $n = 3 ] && rate=0.2 || rate=0.04 # one bit; a worker that is alone cannot be replaced without end
    TUTTI_CHECK_SHARDS=0 run 0 "$TUTTI" run -n $n --chaos flip=$rate:sums,keep=$((n - 1)),seed=3 "$TUTTI" train --shards 4 --model mlp \
        --data digits --max-steps 20 --eval-every 0 --run-dir "$work/flips$n"
    digest_of "$work/flips$n" "$work/plain"
    equal "$what" "$(steps_of 'the sums over shards of "fc[0-9].*" have changed since they were added up')" \
        "$(steps_of 'bit [0-9]* of element [0-9]* of the sums of .* flipped')"
    [ $n = 3 ] || said 'in the memory of rank 0 \(.*\) on core [0-9]+ the sums over shards of "fc'
    [ $n = 3 ] || grep -q '"rank":0,"worker":0,.*"found":"the sums over shards of .*fc[12]' "$work/flips$n/guard.jsonl" || fail "$what: not recorded"
done

TUTTI_CHECK_SHARDS=often run 2 "$TUTTI" train --shards 4 --model mlp --data digits --run-dir "$work/refused"
said 'TUTTI_CHECK_SHARDS is "often", expected auto, or an interval of 0 \(never\) to [0-9]+ steps'

# Without a check nobody notices these.
for what in rank count; do
    TUTTI_CHECK_SHARDS=0 run 0 "$TUTTI" run -n 3 "$program" $what
    TUTTI_CHECK_SHARDS=2 run 2 "$TUTTI" run -n 3 "$program" $what
    said 'training step [0-9]+: shard [0-5] has other gradients on rank [0-2] \(digest [0-9a-f]{16}\) than on rank [0-2] \([0-9a-f]{16}\), and when all computed it again there was no majority. Either its data or random numbers were chosen by rank or by a count of this process.s own: they must be a function of \(seed, step, shard\)'
done
TUTTI_CHECK_SHARDS=2 run 0 "$TUTTI" run -n 3 "$program" blind
equal "warnings" "$(cat "$work/out" "$work/err" | grep -c 'TUTTI_CHECK_SHARDS: no shard is compared, because part "sums" takes shards and has no `compare` and `drop`')" 1
TUTTI_CHECK_REPLICAS=1 run 2 "$TUTTI" run -n 3 "$program" optimizer
grep -q 'replicas differ at step 7: .*"momentum_buffer of fc.weight" is the first that differs' "$work/out" "$work/err" || fail "the optimizer is not named"
TUTTI_CHECK_REPLICAS=2 run 2 "$TUTTI" run -n 3 "$program" part
grep -q 'replicas differ at step 8: part "steps seen" has digest .* on rank 0 and .* on rank 1\.' "$work/out" "$work/err" || fail "the part is not named"
finish
