/* local_response_norm.c -- each element divided by a power of the squares in the channels around it.   SPDX-License-Identifier: MIT
 * job/channels.h says how.
 * Kept: s. */
#include "tensor/each.h"

typedef struct attributes {
    int size;
    float alpha, beta, k;
} attributes;

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    if (y->n < 3)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected [N,C,L] or more dimensions",
                           tutti__shape_text(*y));
    if (a->size < 1)
        return tutti__fail(TUTTI_ERR_ARG, "size is %d, expected at least 1", a->size);
    return TUTTI_OK;
}

static int64_t keeps(const tutti_op_args *p)
{
    return tutti_shape_count(p->shape);
}

static tutti__each_job job_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    tutti__each_job job = {p->dsrc ? TUTTI__JOB_response_norm_gradient : TUTTI__JOB_response_norm,
                           {.channels = {.channels = p->shape.d[1],
                                         .length = 1,
                                         .size = a->size,
                                         .alpha = a->alpha,
                                         .beta = a->beta,
                                         .k = a->k,
                                         .dy = p->dy,
                                         .to = p->dsrc ? p->dsrc[0] : p->y,
                                         .kept = p->kept}}};

    job.of.channels.x = p->src[0];
    for (int i = 2; i < p->shape.n; i++)
        job.of.channels.length *= p->shape.d[i];
    return job;
}

/* Forward and backward: of each element. */
static void run(const tutti_op_args *p)
{
    const tutti__each_job job = job_of(p);

    tutti__each_on_host(p, &job, p->count, 2 * job.of.channels.size);
}

static tutti_status run_on_device(const tutti_op_args *p)
{
    const tutti__each_job job = job_of(p);

    return tutti__each_on_device(p, &job, p->count);
}

tutti_tensor *tutti_functional_local_response_norm(tutti_tensor *x, int size, float alpha,
                                                   float beta, float k)
{
    static const tutti__op op = {.plain = {.name = "local_response_norm",
                                           .shape = shape,
                                           .forward = run,
                                           .backward = run,
                                           .keeps = keeps,
                                           .backward_reads = 1 << 0,
                                           .activations = 1},
                                 .device_forward = run_on_device,
                                 .device_backward = run_on_device};
    const attributes a = {size, (float)tutti__or((double)alpha, 1e-4),
                          (float)tutti__or((double)beta, 0.75), (float)tutti__or((double)k, 1)};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}
