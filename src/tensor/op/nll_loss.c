/* nll_loss.c -- minus the log-probability x of each label, times the weight of its class: the negative log likelihood.
 * SPDX-License-Identifier: MIT */
#include "tensor/each.h"
#include "tensor/op/class_loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *loss, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__class_loss_shape(p, "x", loss));
    return tutti__class_loss_labels(p, "x");
}

static void forward(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const int64_t *label = p->src[1];
    const float *x = p->src[0], *weight = p->src[2];
    double sum = 0;

    for (int64_t i = 0; i < k.N * k.S; i++) {
        float loss = 0;

        if (label[i] != a->how.ignore_index)
            loss = -x[tutti__class_at(k, i) + label[i] * k.S] * (weight ? weight[label[i]] : 1);
        if (a->reduction == TUTTI_REDUCTION_NONE)
            p->y[i] = loss;
        sum += (double)loss;
    }
    if (a->reduction != TUTTI_REDUCTION_NONE)
        p->y[0] = (float)(sum / tutti__class_loss_divisor(p));
}

static void backward(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const int64_t *label = p->src[1];
    const float *weight = p->src[2];
    const double divisor = tutti__class_loss_divisor(p);
    float *dx = p->dsrc[0];

    for (int64_t i = 0; i < k.N * k.C * k.S; i++)
        dx[i] = 0;
    for (int64_t i = 0; i < k.N * k.S; i++) {
        const double dy = (double)p->dy[a->reduction == TUTTI_REDUCTION_NONE ? i : 0] / divisor;

        if (label[i] != a->how.ignore_index)
            dx[tutti__class_at(k, i) + label[i] * k.S] =
                (float)(-dy * (weight ? (double)weight[label[i]] : 1));
    }
}

/* ---- On a device ------------------------------------------------------------------------------------- */

static tutti__each_job labels_of(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    tutti__each_job job = {
        p->dsrc ? TUTTI__JOB_label_gradient : TUTTI__JOB_label_losses,
        {.labels = {.C = k.C,
                    .S = k.S,
                    .ignored = a->how.ignore_index,
                    .each = a->reduction == TUTTI_REDUCTION_NONE,
                    .loss = p->y,
                    .dy = p->dy,
                    .total = a->reduction == TUTTI_REDUCTION_MEAN ? p->kept : NULL,
                    .dx = p->dsrc ? p->dsrc[0] : NULL}}};

    job.of.labels.x = p->src[0];
    job.of.labels.label = p->src[1];
    job.of.labels.weight = p->src[2];
    return job;
}

/* The sum of all weights is kept, to divide by. */
static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__classes k = tutti__classes_of(p);
    const int64_t n = k.N * k.S;
    tutti__each_job job = labels_of(p);
    float *rows;

    if (job.of.labels.each)
        return tutti__each_on_device(p, &job, n);
    rows = tutti__operation_memory(p->cx, (size_t)(2 * n) * sizeof *rows + 1);
    if (!rows)
        return TUTTI_ERR_MEMORY;
    job.of.labels.loss = rows;
    job.of.labels.weight_of = rows + n;
    TUTTI_TRY(tutti__each_on_device(p, &job, n));
    TUTTI_TRY(tutti__class_loss_sum(p, p->kept, rows + n, n, NULL));
    return tutti__class_loss_sum(p, p->y, rows, n, job.of.labels.total);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__each_job job = labels_of(p);

    return tutti__each_on_device(p, &job, tutti_shape_count(p->sources[0]->shape));
}

static int64_t keeps(const tutti_op_args *p)
{
    (void)p;
    return 1;
}

tutti_tensor *tutti_nll_loss(tutti_tensor *x, tutti_tensor *labels, const tutti_nll_loss_opts *opts)
{
    static const tutti__op op = {.plain = {.name = "nll_loss",
                                           .shape = shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .keeps = keeps,
                                           .backward_reads = 1 << 1 | 1 << 2,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};
    const tutti_nll_loss_opts o = opts ? *opts : (tutti_nll_loss_opts){0};
    const tutti__class_loss a = {
        {0, o.has_ignore_index ? o.ignore_index : TUTTI__IGNORED_BY_DEFAULT}, o.reduction};

    if (x && TUTTI__CHECK_RESERVED(tutti_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__op_run(&op, (tutti_tensor *[]){x, labels, o.weight}, 3, &a, sizeof a);
}
