# train_ema.sh -- the average of the weights (--ema): its bits are those of an uninterrupted run after a resume, with --zero 1, and with
# --shards for any number of ranks; evaluations measure it; eval, predict, --init and export take its file.   timeout: 150
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
ema() { field "$1/summary.json" ema_digest; }
same_ema() { # WHAT RUN RUN
    [ ${#2} -gt 0 ] && [ "$(ema "$2" | wc -c)" = 33 ] && [ "$(ema "$2")" = "$(ema "$3")" ] || fail "$1: averages $(ema "$2") and $(ema "$3")"
    same "$2" "$3"
}
for model in mlp mini_resnet; do # mini_resnet has buffers
    batch=16
    [ $model = mlp ] || batch=4
    keys="--model $model --ema 0.9 --max-steps 12 --batch-size $batch --eval-every 1 --threads 1"
    train $model.whole $keys -n 2
    train $model.parts $keys -n 2 --checkpoint-every 5 --keep-checkpoints 0
    same_ema "checkpoints" $model.whole $model.parts
    train $model.again $keys -n 2 --resume $model.parts/checkpoints/step-00000005
    same_ema "resumed" $model.whole $model.again
    train $model.zero $keys -n 2 --zero 1 --resume $model.parts/checkpoints/step-00000005
    same_ema "resumed with --zero 1" $model.whole $model.zero
    train $model.alone $keys --zero 3
    train $model.alone.plain $keys
    same_ema "--zero 3 on one rank" $model.alone.plain $model.alone
    train $model.one $keys --shards 2
    train $model.two $keys --shards 2 -n 2 --zero 1 --checkpoint-every 5
    same_ema "--shards on one rank and two" $model.one $model.two
    train $model.rest $keys --shards 2 --resume $model.two/checkpoints/step-00000010
    same_ema "--shards, resumed" $model.one $model.rest
    # The model's own weights are those of a run without an average.
    train $model.plain ${keys/--ema 0.9/} -n 2
    same $model.plain $model.whole
    [ "$(field $model.plain/summary.json ema_digest)" = null ] && [ ! -e $model.plain/ema.safetensors ] || fail "an average that nobody wanted"
    # The run's evaluation is the average's, which eval takes by default.
    loss() { sed -n 's/.*  loss \([0-9.]*\)$/\1/p' "$1.out"; }
    for weights in "" "--weights ema" "--weights model"; do
        name=$model.eval${weights##* }
        timeout 120 "$TUTTI" eval $model.whole $weights >$name.out 2>&1 || { cat $name.out; fail "eval $weights"; }
    done
    printf '%.4f' "$(field $model.whole/metrics.jsonl val_loss)" >expected
    [ "$(loss $model.eval)" = "$(cat expected)" ] && [ "$(loss $model.evalema)" = "$(cat expected)" ] ||
        { cat $model.eval.out; fail "eval of the average: $(loss $model.eval), in training $(cat expected)"; }
    [ "$(loss $model.evalmodel)" != "$(cat expected)" ] || fail "--weights model"
    says $model.eval 'checkpoints/step-00000012/ema.safetensors'
    says $model.evalmodel 'checkpoints/step-00000012/model.safetensors'
done

# ---- Its file is one of weights
"$TUTTI" predict mlp.whole --out average.csv >out 2>&1 && "$TUTTI" predict mlp.whole/ema.safetensors --out file.csv >out 2>&1 || { cat out; fail "predict"; }
"$TUTTI" predict mlp.whole --weights model --out model.csv >out 2>&1 || { cat out; fail "predict --weights model"; }
cmp average.csv file.csv || fail "predict: the run's average and the file's"
! cmp -s average.csv model.csv || fail "predict --weights model is the average"
cmp mlp.whole/ema.safetensors mlp.whole/checkpoints/latest/ema.safetensors || fail "the average in the run folder and in its last checkpoint"
"$TUTTI" checkpoint export mlp.whole/ema.safetensors average.pt >out 2>&1 || { cat out; fail "export"; }
"$TUTTI" predict average.pt --model mlp --data digits --out exported.csv >out 2>&1 || { cat out; fail "predict of the export"; }
cmp average.csv exported.csv || fail "the exported average"
train begun --model mlp --init mlp.whole/ema.safetensors --max-steps 1
says begun 'init: 4 of 4 tensors from mlp.whole/ema.safetensors'

# ---- Digests
"$TUTTI" checkpoint verify mlp.whole >out || { cat out; fail "verify"; }
grep -q 'intact .*step-00000012/ema.safetensors' out && grep -q 'intact .*mlp.whole/ema.safetensors' out || { cat out; fail "verify leaves it out"; }
cp -r mlp.parts damaged
cp mlp.one/ema.safetensors damaged/checkpoints/step-00000010/ # intact, but another
refused 1 "DAMAGED  damaged/checkpoints/step-00000010/ema.safetensors" "$TUTTI" checkpoint verify damaged
refused 1 "ema.safetensors is another file than the one that was written with state.json beside it" "$TUTTI" train --model mlp --ema 0.9 --max-steps 12 --batch-size 16 --run-dir other -n 2 --resume damaged/checkpoints/step-00000010
rm damaged/checkpoints/step-00000012/ema.safetensors
refused 1 "damaged/checkpoints/step-00000012/ema.safetensors is missing" "$TUTTI" checkpoint verify damaged
# The run's own evaluations were of the average: eval and predict do not take other weights silently.
for command in eval "predict --out gone.csv"; do
    refused 1 "damaged has no ema.safetensors, although its run averages weights (--ema): was it removed? --weights model" "$TUTTI" $command damaged
    refused 1 "damaged/checkpoints/step-00000012 has no ema.safetensors, although" "$TUTTI" $command damaged/checkpoints/step-00000012 --weights ema
done
"$TUTTI" eval damaged --weights model >out 2>&1 || { cat out; fail "the weights themselves are there"; }
# Latest first: 12 lacks it, 10 has another; 5 is left.
rm damaged/summary.json
train damaged --model mlp --ema 0.9 --max-steps 12 --batch-size 16 --eval-every 1 --threads 1 -n 2 --resume auto
same_ema "resumed from the last intact one" mlp.whole damaged
says damaged 'resumed from .*step-00000005'

# ---- Wrong use
refused 2 'ema: with 1 the average never changes; expected a decay below 1' "$TUTTI" train --ema 1
refused 2 'ema: 2 is out of range; expected 0 to 1' "$TUTTI" train --ema 2
refused 2 'ema: the run of mlp.parts/checkpoints/step-00000005 has 0.9' "$TUTTI" train --model mlp --max-steps 12 --batch-size 16 --ema 0.99 -n 2 --run-dir other --resume mlp.parts/checkpoints/step-00000005
refused 1 '--weights ema: mlp.plain has no ema.safetensors' "$TUTTI" eval mlp.plain --weights ema
refused 2 '--weights is "average", expected ema or model' "$TUTTI" eval mlp.whole --weights average
