# diff.sh -- `tutti diff`: the first difference of two runs and its cause; damaged, missing and foreign files.   timeout: 90
# SPDX-License-Identifier: MIT
#
# All ten injected differences are in e2e/diff_all.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/diff.sh"

# ---- Runs without a record: checkpoints, metrics, results
keys=(-n 2 --model mlp --trace-digests 0 --max-steps 12 --checkpoint-every 4 --keep-checkpoints 0 --log-every 4)
train a "${keys[@]}"
train b "${keys[@]}" --log-every 3 --threads 1
train momentum "${keys[@]}" --momentum 0.8
equal a b
says diff '^equal: 3 checkpoints \([0-9]+ tensors\), .*the final parameters$'
says diff '^  3 keys that change no result$'
differ a momentum
says diff '^different: in the checkpoint of step 4: .* elements differ, the first at \['
says diff '^cause: the configuration: momentum is 0.9 in a and 0.8 in momentum$'
says diff 'What was before is not in both'
rm -r a/checkpoints
differ a momentum
says diff '^different: in metrics.jsonl, step 4: loss is '
rm a/metrics.jsonl
differ a momentum
says diff '^different: the final parameters, after step 12$'
rm a/summary.json
refused 2 "nothing in common that can be compared" "$TUTTI" diff a momentum
# Interrupted and resumed: the means of lines are of other steps
train resumed "${keys[@]}" --stop-after 7
[ "$(ls resumed/checkpoints | grep -c 00000007)" = 1 ] || fail "--stop-after left no checkpoint"
[ "$(field resumed/summary.json reason)" = "stop_after: ended after step 7 of 12; --stop-after 0 --resume auto goes on" ] || fail "--stop-after is not said to have ended the run"
train resumed "${keys[@]}" --resume auto
equal resumed b --rerun
mute diff 'running' # what is equal need not run again

# ---- Runs with records
record=(-n 2 --model mlp --max-steps 6 --trace-digests --checkpoint-every 3 --keep-checkpoints 0)
train one "${record[@]}"
train same "${record[@]}" --threads 1
train momentum.6 "${record[@]}" --momentum 0.8
equal one same
says diff '^equal: 6 recorded steps, the final parameters$'
cp -r same short && rm short/digests/rank-1.jsonl
equal one short
says diff 'note: short/digests has files of 1 of 2 ranks: the others were not compared$'
differ one momentum.6
says diff "^different: step 2, rank 0: the optimizer's state "
says diff '^cause: the configuration: momentum is 0.9 in one and 0.8 in momentum.6$'
says diff '^  reduced gradients      0 of 8 differ$'
"$TUTTI" diff one momentum.6 --json - >json || true
[ "$(field json kind)" = state ] && [ "$(field json key)" != "" ] || { cat json && fail "--json"; }
# By default few steps are recorded, without what modules return
train few -n 2 --model mlp --max-steps 4
train few.2 -n 2 --model mlp --max-steps 4 --momentum 0.8 --dropout 0.1
differ few few.2
says diff '^different: step 1, rank 0: the (loss|gradient of fc[12].(weight|bias))$'
says diff '^cause: the configuration: dropout is 0.0 in few and 0.1 in few.2; keys that differ, but do not explain this: momentum$'
# and what is between by checkpoints
train between -n 2 --model mlp --max-steps 12 --checkpoint-every 4 --keep-checkpoints 0
cp -r between between.2
rm -r between.2/checkpoints/step-00000008 && cp -r momentum/checkpoints/step-00000008 between.2/checkpoints/
differ between between.2
says diff '^different: in the checkpoint of step 8: '
says diff '^Equal at step 4; what is between is not in both'
# Its rank alone: a learning rate
cp "$BUILD_DIR/tests/program/diff_faults" faults
own() { # DIR FAULT KEYS...: a run that ends as failed, since replicas differ, or not
    local dir=$1 fault=$2
    shift 2
    timeout 120 "$TUTTI" run -n 2 ./faults "$fault" --run-dir "$dir" --model mlp --max-steps 5 --trace-digests "$@" >"$dir.out" 2>&1 || true
    [ -s "$dir/digests/rank-1.jsonl" ] || { cat "$dir.out" && fail "$dir has no record"; }
}
own none none
own rate rate
differ none rate
says diff '^different: step 3, rank 1: the learning rate$'
says diff '^cause: the learning rate on rank 1 alone: [0-9.e-]+ in none and [0-9.e-]+ in rate$'
says diff '^Within rate, rank 1 differs from rank 0 since step 3: '
differ rate
says diff '^different: within rate, step 3, rank 1 from rank 0: the learning rate'
equal none

