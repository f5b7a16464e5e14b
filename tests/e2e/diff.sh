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
cp -r a a.kept
rm -r a/checkpoints
differ a momentum
says diff '^different: in metrics.jsonl, step 4: loss is '
rm a/metrics.jsonl
differ a momentum
says diff '^different: the final parameters, after step 12: fc1.bias, .* elements differ, the first at \[0\]: '
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
record=(-n 2 --model mlp --max-steps 6 --trace-digests 1 --checkpoint-every 3 --keep-checkpoints 0)
train one "${record[@]}"
train same "${record[@]}" --threads 1
train momentum.6 "${record[@]}" --momentum 0.8
equal one same
says diff '^equal: 6 recorded steps of 2 ranks \(332 entries\), the final parameters$'
equal one
says diff '^equal: the ranks of one, in 6 recorded steps of 2 ranks \([0-9]+ entries\)$'
cp -r same short && rm short/digests/rank-1.jsonl
equal one short
says diff 'note: short/digests has files of 1 of 2 ranks: the others were not compared$'
differ one momentum.6
says diff "^different: step 2, rank 0: the optimizer's state "
says diff '^cause: the configuration: momentum is 0.9 in one and 0.8 in momentum.6$'
says diff '^  reduced gradients      0 of 8 differ$'
"$TUTTI" diff one momentum.6 --json - >json || true
[ "$(field json kind)" = state ] && [ "$(field json key)" != "" ] || { cat json && fail "--json"; }
# Rates of groups
train groups "${record[@]}" --lr-groups fc1=0.1
train groups.2 "${record[@]}" --lr-groups fc1=0.1,fc2.bias=0.5
differ groups groups.2
says diff '^different: step 1, rank 0: the learning rate of fc2.bias$'
says diff '^cause: the configuration: lr_groups is "fc1=0.1" in groups and "fc1=0.1,fc2.bias=0.5" in groups.2$'
says diff '^  learning rates         2 of 8 differ$'
sed -i 's/"lr_groups": .*/"lr_groups": "fc1=0.1",/' groups.2/config.json # as by a program
differ groups groups.2
says diff '^cause: the learning rate of fc2.bias: [0-9.]+ in groups and [0-9.]+ in groups.2$'
# What a step has computed when it failed; NaN is a value like others
explode() { # DIR ARGUMENTS...
    ! timeout 120 "$TUTTI" train --run-dir "$1" "${record[@]}" --max-steps 20 --epochs 20 --lr 1000 --warmup-epochs 0 --weight-decay 1 "${@:2}" >"$1.out" 2>&1 || fail "the loss is finite"
    says "$1" 'the loss is NaN in step'
}
explode nan -n 1
explode nan.2 -n 1
equal nan nan.2
says diff '^NaN first in both: step [0-9]+, rank [01]: the loss$'
explode nan.3 # a rank is ended by the other one's failure, maybe a step before
equal nan.3
says diff '^NaN first in nan.3: step [0-9]+, rank [01]: the loss$'
"$TUTTI" diff nan.3 --json - | sed -n '/"nan"/,$p' | grep -q '"kind": "loss"' || fail "NaN in JSON"
equal nan nan.2 --tolerance 1e-6
! timeout 120 "$TUTTI" train --run-dir shards --shards 2 --model mlp --max-steps 20 --epochs 20 --lr 1000 --warmup-epochs 0 --weight-decay 1 --trace-digests 1 >shards.out 2>&1 ||
    fail "by shards the loss is finite"
