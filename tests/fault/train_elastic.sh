# Workers of a run by shards are killed, and stopped, at any step: it ends with the bits of an undisturbed run.   timeout: 150   run: waiting
# ENDS is how often rank 0 is killed at the end of a run (default 4; train_elastic_all: 20).
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/elastic.sh"

export GO=$work/go BRAKE_MS=5
keys="--model $BUILD_DIR/standin/braked_model.so --dropout 0.3 --shards 8 --batch-size 8 --epochs 12 --log-every 5 --checkpoint-every 100 --threads 1 --progress plain"
lines() { sed 's/"images_per_s.*//; s/"time_s.*//' "$1/metrics.jsonl"; }
: >"$GO"
timeout 180 "$TUTTI" train --run-dir "$PWD/whole" $keys >whole.out 2>&1 || { cat whole.out; fail "the run itself"; }

# Rank 1, then rank 0, which writes the run folder, then any.
begin one 3 $keys
reach one 50
kill -KILL "$(worker one 1)"
reach one 120
kill -KILL "$(worker one 0)"
reach one 200
kill -KILL "$(running one | tail -1)" # possibly a replacement, and possibly before it has joined
end one 0
same_end whole one
grep -q 'the rank that wrote .*one is gone: this rank takes over after step' one.out || { cat one.out; fail "no other rank took over the run folder"; }
lost=$(field one/summary.json lost_workers)
{ [ "$lost" = 2 ] || [ "$lost" = 3 ]; } || { cat one/summary.json; fail "dead workers were not counted"; }
[ "$(field one/summary.json left_workers)" = 0 ] || { cat one/summary.json; fail "dead workers were counted as having left"; }

# In a terminal the progress bar is cleared for the launcher's message about a death.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then # a terminal can be made
    rm "$GO"
    timeout 300 env TERM=xterm script -qefc "stty cols 120; exec $TUTTI train -n 2 --run-dir $PWD/screen ${keys/progress plain/progress bar}" /dev/null >screen.out </dev/null &
    job=$!
    reach screen 50
    kill -KILL "$(worker screen 1)"
    end screen 0
    same_end whole screen
    grep -q $'\r\033\\[Ktutti train: rank 1 (process [0-9]*) was killed by SIGKILL' screen.out || { cat -v screen.out; fail "the message of a rank's death is on the progress bar's line"; }
fi

# All but one, and then the survivor.
begin most 3 $keys --tensorboard
reach most 60
kill -KILL "$(worker most 0)" "$(worker most 2)"
reach most 120
kill -KILL "$(running most | head -1)"
end most 0
same_end whole most

# All: only the checkpoint remains.
begin all 2 $keys
reach all 150
kill -KILL $(running all)
end all 0
same_end whole all
grep -q 'resumed from .*all/checkpoints/step-00000[1-6]' all.out || { cat all.out; fail "it did not go on from a checkpoint"; }

# Rank 0, while it writes the last checkpoint: another rank writes it.
begin last 2 $keys
reach last 5
: >"$GO"
pid=$(worker last 0)
last_checkpoint() { [ -e last/checkpoints/step-00000276.tmp ] || [ -e last/checkpoints/step-00000276 ]; }
until last_checkpoint; do
    kill -0 "$pid" 2>kill.err || last_checkpoint || fail "rank 0 has ended without a last checkpoint"
done
kill -KILL "$pid" || true # it may have exited already
end last 0
same_end whole last

# Rank 0, when it has written the summary, and others do not know that yet or just learn it: what it wrote stays, or is written
# again. Where the kill falls differs from run to run.
keys_short="--model mlp --shards 4 --batch-size 16 --max-steps 3 --eval-every 0 --threads 1 --progress quiet"
for ((i = 0; i < ${ENDS:-4}; i++)); do
    timeout 100 "$TUTTI" train -n 3 --run-dir "$PWD/end" $keys_short >end.out 2>&1 &
    job=$!
    until [ -e end/summary.json ]; do kill -0 $job 2>kill.err && pause 1 || break; done
    pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' end/.lock) # its owner
    kill -KILL "$pid" 2>kill.err || true                      # it may have exited already
    end end 0
    [ -e end/summary.json ] && [ "$(field end/summary.json status)" = completed ] || { cat end.out; fail "the summary of a completed run is gone"; }
    [ "$(field end/summary.json steps)" = 3 ] || { cat end/summary.json; fail "not its summary"; }
    rm -r end
done

# A worker that is stopped and resumed: late, not dead.
begin late 2 $keys
reach late 100
pid=$(worker late 1)
kill -STOP "$pid"
kill -CONT "$pid"
end late 0
same_end whole late

# A signal to the job makes it save and exit, and it resumes with any number of workers.
begin told 3 $keys
reach told 150
kill -TERM $job
end told 143
[ "$(field told/summary.json status)" = interrupted ] || { cat told/summary.json; fail "it was not interrupted"; }
timeout 180 "$TUTTI" train -n 2 --run-dir "$PWD/told" $keys --resume auto >>told.out 2>&1 || { cat told.out; fail "it does not go on"; }
! grep -q 'before, [0-9].* now' told.out || { cat told.out; fail "the number of workers makes a difference"; }
same_bits whole told # one extra line where it stopped

# Rank 0 dies before it has written its first line: the lines from before the interruption are kept.
begin again 3 $keys
reach again 150
kill -TERM $job
end again 143
lines again >before.lines
begin again 3 $keys --log-every 100000 --resume auto
until grep -q 'resumed from' again.out; do kill -0 $job; pause 20; done
kill -KILL "$(worker again 0)"
end again 0
diff before.lines <(lines again | head -n "$(wc -l <before.lines)") || { cat again.out; fail "lines from before the interruption"; }
same_bits whole again

# Others have completed the run, which this one does not know: it leaves the folder as it is.
begin done 2 $keys
reach done 100
printf '{"status": "completed", "steps": 276}\n' >done/summary.json
kill -KILL "$(worker done 0)"
end done 0
grep -q 'was completed by others, while this worker was cut off after step [0-9]*' done.out || { cat done.out; fail "it does not say why"; }
[ "$(field done/summary.json status)" = completed ] || { cat done/summary.json; fail "it wrote to the folder of a completed run"; }

# Rank 0 dies right after a checkpoint within the last epoch: the next rank 0 still writes the one at its end.
begin last 2 --model mini_resnet --shards 2 --batch-size 8 --epochs 1 --max-steps 80 --log-every 5 --checkpoint-every 40 --checkpoint-background false --eval-every 0 --threads 1 --progress plain
until [ -d last/checkpoints/step-00000040 ]; do kill -0 $job; pause 1; done
kill -KILL "$(worker last 0)"
end last 0
grep -q 'takes over after step' last.out || { cat last.out; fail "no rank took over"; }
[ "$(readlink last/checkpoints/latest)" = step-00000080 ] || { ls last/checkpoints; cat last.out; fail "the last checkpoint is missing"; }
