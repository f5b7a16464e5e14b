/* tally.c -- what an evaluation counts and adds.   SPDX-License-Identifier: MIT */
#include "train/session/tally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES, CORRECT, COUNTED, TOP5, UNKNOWN, LOSSES, LOSS, HEAD = LOSS + TUTTI__SUM_WORDS };
enum { MOST_OUTPUTS = 1024 };

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static size_t sums_of(const tutti_metric *metric)
{
    return metric->n_sums > 0 ? (size_t)metric->n_sums : 1;
}

static size_t own_words(const tutti_metric *own)
{
    size_t n = 0;

    for (; own && own->name; own++)
        n += sums_of(own) * TUTTI__SUM_WORDS;
    return n;
}

tutti_status tutti__tally_new(tutti__tally *t, const tutti__train_task *task,
                              const tutti_metric *own, bool confusion)
{
    const size_t classes = task->classes;
    const size_t outputs = task->kind->has_logits ? 0 : task->numbers;
    int64_t *p;

    *t = (tutti__tally){.task = task, .own = own};
    t->outputs = outputs <= MOST_OUTPUTS ? outputs : 1;
    t->n = HEAD + 3 * classes + (confusion ? classes * classes : 0) +
           t->outputs * TUTTI__ERROR_SUMS * TUTTI__SUM_WORDS + own_words(own);
    p = t->counts = tutti__alloc(t->n * sizeof *t->counts);
    t->row = tutti__alloc((classes + 1) * sizeof *t->row);
    if (!p || !t->row)
        return TUTTI_ERR_MEMORY;
    t->labels = p += HEAD;
    t->predicted = p += classes;
    t->hits = p += classes;
    p += classes;
    t->confusion = confusion ? p : NULL;
    t->errors = p += confusion ? classes * classes : 0;
    t->own_sums = p + t->outputs * TUTTI__ERROR_SUMS * TUTTI__SUM_WORDS;
    return TUTTI_OK;
}

void tutti__tally_free(tutti__tally *t)
{
    free(t->counts);
    free(t->row);
    *t = (tutti__tally){.task = NULL};
}

void tutti__tally_clear(tutti__tally *t)
{
    memset(t->counts, 0, t->n * sizeof *t->counts);
}

tutti_status tutti__tally_sum(tutti__tally *t, tutti_group *group)
{
    return tutti_all_reduce(group, TUTTI_BUF(t->counts, t->n, TUTTI_I64), TUTTI_SUM, NULL);
}

/* ---- Adding ----------------------------------------------------------------------------------------------------- */

/* The rank of `label` among the logits; ties in the order of classes. */
static size_t place_of(const float *row, size_t n, size_t label)
{
    size_t before = 0;

    for (size_t k = 0; k < n; k++)
        before += row[k] > row[label] || (row[k] == row[label] && k < label);
    return before;
}

static void add_loss(tutti__tally *t, double loss)
{
    tutti__sum_add(t->counts + LOSS, loss);
    t->counts[LOSSES]++;
}

/* The logits of position i, which are apart from each other in a mask's. */
static const float *row_of(const tutti__tally *t, const float *output, size_t i)
{
    const size_t classes = t->task->classes, positions = t->task->positions;

    if (positions == 1 || t->task->kind->is_language_modeling)
        return output + i * classes;
    for (size_t k = 0; k < classes; k++)
        t->row[k] = output[k * positions + i];
    return t->row;
}

void tutti__tally_add_classes(tutti__tally *t, const float *output, const void *target)
{
    const size_t classes = t->task->classes;
    const int64_t *labels = target;

    for (size_t i = 0; i < t->task->positions; i++) {
        const float *row = row_of(t, output, i);
        const int64_t best = tutti__task_class(row, classes, 1);
        const size_t label = (size_t)labels[i];

        if (labels[i] == TUTTI__IGNORED_LABEL)
            continue;
        t->counts[COUNTED]++;
        t->labels[label]++;
        if (best == TUTTI__NO_CLASS)
            continue;
        t->counts[CORRECT] += best == labels[i];
        if (classes > 5 && t->task->positions == 1)
            t->counts[TOP5] += place_of(row, classes, label) < 5;
        t->predicted[best]++;
        t->hits[label] += best == labels[i];
        if (t->confusion)
            t->confusion[label * classes + (size_t)best]++;
    }
}

void tutti__tally_add_labels(tutti__tally *t, const float *output, const void *target)
{
    bool all = true;

    for (size_t k = 0; k < t->task->numbers; k++) {
        const bool is = tutti__task_number(t->task, target, k) > 0.5, predicted = output[k] > 0;

        t->labels[k] += is;
        t->predicted[k] += predicted;
        t->hits[k] += is && predicted;
        all &= is == predicted && !isnan(output[k]);
    }
    t->counts[COUNTED]++;
    t->counts[CORRECT] += all;
}

