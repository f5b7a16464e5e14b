# train_tasks.sh -- segmentation, regression and multi_label: they learn, their figures are right and the same for any number of ranks,
# eval and predict have them, and runs obey the laws: shards, exact resume, ZeRO-1; wrong combinations.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
evals() { sed -n 's/.*"eval": {\(.*\), "time_s".*/\1/p' "$1/metrics.jsonl"; } # without the time
laws() { # NAME KEYS...: shards on one rank and two, resumed; ZeRO-1
    local name=$1
    shift
    train "$name.one" "$@" --shards 2 --checkpoint-every 4 --keep-checkpoints 0
    train "$name.two" "$@" --shards 2 -n 2
    same "$name.one" "$name.two"
    [ "$(evals "$name.one")" = "$(evals "$name.two")" ] || { evals "$name.one"; evals "$name.two"; fail "$name: evaluations by one rank and two"; }
    train "$name.again" "$@" --shards 2 --resume "$name.one/checkpoints/step-00000004"
    same "$name.one" "$name.again"
    [ "$(evals "$name.one" | tail -1)" = "$(evals "$name.again" | tail -1)" ] || fail "$name: the evaluation of a resumed run"
    train "$name.plain" "$@" -n 2
    train "$name.zero" "$@" -n 2 --zero 1
    same "$name.plain" "$name.zero"
}
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }' || fail "$1 is not above $2: $3"; }

# ---- Segmentation: bright squares of two sizes on a dark ground, whose class is their size; a row that does not count
cat >squares.c <<'END'
#include <stdlib.h>
#include <tutti/tutti.h>
enum { SIDE = 16 };
static tutti_status squares_open(void **self_p, const tutti_dataset_source *source, tutti_dataset_info *info)
{
    static const tutti_field fields[] = {
        {.name = "x", .dtype = TUTTI_U8, .shape = {3, {1, SIDE, SIDE}}},
        {.name = "y", .dtype = TUTTI_I64, .shape = {2, {SIDE, SIDE}}, .moves = true, .fill = -100}};
    *self_p = source->train ? "" : NULL;
    info->count = source->train ? 64 : 23;
    info->classes = 3;
    info->fields = fields;
    info->n_fields = 2;
    return TUTTI_OK;
}
static tutti_status squares_read(const void *self, size_t index, const uint64_t *chance, void *const *arrays)
{
    (void)chance;
    const int i = (int)index + (self ? 0 : 1000), size = i % 2 ? 8 : 4, top = i * 7 % 8, left = i * 5 % 8;
    for (int k = 0; k < SIDE * SIDE; k++) {
        const int row = k / SIDE, column = k % SIDE;
        const int in = row >= top && row < top + size && column >= left && column < left + size;
        ((uint8_t *)arrays[0])[k] = (uint8_t)((i * 31 + k * 17) % 60 + in * 150);
        ((int64_t *)arrays[1])[k] = row == SIDE - 1 ? -100 : in ? i % 2 + 1 : 0;
    }
    return TUTTI_OK;
}
static const tutti_dataset_format squares = {.name = "squares", .no_folder = true, .open = squares_open, .read_arrays = squares_read};
TUTTI_SHARED_DATA(squares);
END
"$c" -Wall -Wextra -fPIC -shared -I"$SOURCE_DIR/include" -o squares.so squares.c || fail "squares.c does not compile"
unet="--data ./squares.so --model unet --width 8 --layers 2 --batch-size 8 --lr 0.05 --threads 1"
laws segmentation $unet --task segmentation --epochs 2
laws moved $unet --augment --epochs 2
[ "$(digest moved.one)" != "$(digest segmentation.one)" ] || fail "augment does not move images"
train seg $unet --epochs 20
above "$(field seg/summary.json val_iou)" 0.7 "IoU"
above "$(field seg/summary.json val_accuracy)" 0.9 "pixel accuracy"
says seg '^epoch 20/20  test loss .*  test accuracy .* %  IoU 0\.'
grep -q '"confusion": {"classes": \["0", "1", "2"\]' seg/summary.json || fail "summary.json has no confusion matrix"
"$TUTTI" report seg --out seg.html >report.out 2>&1 && grep -q 'Confusion matrix of' seg.html && grep -q 'test IoU' seg.html || { cat report.out; fail "the report"; }
"$TUTTI" eval -n 2 seg --data ./squares.so --confusion --json eval.json >eval.out 2>&1 || { cat eval.out; fail "eval of masks"; }
[ "$(field eval.json task)" = segmentation ] && field eval.json iou >iou.eval && field seg/summary.json val_iou >iou.run || fail "eval.json"
close iou.eval iou.run 1e-8
grep -q '(.* of 5520 pixels)' eval.out || { cat eval.out; fail "23 masks of 16 x 16 without the last row are 5520 pixels"; }
"$TUTTI" predict -n 2 seg --data ./squares.so --out classes.safetensors >predict.out 2>&1 || { cat predict.out; fail "predict of masks"; }
"$TUTTI" predict seg --data ./squares.so --out logits.safetensors --format logits >predict.out 2>&1 || { cat predict.out; fail "predict of logits"; }
head -c 400 classes.safetensors | tr ',' '\n' | grep -q logits && fail "logits that nobody asked for"
for file in classes logits; do
    head -c 600 $file.safetensors | grep -aq '"predicted":{"dtype":"I64","shape":\[23,16,16\]' || fail "$file: $(head -c 600 $file.safetensors)"