# ---- What is missing, damaged or foreign
head -c -40 same/digests/rank-1.jsonl >cut && cp cut same/digests/rank-1.jsonl
equal one same
says diff 'note: same/digests/rank-1.jsonl ends in half a line \(the run was killed, or is writing\)'
{ head -2 one/digests/rank-1.jsonl && echo '{"step":1,"ran' && tail -n +3 one/digests/rank-1.jsonl; } >same/digests/rank-1.jsonl
equal one same
says diff 'note: same/digests/rank-1.jsonl has 1 damaged line, left out; the first is line 3$'
sed -i 's/"reduced","fc1.weight",/"reduced","fc1.weight"/' same/digests/rank-1.jsonl
refused 2 "same/digests/rank-1.jsonl: the line of step 1 is damaged" "$TUTTI" diff one same
sed '1s/"format":1/"format":7/' one/digests/rank-1.jsonl >same/digests/rank-1.jsonl
refused 2 "its format is 7, and this tutti" "$TUTTI" diff one same
rm same/digests/rank-1.jsonl && mkfifo same/digests/rank-1.jsonl
refused 2 "is not a regular file" "$TUTTI" diff one same
rm same/digests/rank-1.jsonl
equal one same
# A tolerance; other steps of a record
rm -rf near && cp -r one near
sed -i '/"step":4/s/\(\["reduced","fc1.weight",\)"[0-9a-f]*"/\1"0000000000000000"/' near/digests/rank-0.jsonl
differ one near
says diff '^different: step 4, rank 0: the reduced gradient of fc1.weight$'
says diff '^cause: the reduction between ranks'
equal one near --tolerance 1e-6
says diff 'within 1e-06$'
sed -i '/"step":[1-3],/d' near/digests/rank-*.jsonl
differ one near
says diff '^Equal at step 0; what is between is not in both'
# Usage
mkdir empty
refused 2 "of which runs" "$TUTTI" diff
refused 2 "is a third run" "$TUTTI" diff one same near
refused 2 "empty holds no run" "$TUTTI" diff one empty
refused 2 "cannot read the run folder nowhere" "$TUTTI" diff one nowhere
refused 2 "one/config.json is not a folder" "$TUTTI" diff one/config.json one
refused 2 'did you mean "--tolerance"' "$TUTTI" diff one same --tolerence 1
refused 2 "expected a number from 0 to below 1" "$TUTTI" diff one same --tolerance x
refused 2 "--rerun needs two runs" "$TUTTI" diff one --rerun
refused 2 "has no record of several ranks" "$TUTTI" diff b

# ---- Again, until the difference that is known, from the last equal checkpoint; a difference that does not happen again
train plain "${keys[@]}" --log-every 12
differ plain momentum --rerun --keep again
says diff '^tutti diff: running plain again, from the start to step 4$'
says diff "^different: step 2, rank 0: the optimizer's state "
says diff 'momentum is 0.9 in plain and 0.8 in momentum$'
[ "$(ls again)" = "a
a.log
b
b.log" ] || fail "--keep"
cp -r plain odd
rm -r odd/checkpoints/step-00000008
cp -r {momentum,odd}/checkpoints/step-00000008
TMPDIR=$PWD equal plain odd --rerun
says diff '^tutti diff: running odd again, from the checkpoint of step 4 to step 8$'
says diff '^equal: 4 recorded steps, .*the final parameters$'
says diff 'note: the runs themselves differ: what made them differ did not happen again'
! ls -d tutti-diff-* 2>/dev/null || fail "a folder of reruns is left"
rm odd/config.json
refused 2 "odd has no config.json that can be read" "$TUTTI" diff plain odd --rerun
echo '{"model": "mlp", "world_size": 1, "data": "nothing"}' >odd/config.json
refused 2 "odd could not be run again (tutti train ended with 2)" "$TUTTI" diff plain odd --rerun
