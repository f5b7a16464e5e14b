# train_text.sh -- language models: they learn, loss, perplexity and accuracy are those of the logits, the rate is in tokens; runs obey the
# laws: shards, exact resume, ZeRO-1; eval has the figures, predict refuses.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
evals() { sed -n 's/.*"eval": {\(.*\), "time_s".*/\1/p' "$1/metrics.jsonl"; } # without the time

# Tokens of a rule with exceptions, and targets that do not count.
cat >rule.c <<'END'
#include <tutti/tutti.h>
enum { T = 12, V = 17 };
static tutti_status rule_open(void **self_p, const tutti_dataset_source *source, tutti_dataset_info *info)
{
    static const tutti_field fields[] = {{.name = "x", .dtype = TUTTI_I64, .shape = {1, {T}}},
                                         {.name = "y", .dtype = TUTTI_I64, .shape = {1, {T}}}};
    *self_p = source->train ? "" : NULL;
    info->count = source->train ? 96 : 25;
    info->classes = V;
    info->fields = fields;
    info->n_fields = 2;
    return TUTTI_OK;
}
static int token(int i)
{
    return i % 7 == 0 ? i / 7 % V : i * 5 % V;
}
static tutti_status rule_read(const void *self, size_t index, const uint64_t *chance, void *const *arrays)
{
    (void)chance;
    for (int k = 0; k < T; k++) {
        const int i = ((int)index + (self ? 0 : 500)) * T + k;
        ((int64_t *)arrays[0])[k] = token(i);
        ((int64_t *)arrays[1])[k] = index % 5 == 0 && k < 3 ? -100 : token(i + 1);
    }
    return TUTTI_OK;
}
static const tutti_dataset_format rule = {.name = "rule", .no_folder = true, .open = rule_open, .read_arrays = rule_read};
TUTTI_SHARED_DATA(rule);
END
cat >pairs.c <<'END'
#include <tutti/tutti.h>
typedef struct pairs { tutti_module base; tutti_embedding table; tutti_linear head; } pairs;
static void pairs_init(tutti_module *m, const tutti_model_opts *opts)
{
    tutti_embedding_init(&((pairs *)m)->table, m, "table", opts->classes, 16, false);
    tutti_linear_init(&((pairs *)m)->head, m, "head", 16, opts->classes);
}
static tutti_tensor *pairs_forward(tutti_module *m, tutti_tensor *x)
{
    return tutti_linear_forward(&((pairs *)m)->head, tutti_embedding_forward(&((pairs *)m)->table, x));
}
static const tutti_model_kind kind = {.name = "pairs", .bytes = sizeof(pairs), .init = pairs_init, .forward = pairs_forward};
TUTTI_SHARED_MODEL(kind);
END
for part in rule pairs; do
    "$c" -Wall -Wextra -fPIC -shared -I"$SOURCE_DIR/include" -o $part.so $part.c || fail "$part.c does not compile"
done
parts="--data ./rule.so --model ./pairs.so --threads 1"
text="$parts --batch-size 8 --optimizer adamw --lr 0.03 --weight-decay 0"

# ---- It learns, and its figures
train learnt $text --epochs 12 --log-every 5 --checkpoint-best val_perplexity
loss=$(field learnt/summary.json val_loss)
awk -v l="$loss" 'BEGIN { exit !(l < 1.5) }' || fail "the loss is $loss; of guesses it is 2.83"
field learnt/summary.json val_perplexity >perplexity
awk -v l="$loss" 'BEGIN { printf "%.9f\n", exp(l) }' >expected
close perplexity expected 1e-6
says learnt '^epoch 12/12  test loss .*  test perplexity .*  accuracy .* %$'
says learnt '^ *tokens/s '
grep -q '^{"step": 5, .*"images_per_s": [0-9.]*, "tokens_per_s": [0-9.]*, ' learnt/metrics.jsonl || fail "no tokens_per_s: $(head -2 learnt/metrics.jsonl)"
sed -n 's/^{"step".*"images_per_s": \([0-9.]*\), "tokens_per_s": \([0-9.]*\),.*/\1 \2/p' learnt/metrics.jsonl |
    awk '{ d = $2 / $1 - 12; if (d > 1e-6 || d < -1e-6) exit 1 } END { exit NR == 0 }' || fail "12 tokens are a sample"
