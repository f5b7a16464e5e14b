# Tensor parallel runs of `tutti train`: the same samples and losses as with whole layers, what is refused, a killed rank.
# timeout: 420   breadth: 420   ALL: each division of each model.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
common="--max-steps 6 --log-every 1 --threads 1 --epochs 1 --progress plain"
text="$common --data shakespeare --batch-size 4 --context 32 --layers 2 --width 48 --heads 4 --eval-steps 3 --eval-samples 32 --lr 0.003"
gpt2="--model gpt2 $text --dropout 0.1"
llama="--model llama $text --kv-heads 2"
vit="--model vit $common --data digits --batch-size 8 --layers 2 --width 32 --heads 4 --clip-grad-norm 1"

# Losses of steps and evaluations, and norms: to rounding.
figures() { sed -n 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1\n\2/p; s/.*"val_loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
alike() { # DIR DIR TOLERANCE
    figures "$1" >"$1.figures"
    figures "$2" >"$2.figures"
    [ "$(wc -l <"$1.figures")" -ge 12 ] || fail "$1: $(wc -l <"$1.figures") figures"
    close "$1.figures" "$2.figures" "$3"
}
for model in gpt2 llama vit; do
    train $model.1 ${!model}
    train $model.2 -n 2 ${!model}
    train $model.t2 -n 2 --tensor 2 ${!model}
    train $model.4 -n 4 --tensor 2 ${!model} # two batches a step
    train $model.s2 -n 2 --tensor 2 --sequence-parallel ${!model}
    alike $model.1 $model.t2 2e-6
    alike $model.1 $model.s2 2e-6
    alike $model.2 $model.4 2e-6
done
says gpt2.t2 "^tensor 2: each layer is divided among 2 ranks; 1 batch of 4 a step$"
says gpt2.4 "^4 ranks (.*) = 2 data x 2 tensor, 8 samples a step, "
says gpt2.4 "^tensor 2: each layer is divided among 2 ranks; 2 batches of 4 a step$"
for run in gpt2.t2 llama.t2; do
    grep '"text"' ${run%.*}.1/metrics.jsonl | diff - <(grep '"text"' $run/metrics.jsonl) || fail "the texts after evaluations of $run"
done
[ "$(grep -c '"text"' gpt2.t2/metrics.jsonl)" -ge 1 ] || fail "no texts"
says gpt2.s2 "^no texts after evaluations: with sequence_parallel ranks divide tokens"
[ "$(field gpt2.1/summary.json parameters)" = "$(field gpt2.t2/summary.json parameters)" ] || fail "parameters of gpt2"

# On a device, whose memory the host cannot read.
for model in gpt2 ${ALL:+llama vit}; do
    train $model.strict -n 2 --tensor 2 --sequence-parallel ${!model} --device strict
    alike $model.1 $model.strict 2e-6
done
train gpt2.pieces -n 4 --tensor 2 --zero 3 $gpt2 --device strict
alike gpt2.2 gpt2.pieces 2e-6
says gpt2.pieces "^no texts after evaluations: with zero=3 each token would gather all weights"

# Beside other keys.
train plain $gpt2 --recompute --grad-accumulation 2 --ema 0.9
train divided -n 2 --tensor 2 $gpt2 --recompute --grad-accumulation 2 --ema 0.9
alike plain divided 2e-6
train plain_lora $gpt2 --lora-rank 4 --lr 0.01
train divided_lora -n 2 --tensor 2 $gpt2 --lora-rank 4 --lr 0.01
alike plain_lora divided_lora 2e-6
diff <(grep 'are trained' plain_lora.out) <(grep 'are trained' divided_lora.out) || fail "parameters that are trained, of the whole model"
train zero.one --zero 3 $gpt2 --max-steps 1
train range -n 2 --tensor 2 $gpt2 --lr-find --max-steps 20
[ -s range/lr_find.json ] || fail "no range test of divided layers"
says zero.one "^zero 3 divides nothing here: there is one rank$"
train zero -n 4 --tensor 2 --zero 1 $gpt2
alike gpt2.4 zero 2e-6
train plain_bf16 $gpt2 --amp bf16
train divided_bf16 -n 2 --tensor 2 $gpt2 --amp bf16
alike plain_bf16 divided_bf16 2e-2

# Sums of a fixed number of parts: one result for 1, 2 and 4 ranks; with two batches and ZeRO; resumed with another tensor.
parts="--tensor-parts 4 --optimizer adamw --clip-grad-norm 0.3 --dropout 0.1 --max-steps 4 --eval-steps 0 --checkpoint-every 2 --keep-checkpoints 0"
for model in ${ALL:+gpt2 vit} llama; do
    keys=$parts
    [ $model != llama ] || keys="$parts --kv-heads 4"
    for tokens in "" --sequence-parallel; do
        rm -rf parts.*
        for t in 1 2 4; do
            train parts.$t -n $t --tensor $t ${!model} $keys $tokens
        done
        same parts.1 parts.2
        same parts.1 parts.4
    done
    train parts.onto -n 4 --tensor 4 ${!model} $keys --sequence-parallel --resume parts.1/checkpoints/step-00000002
    same parts.1 parts.onto
done
train parts.data -n 2 $gpt2 $parts
train parts.zero -n 4 --tensor 2 --zero 3 $gpt2 $parts
same parts.data parts.zero
says parts.zero "^tensor 2, in 4 parts: each layer is divided among 2 ranks; 2 batches of 4 a step$"

# Checkpoints have whole tensors: resumed in the same layout with the same bits; in others, and evaluated by one rank.
steps="--schedule constant --warmup-steps 0 --checkpoint-every 3 --keep-checkpoints 0 --ema 0.9"
train all.2 -n 2 --tensor 2 $gpt2 $steps
train all.4 -n 4 --tensor 2 --zero 1 $gpt2 $steps
train all.1 $gpt2 $steps
train again.2 -n 2 --tensor 2 $gpt2 $steps --resume all.2/checkpoints/step-00000003
same all.2 again.2
train again.4 -n 4 --tensor 2 --zero 1 $gpt2 $steps --resume all.4/checkpoints/step-00000003
same all.4 again.4
train onto.1 $gpt2 $steps --resume all.2/checkpoints/step-00000003
train onto.4 -n 4 --tensor 4 $gpt2 $steps --resume all.1/checkpoints/step-00000003
for run in onto.1 onto.4; do
    losses $run >$run.loss
    losses all.1 | tail -n "$(wc -l <$run.loss)" >rest.loss
    close rest.loss $run.loss 2e-6
done
for zero in ${ALL:+2} 3; do # of each tensor rank's part, over the data ranks
    train zero.$zero -n 4 --tensor 2 --zero $zero $gpt2 $steps --ema 0
    same all.4 zero.$zero
done
train zero.sequence -n 4 --tensor 2 --zero 3 --sequence-parallel $gpt2 $steps --ema 0
train sequence -n 4 --tensor 2 --sequence-parallel $gpt2 $steps
same sequence zero.sequence
still="--max-steps 1 --lr 0 --weight-decay 0 --init all.2"
train init.1 $gpt2 $still
train init.4 -n 4 --tensor 2 $gpt2 $still --resume auto
same init.1 init.4
same init.1 all.2
timeout 60 "$TUTTI" eval all.2 --data shakespeare >eval.out 2>&1 || { cat eval.out && fail "eval of a divided run"; }
timeout 60 "$TUTTI" checkpoint verify all.2 >verify.out 2>&1 || { cat verify.out && fail "its checkpoints do not verify"; }
"$TUTTI" checkpoint export all.2 --out whole.safetensors >export.out 2>&1 || { cat export.out && fail "export"; }
train whole.1 $gpt2 $still --init whole.safetensors
same init.1 whole.1

# Evaluated, predicted and sampled from by ranks that have parts of the model.
near() { # FILE FILE: losses
    paste <(field "$1" loss) <(field "$2" loss) | awk '{ d = $1 - $2; exit !(d < 2e-6 * $1 && d > -2e-6 * $1) }' || fail "losses $(field "$1" loss) and $(field "$2" loss)"
}
"$TUTTI" eval all.2 --json eval.1 >eval.out 2>&1 || { cat eval.out; fail "eval"; }
for layout in ${ALL:+"-n 2 --tensor 2" "-n 3 --zero 3" "-n 2 --pipeline 2"} "-n 4 --tensor 2 --zero 3" "-n 4 --pipeline 2 --tensor 2"; do
    timeout 100 "$TUTTI" eval all.2 $layout --json eval.2 >eval.out 2>&1 || { cat eval.out; fail "eval $layout"; }
    near eval.1 eval.2
done
"$TUTTI" eval vit.1 --json eval.1 >/dev/null
"$TUTTI" predict vit.1 --out predict.1.csv >predict.out 2>&1 || { cat predict.out; fail "predict"; }
for layout in ${ALL:+"-n 2 --tensor 2" "-n 3 --zero 3"} "-n 4 --tensor 2"; do
    timeout 100 "$TUTTI" eval vit.1 $layout --json eval.2 >eval.out 2>&1 || { cat eval.out; fail "eval of vit $layout"; }
    near eval.1 eval.2
    timeout 100 "$TUTTI" predict vit.1 $layout --out predict.2.csv >predict.out 2>&1 || { cat predict.out; fail "predict $layout"; }
    diff <(cut -d, -f1,2 predict.1.csv) <(cut -d, -f1,2 predict.2.csv) >/dev/null || fail "predictions with $layout"
done
for layout in ${ALL:+"-n 2 --pipeline 2"} "-n 4 --pipeline 2"; do # the bits of one rank, for all rows of all rounds
    timeout 100 "$TUTTI" predict vit.1 $layout --batch-size 32 --out predict.2.csv >predict.out 2>&1 || { cat predict.out; fail "predict $layout"; }
    cmp predict.1.csv predict.2.csv || fail "predictions with $layout"
done
timeout 100 "$TUTTI" predict vit.1 -n 4 --pipeline 2 --tensor 2 --out predict.2.csv >predict.out 2>&1 || { cat predict.out; fail "predict of both"; }
diff <(cut -d, -f1,2 predict.1.csv) <(cut -d, -f1,2 predict.2.csv) >/dev/null || fail "predictions with both"
refused 2 "--tensor 2 on 3 ranks: 3 is not a multiple of 2" "$TUTTI" eval all.2 -n 3 --tensor 2
refused 2 "--tensor 2 divides a model among ranks, and there is one; expected 2 ranks, or a multiple: -n 2" "$TUTTI" eval all.2 --tensor 2
refused 2 "zero: 1 divides gradients and an optimizer's state, which are not needed here" "$TUTTI" eval all.2 -n 2 --zero 1
printf 'First Citizen:\n' >prompt
for run in all.2 llama.1; do
    how="--prompt-file prompt -n 60 --temperature 0.7 --samples 2 --seed 5"
    "$TUTTI" generate $run $how >text.1 || fail "generate from $run"
    timeout 100 "$TUTTI" generate $run $how --tensor 2 >text.2 2>text.err || { cat text.err; fail "generate from $run by two ranks"; }
    cmp text.1 text.2 || fail "another text of $run by two ranks"
    for stages in ${ALL:+3 4} 2; do # longer than the context
        timeout 100 "$TUTTI" generate $run $how --pipeline $stages >text.2 2>text.err || { cat text.err; fail "generate from $run in $stages stages"; }
        cmp text.1 text.2 || fail "another text of $run in $stages stages"
    done
done
timeout 100 "$TUTTI" generate all.2 --prompt - -n 60 --temperature 0.7 --samples 2 --seed 5 --tensor 4 <prompt >text.2 2>text.err || { cat text.err; fail "generate with a prompt of standard input"; }
"$TUTTI" generate all.2 $how >text.1
cmp text.1 text.2 || fail "another text by four ranks, with a prompt of standard input"
timeout 100 "$TUTTI" run -n 2 "$TUTTI" generate all.2 $how --tensor 2 >text.2 2>text.err || { cat text.err; fail "generate under a launcher"; }
grep -q 'First Citizen' text.2 || fail "no text under a launcher"
refused 2 "--tensor 2 on 3 ranks: all of them divide the model" "$TUTTI" run -n 3 "$TUTTI" generate all.2 --tensor 2
refused 2 "heads: gpt2: a layer has 4, which cannot be divided among 3 ranks" "$TUTTI" generate all.2 --tensor 3
refused 1 "there is no such file or folder" "$TUTTI" generate nothing --tensor 2

# Shares of the weights: the same text, of a checkpoint of shares, too, and with adapters.
"$TUTTI" generate all.2 $how >text.1
for ranks in ${ALL:+1 2} 3; do
    timeout 100 "$TUTTI" generate all.2 $how --zero 3 --ranks $ranks >text.3 2>text.err && cmp text.1 text.3 || { cat text.err text.3; fail "generate with --zero 3 on $ranks ranks"; }
done
timeout 100 "$TUTTI" run -n 2 "$TUTTI" generate all.2 $how --zero 3 >text.3 2>text.err && grep -q 'First Citizen' text.3 || { cat text.err; fail "generate with --zero 3 under a launcher"; }
refused 2 "--zero 3 divides the weights among ranks; add --ranks N" "$TUTTI" generate all.2 --zero 3
refused 2 "--zero 3 and --tensor both divide the model" "$TUTTI" generate all.2 --zero 3 --tensor 2
refused 2 "--ranks is for --zero 3" "$TUTTI" generate all.2 --ranks 2
refused 2 "--pipeline and --tensor both divide the model" "$TUTTI" generate all.2 --pipeline 2 --tensor 2
refused 2 "blocks, and 9 ranks with 1 stages each make 9" "$TUTTI" generate all.2 --pipeline 9
refused 1 "there is no such file or folder" "$TUTTI" generate nothing --pipeline 2
refused 2 '--zero is "2", expected 3' "$TUTTI" generate all.2 --zero 2 --ranks 2
refused 1 "there is no such file or folder" "$TUTTI" generate nothing --zero 3 --ranks 2

refused 2 "comm_hook: the matrices that powersgd approximates are divided" "$TUTTI" train -n 4 --tensor 2 $gpt2 --comm-hook powersgd
refused 2 "--tensor 3 on 4 ranks: 4 is not a multiple of 3; --tensor 1, 2 or 4" "$TUTTI" train -n 4 --tensor 3 $gpt2
refused 2 "heads: gpt2: a layer has 4, which cannot be divided among 3 ranks" "$TUTTI" train -n 3 --tensor 3 $gpt2
refused 2 "kv_heads: llama: a layer has 1, which cannot be divided among 2 ranks" "$TUTTI" train -n 2 --tensor 2 $llama --kv-heads 1
refused 2 "model mini_resnet has no plan by which its layers could be divided among ranks" "$TUTTI" train -n 2 --tensor 2
refused 2 "tensor: with shards any rank computes any shard alone" "$TUTTI" train -n 2 --tensor 2 --shards 2 $gpt2
refused 2 "sequence_parallel: it divides tokens among the ranks of a layer; add --tensor T" "$TUTTI" train -n 2 --sequence-parallel $gpt2
refused 2 "tensor_parts: it is 6; expected a power of two" "$TUTTI" train -n 2 --tensor 2 --tensor-parts 6 $gpt2
refused 2 "tensor_parts: 2 parts cannot be divided among the ranks of tensor=4" "$TUTTI" train -n 4 --tensor 4 --tensor-parts 2 $gpt2
refused 2 "heads: gpt2: a layer has 4, which cannot be divided among 8 parts" "$TUTTI" train -n 2 --tensor 2 --tensor-parts 8 $gpt2
refused 2 "tensor_parts: with sequence_parallel, adapters' gradients are not sums of 4 parts" "$TUTTI" train -n 2 --tensor 2 --tensor-parts 4 --sequence-parallel --lora-rank 2 $gpt2
refused 2 "tensor: with shards any rank computes any shard alone" "$TUTTI" train -n 2 --tensor-parts 2 --shards 2 $gpt2
refused 2 "lora_dropout: with tensor=2" "$TUTTI" train -n 2 --tensor 2 $gpt2 --lora-rank 4 --lora-dropout 0.1
refused 2 "divide_tokens: x is [1,1,48]: 1 tokens cannot be divided among 2 ranks" "$TUTTI" train -n 2 --tensor 2 --sequence-parallel $gpt2 --batch-size 1 --context 1

# A killed rank is named by all others, also by those that wait for it in a layer.
killed_is_named 3 -n 4 --tensor 2 $gpt2
# A rank is named as in the job, not as in its group of the mesh; a failed run does not ask for calls that its user cannot make.
small="--model gpt2 --data shakespeare --layers 2 --heads 2 --width 32 --context 16 --batch-size 4 --threads 1 --eval-every 0 --sample-tokens 0"
for layout in "-n 4 --tensor 2" "-n 2 --zero 3"; do
    code=0
    timeout 100 "$TUTTI" train --run-dir diverged $small $layout --max-steps 40 --optimizer sgd --lr 1000 --momentum 0.99 --schedule constant --warmup-epochs 0 >diverged.out 2>&1 || code=$?
    [ $code = 1 ] && grep -q 'has NaN or infinities on rank' diverged.out || { cat diverged.out; fail "exit code $code of a run that diverges"; }
    ! grep -q consolidate diverged.out || { cat diverged.out; fail "$layout: consolidate"; }
    sed -n 's/.*tutti train: rank \([0-9]*\): the gradient .* on rank \([0-9]*\) in step.*/\1 \2/p' diverged.out >named
    [ -s named ] && awk '$1 != $2 { exit 1 }' named || { cat diverged.out; fail "$layout: another rank is named"; }
    rm -rf diverged
done

# The space that is checked before the start is that of the whole model.
cat >space.sh <<'END'
mount -t tmpfs -o size=100k none space
for layout in "" "--tensor 2" "--pipeline 2" "--pipeline 4" "--zero 3"; do
    "$TUTTI" train --run-dir space/run $SMALL --layers 4 -n 4 $layout 2>&1 | grep -o 'files need .* MiB' || echo "not refused: $layout"
done
END
mkdir space
if unshare -rm mount -t tmpfs none space 2>mount.err; then
    SMALL=$small unshare -rm bash space.sh >space.out
    [ "$(sort -u space.out | wc -l)" = 1 ] && [ "$(wc -l <space.out)" = 5 ] || { cat space.out; fail "the space that is needed depends on the layout"; }
else
    echo "skipped: no small file system: $(cat mount.err)"
fi
echo "tensor parallel runs hold"
