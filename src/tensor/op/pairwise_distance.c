/* pairwise_distance.c -- the p-norm of a - b + eps over the last dimension.   SPDX-License-Identifier: MIT */
#include "tensor/each.h"

#include <math.h>

typedef struct attributes {
    float p, eps;
    bool keepdim;
} attributes;

static tutti_status distance_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    TUTTI_TRY(tutti_op_broadcast(p, y, dtype));
    if (!tutti_shape_equal(p->sources[0]->shape, p->sources[1]->shape))
        return tutti__fail(TUTTI_ERR_ARG, "a is %s but b is %s, expected the same shape",
                           tutti__shape_text(p->sources[0]->shape),
                           tutti__shape_text(p->sources[1]->shape));
    if (y->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "a is a scalar, expected at least one dimension");
    if (!(a->p > 0 || (a->p < 0 && isfinite(a->p))))
        return tutti__fail(TUTTI_ERR_ARG, "p is %g, expected a number other than 0, or INFINITY",
                           (double)a->p);
    y->d[y->n - 1] = 1;
    y->n -= !a->keepdim;
    return TUTTI_OK;
}

static tutti__each_job lines_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;
    tutti__each_job job = {p->dsrc ? TUTTI__JOB_distance_gradient : TUTTI__JOB_distance,
                           {.lines = {.n = x.d[x.n - 1],
                                      .inner = 1,
                                      .dy = p->dy,
                                      .to = p->dsrc ? p->dsrc[0] : p->y,
                                      .to_other = p->dsrc ? p->dsrc[1] : NULL,
                                      .p = (double)a->p,
                                      .eps = (double)a->eps}}};

    job.of.lines.x = p->src[0];
    job.of.lines.other = p->src[1];
    return job;
}

/* Forward and backward: of each row. */
static void run(const tutti_op_args *p)
{
    const tutti__each_job job = lines_of(p);

    tutti__each_on_host(p, &job, p->count, job.of.lines.n);
}

static tutti_status run_on_device(const tutti_op_args *p)
{
    const tutti__each_job job = lines_of(p);

    return tutti__each_on_device(p, &job, p->count);
}

tutti_tensor *tutti_pairwise_distance(tutti_tensor *a, tutti_tensor *b, float p, float eps,
                                      bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "pairwise_distance",
                                           .shape = distance_shape,
                                           .forward = run,
                                           .backward = run,
                                           .backward_reads = 3,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = run_on_device,
                                 .device_backward = run_on_device};
    const attributes given = {p, eps, keepdim};

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, &given, sizeof given);
}