void tutti__tally_add_errors(tutti__tally *t, const float *output, const void *target)
{
    t->counts[COUNTED]++;
    for (size_t k = 0; k < t->task->numbers; k++) {
        const double y = tutti__task_number(t->task, target, k), d = (double)output[k] - y;
        const size_t column = t->outputs > 1 ? k : 0;
        int64_t *sums = t->errors + column * TUTTI__ERROR_SUMS * TUTTI__SUM_WORDS;

        tutti__sum_add(sums + TUTTI__ERROR_ABS * TUTTI__SUM_WORDS, fabs(d));
        tutti__sum_add(sums + TUTTI__ERROR_SQUARE * TUTTI__SUM_WORDS, d * d);
        tutti__sum_add(sums + TUTTI__TARGET_SUM * TUTTI__SUM_WORDS, y);
        tutti__sum_add(sums + TUTTI__TARGET_SQUARE * TUTTI__SUM_WORDS, y * y);
    }
}

/* The task's loss of a sample: of each position, or the mean over its numbers. */
static void add_loss_of(tutti__tally *t, const float *output, const void *target)
{
    const tutti__train_task *task = t->task;
    const int64_t *labels = target;
    double sum = 0;

    for (size_t i = 0; i < task->positions; i++)
        if (labels[i] != TUTTI__IGNORED_LABEL)
            add_loss(t, tutti__loss_cross_entropy(row_of(t, output, i), task->classes,
                                                  (size_t)labels[i]));
    for (size_t k = 0; k < task->numbers; k++)
        sum += task->loss->element((double)output[k], tutti__task_number(task, target, k));
    if (task->numbers > 0)
        add_loss(t, sum / (double)task->numbers);
}

static tutti_array without_batch(tutti_array a, size_t i)
{
    const size_t bytes =
        (size_t)tutti_shape_count(a.shape) / (size_t)a.shape.d[0] * tutti_dtype_size(a.dtype);

    a.p = (char *)a.p + i * bytes;
    memmove(a.shape.d, a.shape.d + 1, (size_t)(a.shape.n - 1) * sizeof *a.shape.d);
    a.shape.n--;
    return a;
}

static void add_own(tutti__tally *t, tutti_array output, tutti_array target)
{
    int64_t *sums = t->own_sums;

    for (const tutti_metric *m = t->own; m && m->name; m++) {
        double values[TUTTI_MAX_METRIC_SUMS] = {0};

        m->add(m->self, output, target, values);
        for (size_t k = 0; k < sums_of(m); k++, sums += TUTTI__SUM_WORDS)
            tutti__sum_add(sums, values[k]);
    }
}

static tutti_status check_labels(const tutti__train_task *task, const int64_t *labels)
{
    for (size_t i = 0; i < task->positions; i++)
        if (labels[i] != TUTTI__IGNORED_LABEL &&
            (labels[i] < 0 || (size_t)labels[i] >= task->classes))
            return tutti__fail(TUTTI_ERR_FORMAT, "a label is %lld, and the model has %zu classes",
                               (long long)labels[i], task->classes);
    return TUTTI_OK;
}

static bool has_nan(const float *values, size_t n)
{
    bool has = false;

    for (size_t i = 0; i < n; i++)
        has |= isnan(values[i]);
    return has;
}

tutti_status tutti__tally_add(tutti__tally *t, tutti_array outputs, tutti_array y, size_t n,
                              bool with_loss)
{
    const size_t width = (size_t)tutti_shape_count(outputs.shape) / (size_t)outputs.shape.d[0];
    const bool fits = width == tutti__task_width(t->task);

    for (size_t i = 0; i < n; i++) {
        const tutti_array output = without_batch(outputs, i), target = without_batch(y, i);

        t->counts[SAMPLES]++;
        t->counts[UNKNOWN] += has_nan(output.p, width);
        add_own(t, output, target);
        if (!fits)
            continue;
        if (t->task->positions > 0)
            TUTTI_TRY(check_labels(t->task, target.p));
        t->task->kind->add(t, output.p, target.p);
        if (with_loss)
            add_loss_of(t, output.p, target.p);
    }
    return TUTTI_OK;
}

