/* loss_weights.c -- the keys class_weights and pos_weight: factors of a loss's terms.   SPDX-License-Identifier: MIT */
#include "train/session/loss_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

static tutti_status fail_number(const char *key, const char *text, size_t length)
{
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s: \"%.*s\" is not a number above 0; expected balanced, or numbers above 0 "
        "separated by commas",
        key, (int)(length < 60 ? length : 60), text);
}

/* A list of n numbers; `one` may stand for all. */
static tutti_status read_numbers(const char *key, const char *text, bool one, float *value,
                                 size_t n)
{
    const char *at = text;
    size_t got = 0;

    for (bool more = true; more; got++) {
        const size_t length = strcspn(at, ",");
        double number;
        char part[64];

        snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : 0), at);
        if (!tutti__parse_double(part, &number) || !(number > 0 && number <= 1e30))
            return fail_number(key, at, length);
        if (got < n)
            value[got] = (float)number;
        more = at[length] == ',';
        at += length + more;
    }
    for (size_t i = 1; one && got == 1 && i < n; i++)
        value[i] = value[0];
    return got == n || (one && got == 1)
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG, "%s: %zu number%s for %zu %s; expected one for each%s",
                             key, got, tutti__s(got), n, one ? "labels" : "classes",
                             one ? ", or one for all" : ", or balanced");
}

/* ---- By the training data ----------------------------------------------------------------------------------------- */

/* How often each class occurs, or each label applies. */
static void count(const tutti__train_task *task, tutti_dtype dtype, const void *y, double *counts)
{
    for (size_t i = 0; i < task->positions; i++) {
        const int64_t label =
            dtype == TUTTI_U8 ? (int64_t)((const uint8_t *)y)[i] : ((const int64_t *)y)[i];

        if (label >= 0 && (size_t)label < task->classes)
            counts[label]++;
    }
    for (size_t i = 0; i < task->numbers; i++)
        counts[i] +=
            dtype == TUTTI_U8 ? (double)((const uint8_t *)y)[i] : tutti__task_number(task, y, i);
}

static tutti_status read_all(const tutti__train_task *task, const tutti_dataset *data,
                             void *const *arrays, double *counts)
{
    int64_t label;

    for (size_t i = 0; i < data->info.count; i++)
        if (tutti__dataset_label(data, i, &label)) {
            counts[label]++;
        } else {
            TUTTI_TRY(tutti__dataset_read(data, i, NULL, arrays));
            count(task, data->fields[1].dtype, arrays[1], counts);
        }
    return TUTTI_OK;
}

static tutti_status count_all(const tutti__train_task *task, const tutti_dataset *data,
                              double *counts)
{
    void *arrays[TUTTI_MAX_FIELDS] = {NULL};
    tutti_status status = TUTTI_OK;

    for (int i = 0; i < data->info.n_fields && status == TUTTI_OK; i++)
        if (!(arrays[i] = tutti__alloc(data->bytes[i])))
            status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = read_all(task, data, arrays, counts);
    for (int i = 0; i < data->info.n_fields; i++)
        free(arrays[i]);
    return status;
}

/* scikit-learn's "balanced" of classes: n / (classes * count); of labels, how many samples do not have one for each that has. What
 * never occurs: 1. */
static tutti_status balance(const tutti__train_task *task, const tutti_dataset *data,
                            tutti__loss_weights *w)
{
    double *counts = tutti__alloc(w->n * sizeof *counts), all = 0;
    tutti_status status = counts ? count_all(task, data, counts) : TUTTI_ERR_MEMORY;

    for (size_t i = 0; status == TUTTI_OK && i < w->n; i++)
        all += counts[i];
    for (size_t i = 0; status == TUTTI_OK && i < w->n; i++) {
        const double without = (double)data->info.count - counts[i],
                     value =
                         task->numbers > 0 ? without / counts[i] : all / ((double)w->n * counts[i]);

        w->value[i] = counts[i] > 0 && value > 0 ? (float)value : 1;
    }
    free(counts);
    return status;
}

/* The key is for this task's loss, if it is given. */
static tutti_status check_key(const char *key, const char *text, const char *loss,
                              const tutti__train_task *task)
{
    if (!*text || (task->loss && strcmp(task->loss->name, loss) == 0))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: it is for loss=%s, and this is task=%s with %s%s; leave it out", key,
                       loss, task->kind->name, task->loss ? "loss=" : "the program's own loss",
                       task->loss ? task->loss->name : "");
}

tutti_status tutti__loss_weights_find(tutti__loss_weights *w, const tutti__train_task *task,
                                      const tutti__train_config *c, const tutti_dataset *train)
{
    const bool labels = c->pos_weight[0] != '\0';
    const char *text = labels ? c->pos_weight : c->class_weights;

    TUTTI_TRY(check_key("class_weights", c->class_weights, "cross_entropy", task));
    TUTTI_TRY(check_key("pos_weight", c->pos_weight, "bce", task));
    if (!*text)
        return TUTTI_OK;
    w->n = labels ? task->numbers : task->classes;
    w->value = tutti__alloc(w->n * sizeof *w->value);
    if (!w->value)
        return TUTTI_ERR_MEMORY;
    return strcmp(text, "balanced") == 0 ? balance(task, train, w)
                                         : read_numbers(labels ? "pos_weight" : "class_weights",
                                                        text, labels, w->value, w->n);
}
