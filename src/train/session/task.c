/* task.c -- which task a run has, and what follows for its model's output.   SPDX-License-Identifier: MIT */
#include "train/session/task.h"

#include "data/dataset.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static unsigned targets_of(const tutti__train_task *task, const tutti_dataset *data)
{
    const int classes = tutti_dataset_describe(data).classes;

    if (classes == 0)
        return TUTTI__TARGET_NUMBERS;
    if (task->target.n == 0)
        return TUTTI__TARGET_LABEL;
    return TUTTI__TARGET_MASK | (classes == 2 ? TUTTI__TARGET_BINARY : 0) |
           (tutti__dataset_has_tokens(data) ? TUTTI__TARGET_TOKENS : 0);
}

static tutti_status find_kind(tutti__train_task *task, const tutti__train_config *c,
                              unsigned targets)
{
    const tutti__task_kind *suitable = NULL, *named = NULL;

    for (size_t i = (size_t)TUTTI__TASKS; i-- > 0;) {
        if (tutti__task_kinds[i].targets & targets)
            suitable = &tutti__task_kinds[i];
        if (strcmp(tutti__task_kinds[i].name, c->task) == 0)
            named = &tutti__task_kinds[i];
    }
    task->kind = named ? named : suitable;
    if (task->kind->targets & targets)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "task: %s needs %s, and data=%s has %s; use task=%s, or other data",
                       named->name, named->needs, c->data, suitable->needs, suitable->name);
}

static tutti_status find_loss(tutti__train_task *task, const tutti__train_config *c,
                              const tutti__parts *parts)
{
    const bool is_auto = strcmp(c->loss, "auto") == 0;
    const char *losses = task->kind->losses;
    char text[128];

    if (parts->own.loss)
        return is_auto ? TUTTI_OK
                       : tutti__fail(TUTTI_ERR_ARG,
                                     "loss: this program brings its own; leave loss out");
    if (!is_auto && !tutti__word_in(losses, c->loss))
        return tutti__fail(TUTTI_ERR_ARG, "loss: %s does not fit task=%s; expected %s", c->loss,
                           task->kind->name, tutti__words_text(losses, " or ", text, sizeof text));
    snprintf(text, sizeof text, "%.*s", (int)strcspn(losses, " "), losses);
    task->loss = tutti__loss_find(is_auto ? text : c->loss);
    if (c->label_smoothing > 0 && task->loss->element)
        return tutti__fail(TUTTI_ERR_ARG,
                           "label_smoothing: it is for loss=cross_entropy, and this is task=%s "
                           "with loss=%s; leave it out",
                           task->kind->name, task->loss->name);
    return TUTTI_OK;
}

/* y of one sample, without the batch's dimension. */
static tutti_shape target_shape(const tutti_dataset *data)
{
    tutti_shape shape = tutti__dataset_array(data, 1, 1, 0).shape;

    memmove(shape.d, shape.d + 1, (size_t)(shape.n - 1) * sizeof *shape.d);
    shape.n--;
    return shape;
}

const char *tutti__task_of_table(const tutti__train_config *config)
{
    for (size_t i = 0; i < (size_t)TUTTI__TASKS; i++)
        if (strcmp(tutti__task_kinds[i].name, config->task) == 0)
            return tutti__task_kinds[i].targets & TUTTI__TARGET_NUMBERS ? "regression"
                                                                        : "classification";
    return NULL;
}

tutti_status tutti__task_find(tutti__train_task *task, const tutti__train_config *config,
                              const tutti__parts *parts, const tutti_dataset *data)
{
    size_t count;

    *task = (tutti__train_task){.target = target_shape(data)};
    count = (size_t)tutti_shape_count(task->target);
    task->classes = (size_t)tutti_dataset_describe(data).classes;
    TUTTI_TRY(find_kind(task, config, targets_of(task, data)));
    if (task->kind->is_language_modeling && (size_t)config->vocab > task->classes)
        task->classes = (size_t)config->vocab;
    if (task->kind->targets & TUTTI__TARGET_NUMBERS) {
        task->integers = task->classes > 0;
        task->classes = task->kind->has_logits ? count : 0;
        task->numbers = count;
    } else
        task->positions = count;
    return find_loss(task, config, parts);
}

size_t tutti__task_width(const tutti__train_task *task)
{
    return task->numbers > 0 ? task->numbers : task->classes * task->positions;
}