void tutti__tally_add_loss(tutti__tally *t, double mean, size_t n)
{
    tutti__sum_add(t->counts + LOSS, mean * (double)n);
    t->counts[LOSSES] += (int64_t)n;
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

int64_t tutti__tally_samples(const tutti__tally *t)
{
    return t->counts[SAMPLES];
}

int64_t tutti__tally_correct(const tutti__tally *t)
{
    return t->counts[CORRECT];
}

int64_t tutti__tally_counted(const tutti__tally *t)
{
    return t->counts[COUNTED];
}

int64_t tutti__tally_unknown(const tutti__tally *t)
{
    return t->counts[UNKNOWN];
}

double tutti__tally_f1(const tutti__tally *t, size_t class)
{
    return share(2 * t->hits[class], t->labels[class] + t->predicted[class]);
}

double tutti__tally_iou(const tutti__tally *t, size_t class)
{
    return share(t->hits[class], t->labels[class] + t->predicted[class] - t->hits[class]);
}

/* Over the classes for which it is known. */
static double mean_of(const tutti__tally *t, double (*of)(const tutti__tally *t, size_t class))
{
    double sum = 0;
    int64_t n = 0;

    for (size_t k = 0; k < t->task->classes; k++) {
        const double value = of(t, k);

        if (!isnan(value)) {
            sum += value;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : NAN;
}

static tutti__wide error_sum(const tutti__tally *t, size_t output, int which)
{
    return tutti__sum_value(t->errors +
                            (output * TUTTI__ERROR_SUMS + (size_t)which) * TUTTI__SUM_WORDS);
}

/* Numbers that one output's sums are of. */
static double numbers_of(const tutti__tally *t)
{
    return (double)t->counts[COUNTED] * (t->outputs > 1 ? 1 : (double)t->task->numbers);
}

/* The mean over one output, or all. */
static double mean_error(const tutti__tally *t, size_t output, int which)
{
    double sum = 0;

    if (output != SIZE_MAX)
        return error_sum(t, output, which).hi / numbers_of(t);
    for (size_t k = 0; k < t->outputs; k++)
        sum += error_sum(t, k, which).hi;
    return sum / (numbers_of(t) * (double)t->outputs);
}

double tutti__tally_mae(const tutti__tally *t, size_t output)
{
    return mean_error(t, output, TUTTI__ERROR_ABS);
}

double tutti__tally_rmse(const tutti__tally *t, size_t output)
{
    return sqrt(mean_error(t, output, TUTTI__ERROR_SQUARE));
}

double tutti__tally_r2(const tutti__tally *t, size_t output)
{
    double sum = 0, n = 0;

    if (output != SIZE_MAX) {
        const double count = numbers_of(t);
        const double spread = tutti__wide_spread(count, error_sum(t, output, TUTTI__TARGET_SQUARE),
                                                 error_sum(t, output, TUTTI__TARGET_SUM));

        return spread > 0 ? 1 - count * error_sum(t, output, TUTTI__ERROR_SQUARE).hi / spread : NAN;
    }
    for (size_t k = 0; k < t->outputs; k++) {
        const double value = tutti__tally_r2(t, k);

        if (!isnan(value)) {
            sum += value;
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

double tutti__tally_loss(const tutti__tally *t)
{
    return tutti__sum_value(t->counts + LOSS).hi / (double)t->counts[LOSSES];
}

void tutti__tally_score_classes(const tutti__tally *t, tutti__eval_metrics *scores)
{
    scores->val_accuracy = share(t->counts[CORRECT], t->counts[COUNTED]);
    if (t->task->classes > 5)
        scores->val_top5_accuracy = share(t->counts[TOP5], t->counts[COUNTED]);
    scores->val_f1 = mean_of(t, tutti__tally_f1);
}

void tutti__tally_score_masks(const tutti__tally *t, tutti__eval_metrics *scores)
{
    scores->val_accuracy = share(t->counts[CORRECT], t->counts[COUNTED]);
    scores->val_iou = mean_of(t, tutti__tally_iou);
}

void tutti__tally_score_tokens(const tutti__tally *t, tutti__eval_metrics *scores)
{
    scores->val_perplexity = exp(scores->val_loss);
    scores->val_accuracy = share(t->counts[CORRECT], t->counts[COUNTED]);
}

void tutti__tally_score_labels(const tutti__tally *t, tutti__eval_metrics *scores)
{
    scores->val_accuracy = share(t->counts[CORRECT], t->counts[COUNTED]);
    scores->val_f1 = mean_of(t, tutti__tally_f1);
}

void tutti__tally_score_errors(const tutti__tally *t, tutti__eval_metrics *scores)
{
    scores->val_mae = tutti__tally_mae(t, SIZE_MAX);
    scores->val_rmse = tutti__tally_rmse(t, SIZE_MAX);
    scores->val_r2 = tutti__tally_r2(t, SIZE_MAX);
}

static void score_own(const tutti__tally *t, tutti__eval_metrics *scores)
{
    const int64_t *words = t->own_sums;
    size_t i = 0;

    for (const tutti_metric *m = t->own; m && m->name; m++, i++) {
        double sums[TUTTI_MAX_METRIC_SUMS] = {0};

        for (size_t k = 0; k < sums_of(m); k++, words += TUTTI__SUM_WORDS)
            sums[k] = tutti__sum_value(words).hi;
        scores->own[i] = m->finish ? m->finish(m->self, sums, (uint64_t)t->counts[SAMPLES])
                                   : sums[0] / (double)t->counts[SAMPLES];
    }
}

void tutti__tally_scores(const tutti__tally *t, tutti__eval_metrics *scores)
{
    *scores = tutti__no_scores();
    scores->val_loss = tutti__tally_loss(t);
    if (t->counts[COUNTED] > 0)
        t->task->kind->score(t, scores);
    score_own(t, scores);
}