! grep -q "\"step\":$(sed -n 's/.*the loss of 2 of 2 shards .* in step \([0-9]*\),.*/\1/p' shards.out | head -n 1)," shards/digests/rank-0.jsonl || fail "a half step of shards, which others may repeat, is in the record"
sed 's/\(\["forward","fc1","[0-9a-f]*",\)[-0-9.e]*,[-0-9.e]*/\1"nan","nan"/' one/digests/rank-0.jsonl >same/digests/rank-0.jsonl # of the same bits
equal one same
says diff '^NaN first in same: step 1, rank 0: the result of module fc1$'
sed -i '/"step":[3-6],/s/\(\["forward","fc1","\)[0-9a-f]*/\10000000000000000/' same/digests/rank-0.jsonl
sed -i '/"step":[12],/s/"nan","nan"/1,1/' same/digests/rank-0.jsonl
differ one same --tolerance 1e-3
says diff '^different: step 3, rank 0: the result of module fc1$'
says diff '^  B  same: digest 0{16}, norm NaN, projection NaN$'
! "$TUTTI" diff one same --tolerance 1e-3 --json - >json || fail "NaN is equal to a number"
[ "$(grep -c '"norm": "nan"' json)" = 1 ] || { cat json && fail "NaN in JSON is not as in the record"; }
says diff '^NaN first in same: step 3, rank 0: the result of module fc1$'
cp one/digests/rank-0.jsonl same/digests/rank-0.jsonl
# By default few steps are recorded
train few -n 2 --model mlp --max-steps 4
train few.2 -n 2 --model mlp --max-steps 4 --momentum 0.8 --dropout 0.1
differ few few.2
says diff '^different: step 1, rank 0: the result of module fc2$'
says diff '^cause: the configuration: dropout is 0.0 in few and 0.1 in few.2; keys that differ, but do not explain this: momentum$'
# and what is between by checkpoints
train between -n 2 --model mlp --max-steps 12 --checkpoint-every 4 --keep-checkpoints 0
sed -i '/^{"step":[2-9]/d; /^{"step":1[0-9]/d' between/digests/rank-*.jsonl # which were recorded depends on the time that a record takes
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
    timeout 120 "$TUTTI" run -n 2 ./faults "$fault" --run-dir "$dir" --model mlp --max-steps 5 --trace-digests 1 "$@" >"$dir.out" 2>&1 || true
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
says diff '^cause: rank 1 of rate left the others: the learning rate: [0-9.]+ on rank 0 and [0-9.]+ on rank 1$'
says diff '^  A  rate, rank 0: 0'
says diff '^  B  rate, rank 1: 0'
equal none

# ---- What is missing, damaged or foreign
head -c -40 same/digests/rank-1.jsonl >cut && cp cut same/digests/rank-1.jsonl
equal one same
says diff 'note: same/digests/rank-1.jsonl ends in half a line \(the run was killed, or is writing\)'
{ head -2 one/digests/rank-1.jsonl && echo '{"step":1,"ran' && tail -n +3 one/digests/rank-1.jsonl; } >same/digests/rank-1.jsonl
equal one same
says diff 'note: same/digests/rank-1.jsonl has 1 damaged line, left out; the first is line 3: premature end of input'
for damage in 's/"reduced","fc1.weight",/"reduced","fc1.weight"/' '5s/,[-0-9.e]*\]/,1e400]/' '5s/"fc1.weight"/7/' '5s/"forward","fc1","[^"]*"/"forward","fc1",null/' \
    '5s/"step":3/"step":-3/' '5s/"lr":[^,]*/"lr":"x"/' '5s/"lrs":[^,]*/"lrs":[0.1]/' '5s/"entries":.*/"entries":{}}/' '5s/\(,[-0-9.e]*\)\]\]}/\1,-1]]}/' '5s/.*/[]/' '1s/"step":0/"step":"0"/'; do
    sed "$damage" one/digests/rank-1.jsonl >same/digests/rank-1.jsonl
    equal one same
    says diff 'note: same/digests/rank-1.jsonl has [1-6] damaged lines?, left out; the first is line [1-5]: ' # the others are compared
done
equal same # also those of its ranks
says diff 'note: same/digests/rank-1.jsonl has 1 damaged line'
sed '1s/"format":2/"format":7/' one/digests/rank-1.jsonl >same/digests/rank-1.jsonl
refused 2 "its format is 7, and this tutti" "$TUTTI" diff one same
cp one/digests/rank-1.jsonl same/digests/
cp one/digests/rank-1.jsonl same/digests/rank-01.jsonl # no name that a run gives
equal one same
mute diff note
rm same/digests/rank-01.jsonl
if ! nm -D "$TUTTI" 2>/dev/null | grep -q '__asan_init\|__tsan_init'; then # what is read in part is not compared as if it were whole
    truncate -s 600M same/digests/rank-1.jsonl
    (ulimit -v 400000 && refused 4 "cannot read same/digests/rank-1.jsonl: Cannot allocate memory" "$TUTTI" diff one same)
    cp one/digests/rank-1.jsonl same/digests/ && cp same/metrics.jsonl kept.jsonl && truncate -s 600M same/metrics.jsonl
    (ulimit -v 400000 && refused 4 "cannot read same/metrics.jsonl: Cannot allocate memory" "$TUTTI" diff one same)
    mv kept.jsonl same/metrics.jsonl
