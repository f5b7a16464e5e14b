# train_ema.sh -- a run with an average of its weights is killed while it writes that; workers of a run by shards die: the bits are
# those of an undisturbed run.   timeout: 120   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/elastic.sh"
ema() { field "$1/summary.json" ema_digest; }

# ---- Killed while it writes ema.safetensors: the folder has no name yet, and the checkpoint before it is intact
keys="--model mini_resnet --ema 0.9 --max-steps 24 --batch-size 8 --checkpoint-every 2 --eval-every 0 --threads 1"
train whole $keys
killed=0
for _ in 1 2 3 4 5; do
    "$TUTTI" train --run-dir cut $keys --resume auto >cut.out 2>&1 &
    pid=$!
    until found=(cut/checkpoints/step-*.tmp/ema.safetensors) && [ -e "${found[0]}" ]; do
        kill -0 $pid 2>kill.err && pause 1 || break
    done
    ! kill -KILL $pid 2>kill.err || killed=$((killed + 1))
    wait $pid || true
    for checkpoint in cut/checkpoints/step-????????; do
        [ ! -e "$checkpoint" ] || "$TUTTI" checkpoint verify "$checkpoint" >verify.out || { cat verify.out; fail "a checkpoint after a kill"; }
    done
done
[ $killed -gt 0 ] || fail "it was never killed"
train cut $keys --resume auto
same whole cut
[ -n "$(ema whole)" ] && [ "$(ema whole)" = "$(ema cut)" ] || fail "averages $(ema whole) and $(ema cut) after $killed kills"
[ -z "$(find cut -name '*.tmp')" ] || fail "temporary files are left: $(find cut -name '*.tmp')"

# ---- By shards: rank 1, then rank 0, and then all
export GO=$work/go BRAKE_MS=5
keys="--model $BUILD_DIR/standin/braked_model.so --ema 0.95 --checkpoint-best val_loss --shards 4 --batch-size 8 --epochs 12 --log-every 5 --checkpoint-every 100 --threads 1 --progress plain"
results="$results ema_digest best_step best_value"
rm -rf whole
: >"$GO"
timeout 180 "$TUTTI" train --run-dir "$PWD/whole" $keys >whole.out 2>&1 || { cat whole.out; fail "the run itself"; }
begin lost 3 $keys
reach lost 50
kill -KILL "$(worker lost 1)"
reach lost 120
kill -KILL "$(worker lost 0)"
reach lost 220
kill -KILL $(running lost)
end lost 0
same_end whole lost
cmp whole/ema.safetensors lost/ema.safetensors || fail "ema.safetensors of killed workers"
[ "$(readlink whole/checkpoints/best)" = "$(readlink lost/checkpoints/best)" ] || fail "the best checkpoint: $(readlink whole/checkpoints/best), of killed workers $(readlink lost/checkpoints/best)"
"$TUTTI" checkpoint verify lost >out || { cat out; fail "verify"; }
