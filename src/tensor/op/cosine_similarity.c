/* cosine_similarity.c -- sum(a b) / (max(|a|, eps) max(|b|, eps)) over a dimension.   SPDX-License-Identifier: MIT */
#include "tensor/each.h"
#include "tensor/op/reduction.h"

typedef struct attributes {
    int dim;
    float eps;
} attributes;

static tutti_status similarity_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int dim;

    TUTTI_TRY(tutti_op_broadcast(p, y, dtype));
    dim = tutti__dim_index(a->dim, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (!(a->eps >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "eps is %g, expected at least 0", (double)a->eps);
    y->n -= y->n > 0;
    for (int i = dim; i < y->n; i++)
        y->d[i] = y->d[i + 1];
    return TUTTI_OK;
}

static tutti__each_job lines_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti__extent e = tutti__extent_of_dim(p->sources[0]->shape, a->dim);
    tutti__each_job job = {p->dsrc ? TUTTI__JOB_cosine_gradient : TUTTI__JOB_cosine,
                           {.lines = {.n = e.n,
                                      .inner = e.inner,
                                      .dy = p->dy,
                                      .to = p->dsrc ? p->dsrc[0] : p->y,
                                      .to_other = p->dsrc ? p->dsrc[1] : NULL,
                                      .eps = (double)a->eps}}};

    job.of.lines.x = p->src[0];
    job.of.lines.other = p->src[1];
    return job;
}

/* Forward and backward: of each line. */
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

/* Sources of other shapes are expanded, so that gradients are summed. */
static tutti_tensor *widened(tutti_tensor *x, const tutti_tensor *other)
{
    tutti_tensor *const sources[] = {x, (tutti_tensor *)other};
    const tutti_op_args p = {.n_src = 2, .sources = sources};
    tutti_shape shape;

    if (tutti_shape_equal(x->shape, other->shape) ||
        tutti__broadcast_shapes(&p, (const char *const[]){"a", "b"}, &shape) != TUTTI_OK ||
        tutti_shape_equal(x->shape, shape))
        return x;
    return tutti_expand(x, shape);
}

tutti_tensor *tutti_cosine_similarity(tutti_tensor *a, tutti_tensor *b, int dim, float eps)
{
    static const tutti__op op = {.plain = {.name = "cosine_similarity",
                                           .shape = similarity_shape,
                                           .forward = run,
                                           .backward = run,
                                           .backward_reads = 3,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = run_on_device,
                                 .device_backward = run_on_device};
    const attributes given = {dim, eps};

    if (a && b && a->poison == TUTTI_OK && b->poison == TUTTI_OK) {
        tutti_tensor *wide = widened(a, b);

        b = widened(b, a);
        a = wide;
    }
    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, &given, sizeof given);
}