fi
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
differ near
says diff '^different: within near, step 4, rank 1 from rank 0: the reduced gradient of fc1.weight$'
says diff '^cause: rank 1 of near left the others: the reduction between ranks: they got other means'
equal one near --tolerance 1e-6
says diff 'within 1e-06$'
sed -i '/"step":[1-3],/d' near/digests/rank-*.jsonl
differ one near
says diff '^Equal at step 0; what is between is not in both'
# A file of a checkpoint that is missing, or damaged
rm -rf near && cp -r one near
sed -i '/"step":3/s/\(\["parameter","fc1.weight",\)"[0-9a-f]*"/\1"0000000000000000"/' near/digests/rank-0.jsonl
head -c 900 one/checkpoints/step-00000003/model.safetensors >cut && cp --remove-destination cut near/checkpoints/step-00000003/model.safetensors
differ one near
says diff '^different: step 3, rank 0: parameter fc1.weight$'
says diff 'note: elements were not compared: near/checkpoints/step-00000003/model.safetensors'
cp -r a.kept gone
rm gone/checkpoints/step-00000008/model.safetensors gone/checkpoints/step-00000012/optimizer.safetensors
equal a.kept gone
says diff 'note: checkpoints of step 8 were not compared: there is no gone/checkpoints/step-00000008/model.safetensors$'
says diff 'note: checkpoints of step 12 were not compared whole: there is no gone/checkpoints/step-00000012/optimizer.safetensors$'
says diff '^equal: 2 checkpoints '
head -c 900 a.kept/checkpoints/step-00000004/model.safetensors >gone/checkpoints/step-00000004/model.safetensors
equal a.kept gone
says diff 'note: checkpoints of step 4 were not compared: gone/checkpoints/step-00000004/model.safetensors'
sed -i '2s/.*/{"step":/' gone/metrics.jsonl
equal a.kept gone
says diff 'note: gone/metrics.jsonl has 1 damaged line, left out; the first is line 2$'
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
says diff '^equal: 4 recorded steps of 2 ranks .*the final parameters$'
says diff 'note: the runs themselves differ: what made them differ did not happen again'
left() { ! ls -d tutti-diff-* 2>/dev/null || fail "a folder of reruns is left by $1"; }
left "a comparison"
refused 2 "--keep: again/a exists already" "$TUTTI" diff plain momentum --rerun --keep again
refused 2 "--keep: plain/config.json is not a folder" "$TUTTI" diff plain momentum --rerun --keep plain/config.json
refused 2 "is no name of a folder" "$TUTTI" diff plain momentum --rerun --keep ""
refused 2 "--keep: cannot write to plain/config.json/x: " "$TUTTI" diff plain momentum --rerun --keep plain/config.json/x
code=0
(ulimit -f 0 && "$TUTTI" diff plain momentum --json small.json 2>&1 | cat >/dev/null; exit "${PIPESTATUS[0]}") || code=$?
[ $code = 4 ] && [ ! -e small.json.tmp ] || fail "exit code $code where no file may have a byte"
code=0
(ulimit -f 2 && TMPDIR=$PWD timeout 60 "$TUTTI" diff plain momentum --rerun 2>&1; exit $?) | cat >small.out || code=$?
[ $code = 4 ] || { cat small.out && fail "exit code $code of reruns that have no room"; }
says small 'plain could not be run again \(tutti train ended with 4\): .*; --keep FOLDER, or TMPDIR, makes the reruns elsewhere$'
left "reruns that have no room"
# With a reader that has gone, and stopped
(TMPDIR=$PWD "$TUTTI" diff plain odd --rerun 2>&1 || true) | head -0
left "a closed pipe"
for dir in endless{,.2}; do # reruns that do not end before the signal
    cp -r plain $dir && rm -r $dir/{checkpoints,metrics.jsonl}
    sed -i 's/"max_steps": 12/"max_steps": 1000000/; s/"epochs": [0-9]*/"epochs": 1000000/' $dir/config.json
    sed -i 's/"steps": 12/"steps": 1000000/' $dir/summary.json
