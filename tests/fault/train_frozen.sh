# The host of rank 0 is frozen in a run by shards over three nodes: the others continue in its run folder, and when it resumes it does no
# harm: the bits are those of an undisturbed run.   timeout: 150   run: waiting
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_HEARTBEAT_S=1
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >secret)
export TUTTI_SECRET_FILE=$PWD/secret

export GO=$PWD/go BRAKE_MS=5 # the run is slow until the frozen host has resumed
: >"$GO"
keys="--model $BUILD_DIR/standin/braked_model.so --shards 6 --batch-size 8 --epochs 60 --log-every 20 --checkpoint-every 50 --threads 1 --progress plain"
port=$("$TUTTI" run sh -c 'echo $MASTER_PORT')
node() { # NAME: starts a node with one worker
    timeout 360 "$TUTTI" run --nnodes 1:3 --rdzv-backend native --rdzv-endpoint "127.0.0.1:$port" \
        --rdzv-conf last_call_timeout=20,keep_alive_interval=0.5 -n 1 "$TUTTI" train --run-dir "$PWD/run" $keys >"$1.out" 2>&1 &
}
tree() { # PID: it and its descendants
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do tree "$child"; done
}
last_step() { sed -n 's/^{"step": \([0-9]*\),.*/\1/p' run/metrics.jsonl 2>sed.err | tail -1; }
reach() { # STEP
    until [ "$(last_step || true)" -ge "$1" ] 2>test.err; do
        [ -n "$(jobs -r)" ] || { cat ./*.out; fail "it has ended before step $1"; }
        sleep 0.05
    done
}

timeout 300 "$TUTTI" train --run-dir "$PWD/whole" $keys >whole.out 2>&1 || { cat whole.out; fail "the run itself"; }
rm "$GO"
for name in a b c; do node $name; done
reach 200
writer=$(sed 's/.*"pid":\([0-9]*\),.*/\1/' run/.lock)
agent=$(ps -o ppid= -p "$writer" | tr -d ' ')
frozen=$(tree "$(ps -o ppid= -p "$agent" | tr -d ' ')")
kill -STOP $frozen
step=$(last_step)
reach $((step + 200))
kill -0 "$writer" || fail "the frozen rank 0 was killed instead of losing the folder"
[ "$(sed 's/.*"pid":\([0-9]*\),.*/\1/' run/.lock)" != "$writer" ] || fail "the folder is still the frozen one's"
kill -CONT $frozen
: >"$GO"
wait
for key in status steps train_loss val_loss val_accuracy samples_digest parameter_digest; do
    [ "$(field run/summary.json $key)" = "$(field whole/summary.json $key)" ] || { cat ./?.out; fail "$key"; }
done
cmp whole/checkpoints/latest/model.safetensors run/checkpoints/latest/model.safetensors
cmp whole/checkpoints/latest/optimizer.safetensors run/checkpoints/latest/optimizer.safetensors
lines() { sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"; }
diff <(lines whole) <(lines run) || { cat ./?.out; fail "lines of metrics.jsonl"; }
[ -z "$(find run -name '*.tmp')" ] || fail "temporary files are left: $(find run -name '*.tmp')"
