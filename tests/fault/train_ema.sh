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

# ---- With zero 3 each rank has the averages of its shares: a death takes some with it, two workers that join and leave again bring all together
begin shares 3 $keys --zero 3
reach shares 120
kill -KILL "$(worker shares 1)"
reach shares 220
kill -KILL "$(worker shares 0)"
end shares 0
same_end whole shares
[ "$(readlink whole/checkpoints/best)" = "$(readlink shares/checkpoints/best)" ] || fail "the best checkpoint with zero 3"
[ -e shares/ema.safetensors.index.json ] || { ls shares; fail "the averages are not written in parts"; }
"$TUTTI" checkpoint verify shares >out || { cat out; fail "verify of shares"; }
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
flags="--nnodes 1:2 --rdzv-backend native --rdzv-endpoint 127.0.0.1:$port --rdzv-conf last_call_timeout=0"
rm -f "$GO"
TUTTI_LOG=elastic:debug timeout 300 "$TUTTI" run $flags -n 1 "$TUTTI" train --run-dir "$PWD/node" $keys --zero 3 >node.out 2>&1 &
job=$!
reach node 20
TUTTI_LOG=elastic:debug timeout 300 "$TUTTI" run $flags -n 2 "$TUTTI" train --run-dir "$PWD/node" $keys --zero 3 >guest.out 2>&1 &
guest=$!
until grep -q 'rank . of 3' guest.out; do kill -0 $job 2>kill.err || failed_run node "it ended before the additional workers joined"; pause 20; done
reach node 160
kill -TERM $guest
wait $guest || { cat guest.out; fail "the additional workers ended with $?"; }
end node 0
same_end whole node
! grep -q 'resumed from' node.out guest.out || { cat node.out; fail "a step was done again"; }
refused 2 "ema: with shard_copies=2 it cannot be used" "$TUTTI" train -n 2 $keys --zero 3 --shard-copies 2 --run-dir no
