# trainer_hooks.sh -- a program's functions at each step, on all ranks; it ends its run as completed.   timeout: 60
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
cp "$BUILD_DIR/tests/program/trainer_hooks" hooks
own() { # DIR RANKS WHAT KEYS...: must succeed
    local dir=$1 ranks=$2 what=$3 code=0
    shift 3
    timeout 120 "$TUTTI" run -n "$ranks" ./hooks "$what" --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    [ $code = 0 ] || { cat "$dir.out"; fail "exit code $code from: $dir $ranks $what $*"; }
}
ended() { # DIR STEPS EPOCHS REASON
    [ "$(grep -c "result: completed, code 0, $2 steps, $3 epochs, digest $(digest "$1")\$" "$1.out")" -ge 1 ] || { cat "$1.out"; fail "$1: not $2 steps"; }
    grep -qF "\"reason\": \"$4\"" "$1/summary.json" || { grep reason "$1/summary.json"; fail "$1: the reason"; }
}

# ---- Each step, on each rank, with the same loss; the bits are those without hooks
own log 2 log --epochs 1 --ema 0.9
own none 2 none --epochs 1
same log none
for rank in 0 1; do
    [ "$(sed -n "s/^\[$rank\] update \([0-9]*\) of epoch 1 on rank $rank of 2, .*, gradients \([0-9]*\), ema \([0-9]*\)/\1 \2 \3/p" log.out)" = "$(seq 23 | sed 's/.*/& & &/')" ] ||
        { cat log.out; fail "the calls on rank $rank"; }
    sed -n "s/^\[$rank\] update.* loss \([^,]*\), .*/\1/p" log.out >losses.$rank
done
cmp losses.0 losses.1 || fail "ranks are told other losses"
head -4 losses.0 | awk '{ s += $1 } END { printf "%.6f", s / 4 }' >mean
[ "$(losses log | awk 'NR == 1 { printf "%.6f", $1 }')" = "$(cat mean)" ] || fail "the mean of losses is $(cat mean), in metrics.jsonl $(losses log | head -1)"
# Gradients can be changed: one's own clipping has the bits of the key's.
for kind in "-n 1" "-n 2" "-n 2 --shards 2"; do
    rm -rf own keys
    own own ${kind:3:1} clip --epochs 1 ${kind:4}
    own keys ${kind:3:1} log --epochs 1 --clip-grad-norm 0.5 ${kind:4}
    same own keys
done
[ "$(digest own)" != "$(digest none)" ] || fail "clipping changes nothing"
own shards 1 clip --epochs 1 --shards 2
same shards own

# ---- The end: after the step in which it is asked for, on all ranks, with all that follows a last step
own update 2 stop-update
ended update 7 0 'ended by the program: seven \\x1b steps'
grep -q '"eval".*"step": 7' update/metrics.jsonl && [ -e update/checkpoints/step-00000007 ] || fail "no evaluation or checkpoint at the end"
own one 2 stop-rank1
ended one 7 0 'ended by the program: seven \\x1b steps'
same update one
own by_shards 2 stop-rank1 --shards 2
ended by_shards 7 0 'ended by the program: seven \\x1b steps'
own eval 1 stop-eval
ended eval 90 2 'ended by the program: good enough'
own line 2 stop-step
ended line 8 0 'ended by the program'
cp -r update again
own again 2 stop-update --resume auto
grep -q 'again is complete after 7 steps: ended by the program: seven' again.out || { cat again.out; fail "a resume does not say why nothing is done"; }
# From the middle: as uninterrupted.
own parts 2 stop-update --checkpoint-every 3 --keep-checkpoints 0
own rest 2 stop-update --resume parts/checkpoints/step-00000003
ended rest 7 0 'ended by the program: seven \\x1b steps'
same update rest
# Workers that die do not change when it ends, also in that step.
own calm 1 stop-update --shards 2
for step in 4 7; do
    rm -rf dies died
    DIE_STEP=$step own dies 2 stop-update --shards 2
    [ -e died ] && [ "$(field dies/summary.json lost_workers)" = 1 ] || { cat dies.out; fail "no worker died"; }
    ended dies 7 0 'ended by the program: seven \\x1b steps'
    same calm dies
done

# ---- Failures and wrong use
refused 2 'rank 1: step 3 is not to my liking' "$TUTTI" run -n 2 ./hooks fail-update --run-dir failed
refused 2 'the gradient of step 3 is not to my liking' ./hooks fail-gradients --run-dir failed
refused 2 'step 3 is not to my liking' "$TUTTI" run -n 2 ./hooks fail-update --run-dir failed --shards 2
refused 2 "zero: with it each rank has its share of the mean gradients, and the program's on_gradients needs all of them" ./hooks clip --zero 1