done
head -c 600 logits.safetensors | grep -aq '"logits":{"dtype":"F32","shape":\[23,3,16,16\]' || fail "shape of logits"

# ---- Regression: sums of two columns, and one that is far from 0
mkdir t
for part in train test; do
    awk -v n=$([ $part = train ] && echo 240 || echo 61) -v seed=$part 'BEGIN {
        srand(length(seed)); print "a,b,s,m,p,q"
        for (i = 0; i < n; i++) { a = rand(); b = rand(); printf "%.6f,%.6f,%.6f,%.6f,%d,%d\n", a, b, a + b, 3000 + a - b, (a > 0.5), (a + b > 1) }
    }' >t/$part.csv
done
csv="--data csv --data-dir t --features a,b --model mlp --lr 0.05 --threads 1"
laws regression $csv --target s,m --loss huber --epochs 2
"$TUTTI" eval regression.one --json two.json >eval.out 2>&1 && grep -q '^  s  *[0-9]' eval.out && grep -q '^  m  *[0-9]' eval.out &&
    grep -q '"name": "m"' two.json || { cat eval.out; fail "eval does not name the outputs"; }
"$TUTTI" data show --target s,m csv:t/train >show.out && grep -q '^columns of x  *a  *' show.out && grep -q '^columns of y  *s  *' show.out ||
    { cat show.out; fail "data show does not name the columns"; }
train sums $csv --target s --epochs 10 --momentum 0.5
above "$(field sums/summary.json val_r2)" 0.8 R2
[ "$(field sums/summary.json val_accuracy)" = null ] || fail "a regression has an accuracy"
"$TUTTI" predict sums --out sums.csv >predict.out 2>&1 || fail "predict of numbers"
# The same figures, computed from the predictions.
awk -F, 'NR > 1 { d = $3 - $2; a += d < 0 ? -d : d; q += d * d; s += $2; ss += $2 * $2; n++ }
    END { printf "%.6f\n%.6f\n%.6f\n", a / n, sqrt(q / n), 1 - q / (ss - s * s / n) }' sums.csv >figures.csv
for key in mae rmse r2; do field sums/summary.json val_$key; done >figures.run
close figures.csv figures.run 2e-5
for loss in mse l1 smooth_l1 huber; do # the loss of an evaluation is that of a step: both, of the same samples and weights
    train step.$loss $csv --data-dir t --target s --loss $loss --epochs 1 --lr 0 --batch-size 240
    "$TUTTI" eval step.$loss --split train --json step.json >step.out 2>&1 || { cat step.out; fail "eval of $loss"; }
    field step.json loss >step.eval
    field step.$loss/summary.json train_loss >step.run
    close step.eval step.run 1e-5
done

# ---- multi_label: two labels that apply or do not
laws labels $csv --target p,q --task multi_label --epochs 2
train both $csv --target p,q --task multi_label --epochs 15 --lr 0.2
above "$(field both/summary.json val_f1)" 0.85 "F1 of labels"
above "$(field both/summary.json val_accuracy)" 0.7 "samples with both labels right"
"$TUTTI" predict both --out both.csv --format probabilities >predict.out 2>&1 || { cat predict.out; fail "predict of labels"; }
[ "$(head -1 both.csv)" = index,target_0,target_1,predicted_0,predicted_1,probability_0,probability_1 ] || fail "columns: $(head -1 both.csv)"
awk -F, 'NR > 1 { for (k = 0; k < 2; k++) { t = $(2 + k); p = $(4 + k); if (p != ($(6 + k) > 0.5)) bad = 1; h[k] += (t && p); d[k] += t + p }
    right += ($2 == $4 && $3 == $5); n++ } END { printf "%.6f\n%.6f\n", right / n, (2 * h[0] / d[0] + 2 * h[1] / d[1]) / 2; exit bad }' both.csv >figures.csv ||
    fail "predictions are not those of the probabilities"
for key in accuracy f1; do field both/summary.json val_$key; done >figures.run
close figures.csv figures.run 2e-6
"$TUTTI" eval both >eval.out 2>&1 && grep -q '^  label  *samples  *correct  *recall  *precision  *F1' eval.out || { cat eval.out; fail "eval of labels"; }
grep -q '^  p  *[0-9]' eval.out && grep -q '^  q  *[0-9]' eval.out || { cat eval.out; fail "eval does not name the labels"; }

