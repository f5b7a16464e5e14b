/* tally.c -- counts correct predictions and adds losses.   SPDX-License-Identifier: MIT */
#include "train/session/tally.h"
#include "base/real.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES, CORRECT, TOP5, LOSS_WHOLE, LOSS_PART, LOSS_NAN, LOSS_INFINITE, HEAD };

#define PARTS 0x1p36

tutti_status tutti__tally_new(tutti__tally *t, size_t classes, bool confusion)
{
    *t = (tutti__tally){.classes = classes};
    t->n = HEAD + 3 * classes + (confusion ? classes * classes : 0);
    t->counts = tutti__alloc(t->n * sizeof *t->counts);
    if (!t->counts)
        return TUTTI_ERR_MEMORY;
    t->labels = t->counts + HEAD;
    t->predicted = t->labels + classes;
    t->hits = t->predicted + classes;
    t->confusion = confusion ? t->hits + classes : NULL;
    return TUTTI_OK;
}

void tutti__tally_free(tutti__tally *t)
{
    free(t->counts);
    *t = (tutti__tally){.classes = 0};
}

void tutti__tally_clear(tutti__tally *t)
{
    memset(t->counts, 0, t->n * sizeof *t->counts);
}

static size_t largest(const float *row, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++)
        if (row[k] > row[best])
            best = k;
    return best;
}

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
    const double whole = floor(loss);

    if (isnan(loss) || !(fabs(loss) < 0x1p40)) {
        t->counts[isnan(loss) ? LOSS_NAN : LOSS_INFINITE]++;
        return;
    }
    t->counts[LOSS_WHOLE] += (int64_t)whole;
    t->counts[LOSS_PART] += llround((loss - whole) * PARTS);
}

static double cross_entropy(const float *row, size_t n, size_t label, size_t best)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += tutti__exp((double)row[k] - (double)row[best]);
    return tutti__log(sum) + (double)row[best] - (double)row[label];
}

void tutti__tally_add_loss(tutti__tally *t, double mean, size_t n)
{
    add_loss(t, mean * (double)n);
    if (t->classes == 0)
        t->counts[SAMPLES] += (int64_t)n;
}

void tutti__tally_add_errors(tutti__tally *t, const float *outputs, const float *targets, size_t n,
                             size_t width)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (size_t k = i * width; k < (i + 1) * width; k++) {
            const double d = (double)outputs[k] - (double)targets[k];

            sum += d * d;
        }
        tutti__tally_add_loss(t, sum / (double)width, 1);
    }
}

tutti_status tutti__tally_add(tutti__tally *t, const float *logits, const int64_t *labels, size_t n,
                              bool own_loss)
{
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * t->classes;
        const size_t best = largest(row, t->classes), label = (size_t)labels[i];

        if (label >= t->classes)
            return tutti__fail(TUTTI_ERR_FORMAT, "a label is %lld, and the model has %zu classes",
                               (long long)labels[i], t->classes);
        t->counts[SAMPLES]++;
        t->counts[CORRECT] += best == label;
        t->counts[TOP5] += place_of(row, t->classes, label) < 5;
        t->labels[label]++;
        t->predicted[best]++;
        t->hits[label] += best == label;
        if (t->confusion)
            t->confusion[label * t->classes + best]++;
        if (!own_loss)
            add_loss(t, cross_entropy(row, t->classes, label, best));
    }
    return TUTTI_OK;
}

tutti_status tutti__tally_sum(tutti__tally *t, tutti_group *group)
{
    return tutti_all_reduce(group, TUTTI_BUF(t->counts, t->n, TUTTI_I64), TUTTI_SUM, NULL);
}

int64_t tutti__tally_samples(const tutti__tally *t)
{
    return t->counts[SAMPLES];
}

int64_t tutti__tally_correct(const tutti__tally *t)
{
    return t->counts[CORRECT];
}

int64_t tutti__tally_top5(const tutti__tally *t)
{
    return t->counts[TOP5];
}

double tutti__tally_accuracy(const tutti__tally *t)
{
    return t->classes > 0 ? (double)t->counts[CORRECT] / (double)t->counts[SAMPLES] : NAN;
}

double tutti__tally_loss(const tutti__tally *t)
{
    if (t->counts[LOSS_NAN] > 0)
        return NAN;
    if (t->counts[LOSS_INFINITE] > 0)
        return INFINITY;
    return ((double)t->counts[LOSS_WHOLE] + (double)t->counts[LOSS_PART] / PARTS) /
           (double)t->counts[SAMPLES];
}