done
sed -i 's/"parameter_digest": "./"parameter_digest": "_/' endless.2/summary.json
for signal in TERM QUIT USR2; do
    TMPDIR=$PWD "$TUTTI" diff endless endless.2 --rerun >stopped.out 2>&1 &
    stopped=$!
    until grep -q 'running endless again' stopped.out 2>grep.err; do kill -0 $stopped || { cat stopped.out && fail "it ended early"; }; pause 5; done
    kill -$signal $stopped
    code=0
    wait $stopped || code=$?
    [ $code = $((128 + $(kill -l $signal))) ] || { cat stopped.out && fail "exit code $code of a comparison that was stopped by SIG$signal"; }
    says stopped '^different: the final parameters, after step 1000000' # what was known
    left "SIG$signal"
done
rm odd/config.json
refused 2 "odd has no config.json that can be read" "$TUTTI" diff plain odd --rerun
grep -q '^different: in the checkpoint of step 8: ' refused.out || { cat refused.out && fail "a failed rerun loses what was known"; }
echo '{"model": "mlp", "world_size": 1, "data": "nothing"}' >odd/config.json
refused 2 "odd could not be run again (tutti train ended with 2)" "$TUTTI" diff plain odd --rerun
# The reason is that of the worker, in one line
echo '{"model": "mlp", "world_size": 2, "data": "csv", "data_dir": "nowhere", "target": "y"}' >odd/config.json
refused 2 "odd could not be run again (tutti train ended with 1): " "$TUTTI" diff plain odd --rerun
grep -qx 'tutti diff: odd could not be run again (tutti train ended with 1): data folder or table nowhere: No such file or directory' refused.out || { cat refused.out && fail "a rerun's reason"; }
# One that fails again is compared as far as it goes
train fine "${keys[@]}" -n 1 --checkpoint-every 100
cp -r nan nan.4 && rm -r nan.4/digests
differ fine nan.4 --rerun
says diff '^different: step 1, rank 0: the learning rate$'
cp -r nan.4 nan.5
sed -i 's/"parameter_digest": "./"parameter_digest": "_/' nan.5/summary.json # known at the end alone
equal nan.4 nan.5 --rerun
says diff '^NaN first in both: step [0-9]+, rank 0: the loss$'
# Ranks that divide the model otherwise
train zero "${record[@]}" --zero 3
equal one zero
train final "${record[@]}" --zero 3 --trace-digests 0 --log-every 100
train final.2 "${record[@]}" --zero 3 --trace-digests 0 --log-every 100 --momentum 0.8
rm -r final{,.2}/{checkpoints,metrics.jsonl}
differ final final.2
says diff '^different: the final parameters, after step 6: fc[12]\..* elements differ, the first at \[' # in parts, with an index
# A stage has the learning rates of its own parameters
train stages "${record[@]}" --pipeline 2 --lr-groups fc1=0.1,fc2.bias=0.5
equal stages
# What differs of one rank beside its own largest value, but not beside the larger one of the others, within the tolerance
cp -r one three
cp one/digests/rank-1.jsonl three/digests/rank-2.jsonl
sed -i '1,2s/"rank":1/"rank":2/; 3s/"rank":1/"rank":2/' three/digests/rank-2.jsonl
for rank in 0 1 2; do
    values=("1.9,1.9" "0.0055,0.0055")
    [ $rank -gt 0 ] || values=("1.0,1.0" "0.0,0.0")
    sed -i "4,\$d; 3s/\[\"reduced\".*/[\"reduced\",\"fc1.bias\",\"000000000000000$rank\",${values[0]}],[\"reduced\",\"fc2.bias\",\"000000000000000$rank\",${values[1]}]]}/" three/digests/rank-$rank.jsonl
done
differ three --tolerance 0.5
says diff '^different: within three, step 1, rank 1 from rank 0: the reduced gradient of fc2.bias$'