# ---- Weights of classes and labels: the loss of a step is that of the predictions, weighted; balanced is by the training rows
classes="$csv --target q --task classification"
laws weighted $classes --class-weights balanced --epochs 2
train unweighted $classes --epochs 2 --shards 2
[ "$(digest unweighted)" != "$(digest weighted.one)" ] || fail "class_weights change nothing"
counts=$(awk -F, 'NR > 1 { n[$6]++ } END { printf "%.9g,%.9g\n", 240 / (2 * n[0]), 240 / (2 * n[1]) }' t/train.csv)
for weights in 1,5 balanced; do
    train step.$weights $classes --class-weights $weights --epochs 1 --lr 0 --batch-size 240
    "$TUTTI" predict step.$weights --split train --out step.csv >step.out 2>&1 || { cat step.out; fail "predict"; }
    [ $weights = balanced ] && values=$counts || values=$weights
    awk -F, -v w="$values" 'BEGIN { split(w, of, ",") } NR > 1 { x = of[$2 + 1]; s += x * (log(exp($4) + exp($5)) - $(4 + $2)); n += x }
        END { printf "%.6f\n", s / n }' step.csv >step.expected
    field step.$weights/summary.json train_loss >step.run
    close step.expected step.run 2e-5
done
laws positive $csv --target p,q --task multi_label --pos-weight balanced --epochs 2
train step.positive $csv --target p,q --task multi_label --pos-weight 3,0.5 --epochs 1 --lr 0 --batch-size 240
"$TUTTI" predict step.positive --split train --out step.csv >step.out 2>&1 || { cat step.out; fail "predict"; }
awk -F, 'function bce(x, y, w) { return w * y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x)) }
    NR > 1 { s += bce($6, $2, 3) + bce($7, $3, 0.5); n += 2 } END { printf "%.6f\n", s / n }' step.csv >step.expected
field step.positive/summary.json train_loss >step.run
close step.expected step.run 2e-5
train seg.weighted $unet --class-weights balanced --epochs 1
train mixed $classes --class-weights 1,5 --mixup 0.2 --label-smoothing 0.1 --epochs 1
refused 2 'class_weights: 3 numbers for 2 classes; expected one for each, or balanced' "$TUTTI" train $classes --class-weights 1,2,3
refused 2 'class_weights: "0" is not a number above 0; expected balanced, or numbers above 0' "$TUTTI" train $classes --class-weights 1,0
refused 2 'class_weights: it is for loss=cross_entropy, and this is task=regression with loss=mse' "$TUTTI" train $csv --target s --class-weights 1,2
refused 2 'pos_weight: it is for loss=bce, and this is task=classification with loss=cross_entropy' "$TUTTI" train $classes --pos-weight 2
refused 2 'pos_weight: 3 numbers for 2 labels; expected one for each, or one for all' "$TUTTI" train $csv --target p,q --task multi_label --pos-weight 1,2,3

# ---- What does not fit
refused 2 'task: regression needs numbers to predict, and data=digits has a class for each sample; use task=classification' "$TUTTI" train --task regression
refused 2 'task: segmentation needs masks' "$TUTTI" train --task segmentation
refused 2 'loss: mse does not fit task=classification; expected cross_entropy' "$TUTTI" train --loss mse
refused 2 'loss: bce does not fit task=regression; expected mse, l1, smooth_l1 or huber' "$TUTTI" train $csv --target s --loss bce
refused 2 'loss: "bca" is not one of its values' "$TUTTI" train --loss bca
refused 2 'label_smoothing: it is for loss=cross_entropy, and this is task=regression with loss=mse' "$TUTTI" train $csv --target s --label-smoothing 0.1
refused 2 "task: for segmentation of these data the model's output must be [8,3,16,16], and mlp gives [8,3]" "$TUTTI" train --data ./squares.so --model mlp --batch-size 8
refused 2 "task: for classification of these data the model's output must be [8,10], and unet gives [8,10,8,8]" "$TUTTI" train --model unet --width 4 --batch-size 8
refused 2 'unet: 5 levels below images of 8 x 8' "$TUTTI" train --model unet --layers 5
grep -q '"reason"' refused.out && fail "a traceback"
code=0
"$TUTTI" train $csv --target s,m --task multi_label --run-dir no >no.out 2>&1 || code=$?
[ $code != 0 ] && grep -q 'a target of multi_label is .*, expected 0 to 1 for each label' no.out || { cat no.out; fail "targets that are no labels: code $code"; }
refused 2 '--out is p.csv, and data=squares has masks' "$TUTTI" predict seg --data ./squares.so --out p.csv
refused 2 '--confusion: the samples of data=csv have no classes (task=multi_label)' "$TUTTI" eval both --confusion
refused 2 '--format: the samples of data=csv have no classes (task=regression)' "$TUTTI" predict sums --out p.csv --format logits
refused 2 'loss: the run of' "$TUTTI" train $csv --target s,m --loss l1 --epochs 2 --shards 2 --run-dir no2 --resume regression.one/checkpoints/step-00000004