tutti_shape tutti__task_output(const tutti__train_task *task, int64_t n)
{
    tutti_shape shape = TUTTI_SHAPE(n);

    if (task->positions > 0 && !task->kind->is_language_modeling)
        shape.d[shape.n++] = (int64_t)task->classes;
    for (int i = 0; i < task->target.n && shape.n < TUTTI_MAX_DIMS; i++)
        shape.d[shape.n++] = task->target.d[i];
    if (task->kind->is_language_modeling && shape.n < TUTTI_MAX_DIMS)
        shape.d[shape.n++] = (int64_t)task->classes;
    return shape;
}

/* Of images to predict, as many as they have channels. */
int64_t tutti__task_outputs(const tutti__train_task *task)
{
    if (task->positions > 0)
        return (int64_t)task->classes;
    return task->target.n == 3 ? task->target.d[0] : (int64_t)task->numbers;
}

tutti_status tutti__task_check_output(const tutti__train_task *task, const char *model,
                                      tutti_shape output)
{
    const tutti_shape expected = tutti__task_output(task, output.n > 0 ? output.d[0] : 1);

    if (tutti_shape_equal(output, expected))
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "task: for %s of these data the model's output must be %s, and %s gives %s; "
        "use another model, data, or task%s",
        task->kind->name, tutti__shape_text(expected), model, tutti__shape_text(output),
        task->classes == 2 && task->target.n == 1 ? " (if the integers say which labels "
                                                    "apply: multi_label)"
                                                  : "");
}

tutti_status tutti__task_check_targets(const tutti__train_task *task, const void *y, size_t n)
{
    for (size_t i = 0; task->kind->has_logits && i < n * task->numbers; i++) {
        const double target = tutti__task_number(task, y, i);

        if (!(target >= 0 && target <= 1))
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "task: a target of multi_label is %g, expected 0 to 1 for each "
                               "label (between: a probability); for other numbers use "
                               "task=regression",
                               target);
    }
    return TUTTI_OK;
}

tutti_tensor *tutti__task_loss(const tutti__train_task *task, tutti_tensor *output,
                               tutti_tensor *target, const tutti__loss_terms *terms)
{
    if (task->integers)
        target = tutti_cast(target, TUTTI_F32);
    if (task->kind->is_language_modeling) {
        output = tutti_view(output, TUTTI_SHAPE(-1, (int64_t)task->classes));
        target = tutti_view(target, TUTTI_SHAPE(-1));
    }
    return task->loss->mean(output, target, terms);
}

double tutti__task_divisor(const tutti__train_task *task, tutti_array y, const float *weight)
{
    enum { IGNORED = -100 };
    const int64_t n = y.shape.d[0], *label = y.p;
    double sum = 0;

    if (!task->loss) /* the program's: a mean over samples */
        return (double)n;
    if (task->numbers > 0 || y.dtype != TUTTI_I64)
        return (double)n * (double)(task->numbers > 0 ? task->numbers : task->positions);
    for (int64_t i = 0; i < n * (int64_t)task->positions; i++)
        if (label[i] != IGNORED && label[i] >= 0 && label[i] < (int64_t)task->classes)
            sum += weight ? (double)weight[label[i]] : 1;
    return sum;
}

const char *tutti__task_noun(const tutti__train_task *task, const char *noun)
{
    return task->kind->is_language_modeling ? "tokens" : task->positions > 1 ? "pixels" : noun;
}

size_t tutti__task_predictions(const tutti__train_task *task)
{
    if (!task->kind->has_logits)
        return 0;
    return task->numbers > 0 ? task->numbers : task->positions;
}

int64_t tutti__task_class(const float *logits, size_t n, size_t stride)
{
    size_t best = 0;

    for (size_t k = 0; k < n; k++) {
        if (isnan(logits[k * stride]))
            return TUTTI__NO_CLASS;
        if (logits[k * stride] > logits[best * stride])
            best = k;
    }
    return (int64_t)best;
}

void tutti__task_predict(const tutti__train_task *task, const float *output, int64_t *predicted)
{
    for (size_t i = 0; i < task->numbers; i++)
        predicted[i] = isnan(output[i]) ? TUTTI__NO_CLASS : output[i] > 0;
    for (size_t i = 0; i < task->positions; i++)
        predicted[i] = task->kind->is_language_modeling
                           ? tutti__task_class(output + i * task->classes, task->classes, 1)
                           : tutti__task_class(output + i, task->classes, task->positions);
}
