/* losses.c -- the losses that the key `loss` names.   SPDX-License-Identifier: MIT */
#include "train/session/losses.h"

#include "base/base.h"
#include "base/real.h"

#include <math.h>
#include <string.h>

static tutti_tensor *cross_entropy(tutti_tensor *output, tutti_tensor *target,
                                   const tutti__loss_terms *terms)
{
    const tutti_cross_entropy_opts opts = {.label_smoothing = terms->label_smoothing,
                                           .weight = terms->weight};

    return tutti_cross_entropy_with(output, target, &opts);
}

static tutti_tensor *mse(tutti_tensor *output, tutti_tensor *target, const tutti__loss_terms *terms)
{
    (void)terms;
    return tutti_mse_loss(output, target);
}

static double mse_element(double output, double target)
{
    return (output - target) * (output - target);
}

static tutti_tensor *l1(tutti_tensor *output, tutti_tensor *target, const tutti__loss_terms *terms)
{
    (void)terms;
    return tutti_l1_loss(output, target, NULL);
}

static double l1_element(double output, double target)
{
    return fabs(output - target);
}

static tutti_tensor *smooth_l1(tutti_tensor *output, tutti_tensor *target,
                               const tutti__loss_terms *terms)
{
    (void)terms;
    return tutti_smooth_l1_loss(output, target, NULL);
}

static tutti_tensor *huber(tutti_tensor *output, tutti_tensor *target,
                           const tutti__loss_terms *terms)
{
    (void)terms;
    return tutti_huber_loss(output, target, NULL);
}

/* The same with the default beta and delta of 1. */
static double huber_element(double output, double target)
{
    const double d = fabs(output - target);

    return d < 1 ? d * d / 2 : d - 0.5;
}

static tutti_tensor *bce(tutti_tensor *output, tutti_tensor *target, const tutti__loss_terms *terms)
{
    const tutti_binary_cross_entropy_opts opts = {.pos_weight = terms->weight};

    return tutti_binary_cross_entropy_with_logits(output, target, &opts);
}

static double bce_element(double output, double target)
{
    const double log_1_plus = tutti__log(1 + tutti__exp(-fabs(output)));

    return (output > 0 ? output : 0) - output * target + log_1_plus;
}

static const tutti__loss_kind losses[] = {
    {"cross_entropy", cross_entropy, NULL},
    {"mse", mse, mse_element},
    {"l1", l1, l1_element},
    {"smooth_l1", smooth_l1, huber_element},
    {"huber", huber, huber_element},
    {"bce", bce, bce_element},
};

const tutti__loss_kind *tutti__loss_find(const char *name)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(losses); i++)
        if (strcmp(losses[i].name, name) == 0)
            return &losses[i];
    return NULL;
}

/* The sum of e^(logits - largest), in the order of the logits; exponentials in vectors, of the same bits. */
TUTTI__CLONES static double sum_of_powers(const float *logits, size_t n, double largest)
{
    enum { AT_ONCE = 256 };
    double powers[AT_ONCE], sum = 0;

    for (size_t at = 0; at < n; at += AT_ONCE) {
        const size_t some = n - at < AT_ONCE ? n - at : AT_ONCE;

        for (size_t k = 0; k < some; k++)
            powers[k] = tutti__exp_negative((double)logits[at + k] - largest);
        for (size_t k = 0; k < some; k++)
            sum += powers[k];
    }
    return sum;
}

double tutti__loss_cross_entropy(const float *logits, size_t n, size_t label)
{
    float largest = logits[0];

    for (size_t k = 1; k < n; k++)
        if (logits[k] > largest)
            largest = logits[k];
    return tutti__log(sum_of_powers(logits, n, (double)largest)) + (double)largest -
           (double)logits[label];
}