[ "$(field learnt/summary.json val_f1)" = "" ] || fail "a language model has an F1"
grep -q confusion learnt/summary.json && fail "a language model has a confusion matrix"
[ -e learnt/checkpoints/best ] || fail "no best checkpoint by perplexity"
# The loss is the mean over the targets that count: that of a training step of the same samples and weights.
train step $parts --batch-size 96 --lr 0 --epochs 1
"$TUTTI" eval step --split train --model ./pairs.so --data ./rule.so --json step.json >step.out 2>&1 || { cat step.out; fail "eval"; }
field step.json loss >step.eval
field step/summary.json train_loss >step.run
close step.eval step.run 1e-6
grep -q '(.* of 1092 tokens)' step.out || { cat step.out; fail "96 samples of 12 tokens without 20 of 3 are 1092"; }
[ "$(field step.json task)" = language_modeling ] || fail "the task in step.json"
field step.json perplexity >step.perplexity
awk '{ printf "%.9f\n", exp($1) }' step.eval >expected
close step.perplexity expected 1e-9
"$TUTTI" eval -n 2 learnt --model ./pairs.so --data ./rule.so --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval by two"; }
[ "$(field eval.json loss | cut -c 1-8)" = "$(echo "$loss" | cut -c 1-8)" ] || fail "eval: $(field eval.json loss), the run: $loss"
grep -q '"recall"' eval.json && fail "a table of 17 tokens"
awk -v a="$(field eval.json tokens_per_s)" -v b="$(field eval.json images_per_s)" 'BEGIN { exit !(a > 0 && a / b > 11.999 && a / b < 12.001) }' || fail "tokens_per_s: $(cat eval.json)"
"$TUTTI" report learnt --out report.html >report.out 2>&1 && grep -q 'test perplexity' report.html && grep -q 'tokens/s' report.html || { cat report.out; fail "the report"; }
train other $text --epochs 1 --amp bf16 --tensorboard true --prometheus other.prom
grep -q mfu other/metrics.jsonl && fail "the peak of bf16 is not known"
grep -q tutti_train_tokens_per_s other.prom && grep -q perplexity other.prom || { cat other.prom; fail "prometheus"; }
grep -aq throughput/tokens_per_s other/tensorboard/* && grep -aq perplexity/validation other/tensorboard/* || fail "TensorBoard"

# ---- The laws
text="$text --epochs 2"
train one $text --shards 2 --checkpoint-every 4 --keep-checkpoints 0
train two $text --shards 2 -n 2
same one two
[ "$(evals one)" = "$(evals two)" ] || { evals one; evals two; fail "evaluations by one rank and two"; }
train again $text --shards 2 --resume one/checkpoints/step-00000004
same one again
[ "$(evals one | tail -1)" = "$(evals again | tail -1)" ] || fail "the evaluation of a resumed run"
train plain $text -n 2
train zero $text -n 2 --zero 1
same plain zero

# ---- What is refused
refused 2 'task: language_modeling needs tokens, each with the next one as its target, and data=digits has a class for each sample; use task=classification, or other data' \
    "$TUTTI" train --task language_modeling
refused 2 'loss: mse does not fit task=language_modeling; expected cross_entropy' "$TUTTI" train $text --loss mse
refused 2 "predict: $PWD/learnt is a language model, whose output is a distribution over 17 tokens at each position; for text: tutti generate" \
    "$TUTTI" predict "$PWD/learnt" --model ./pairs.so --data ./rule.so --out logits.safetensors

# ---- Of epochs and max_steps the first ends the run, and a line names both: 12 steps are an epoch
train ended $text --max-steps 50
says ended '^epochs 2 ends the run after 24 steps, before max_steps 50$'
[ "$(field ended/summary.json steps)" = 24 ] || fail "$(field ended/summary.json steps) steps"
train ended.too $text --max-steps 5
says ended.too '^max_steps 5 ends the run, before the 24 steps of epochs 2$'
train whole $text --max-steps 24
mute whole 'ends the run'
train plain.end $parts --batch-size 8 --max-steps 2 # epochs as they are
mute plain.end 'ends the run'

# ---- Evaluations by steps, of a fixed part of the test set; a resumed run makes the same ones
steps="$text --eval-steps 5 --eval-samples 7 --early-stopping 50 --checkpoint-best val_loss"
train parts $steps --checkpoint-every 4 --keep-checkpoints 0
[ "$(grep -c '"eval"' parts/metrics.jsonl)" -eq 5 ] && grep -q '"val_loss".*"step": 5}' parts/metrics.jsonl || fail "24 steps, evaluated after 5, 10, 15, 20 and 24: $(grep eval parts/metrics.jsonl)"
train all $text --eval-steps 5
[ "$(evals parts | head -1)" != "$(evals all | head -1)" ] || fail "7 samples are as good as 25"
for step in 04 08 12 20; do
    train parts.$step $steps --resume parts/checkpoints/step-000000$step
    same parts parts.$step
    grep -q "$(evals parts.$step | tail -1)" parts/metrics.jsonl && [ "$(field parts/summary.json best_step)" = "$(field parts.$step/summary.json best_step)" ] || fail "resumed after $step"
done
train parts.two $steps -n 2 --batch-size 4
[ "$(field parts/summary.json steps)" = "$(field parts.two/summary.json steps)" ] || fail "two ranks"
