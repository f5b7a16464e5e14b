/* op_check.c -- tests a program's operation as Tutti's own are tested.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEVERAL ((int64_t)50000) /* elements: some parts of plain.c */

typedef struct op_check {
    tutti_tensor *(*call)(tutti_tensor *const *src, void *arg);
    void *arg;
    const tutti_array *given;
    int n;
    tutti_op_check_opts opts;
    tutti_array sources[TUTTI_OP_MAX_SOURCES]; /* of the current run */
    tutti_dtype half; /* what real sources are cast to; F32: they are not */
    float *factors;   /* of the weighted sum that is the loss */
} op_check;

/* Result and gradients of one run, one behind the other. */
typedef struct outcome {
    float *p;
    int64_t count, result;
} outcome;

/* ---- Running ------------------------------------------------------------------------------------- */

/* Sum of y times factors between -1 and 1, which the index determines. */
static tutti_tensor *weighted(op_check *c, tutti_tensor *y)
{
    const int64_t count = y ? tutti_shape_count(y->shape) : 0;
    tutti_tensor *factors;

    if (!y || y->poison != TUTTI_OK)
        return y;
    free(c->factors);
    c->factors = tutti__alloc((size_t)(count + 1) * sizeof *c->factors);
    if (!c->factors)
        return tutti__poisoned(y->cx, TUTTI_ERR_MEMORY);
    for (int64_t i = 0; i < count; i++)
        c->factors[i] = (float)((uint32_t)i * 2654435761u >> 8) / (float)(1 << 23) - 1;
    factors = tutti_input(y->cx, (tutti_array){c->factors, y->shape, TUTTI_F32});
    return tutti_scale(tutti_mean(tutti_mul(tutti_cast(y, TUTTI_F32), factors)), (float)count);
}

static tutti_tensor *called(const op_check *c, tutti_tensor *const *in)
{
    tutti_tensor *src[TUTTI_OP_MAX_SOURCES];

    for (int i = 0; i < c->n; i++)
        src[i] = c->half != TUTTI_F32 && in[i]->dtype == TUTTI_F32 && !(c->opts.weights >> i & 1)
                     ? tutti_cast(in[i], c->half)
                     : in[i];
    return c->call(src, c->arg);
}

static tutti_tensor *loss_of(tutti_tensor *const *in, void *arg)
{
    op_check *c = arg;

    return weighted(c, called(c, in));
}

/* Keeps t's elements, or its gradient. */
static tutti_status keep(outcome *o, tutti_tensor *t, bool gradient)
{
    const int64_t count = tutti_shape_count(t->shape);
    float *p = realloc(o->p, (size_t)(o->count + count + 1) * sizeof *p);

    if (!p)
        return tutti__fail(TUTTI_ERR_MEMORY, "out of memory");
    o->p = p;
    memset(p + o->count, 0, (size_t)count * sizeof *p);
    if (!gradient)
        TUTTI_TRY(tutti_tensor_read(t, p + o->count));
    else if (count > 0 && tutti_tensor_grad(t))
        TUTTI_TRY(tutti_tensor_grad_read(t, p + o->count));
    o->count += count;
    return TUTTI_OK;
}

static tutti_status in_step(op_check *c, tutti_ctx *cx, outcome *o)
{
    tutti_tensor *in[TUTTI_OP_MAX_SOURCES], *y, *loss;

    for (int i = 0; i < c->n; i++)
        in[i] = c->sources[i].dtype == TUTTI_F32 ? tutti_input_with_grad(cx, c->sources[i])
                                                 : tutti_input(cx, c->sources[i]);
    y = called(c, in);
    loss = weighted(c, y);
    TUTTI_TRY(tutti_tensor_status(loss));
    TUTTI_TRY(keep(o, tutti_cast(y, TUTTI_F32), false));
    o->result = o->count;
    if (!loss->needs_grad)
        return TUTTI_OK;
    TUTTI_TRY(tutti_backward(loss));
    for (int i = 0; i < c->n; i++)
        if (c->sources[i].dtype == TUTTI_F32)
            TUTTI_TRY(keep(o, in[i], true));
    return TUTTI_OK;
}

static tutti_status run_with(op_check *c, int threads, outcome *o)
{
    tutti_ctx *cx;
    tutti_status status;

    *o = (outcome){0};
    TUTTI_TRY(
        tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = threads}));
    tutti_step_begin(cx, NULL);
    status = in_step(c, cx, o);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
    return status;
}

/* ---- What is tested ------------------------------------------------------------------------------ */

static tutti_status check_gradients(op_check *c)
{
    double error;
    tutti_ctx *cx;
    tutti_status status;

    TUTTI_TRY(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}));
    status = tutti_gradient_check(cx, loss_of, c, c->sources, c->n, NULL, &error);
    tutti_ctx_free(cx);
    TUTTI_TRY(status);
    if (error <= c->opts.tolerance)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INTERNAL,
                       "backward differs from finite differences by %g; the tolerance is %g", error,
                       c->opts.tolerance);
}

/* The sources with a batch of `times` times as many samples, repeated; 0: of none. */
static tutti_status set_batch(op_check *c, int64_t times)
{
    for (int i = 0; i < c->n; i++) {
        const tutti_array *from = &c->given[i];
        const size_t bytes = (size_t)tutti_shape_count(from->shape) * tutti_dtype_size(from->dtype);
        const int64_t copies = c->opts.weights >> i & 1 || from->shape.n == 0 ? 1 : times;
        char *p = tutti__alloc(bytes * (size_t)copies + 1);

        free((void *)c->sources[i].p);
        c->sources[i] = (tutti_array){p, from->shape, from->dtype};
        if (!p)
            return TUTTI_ERR_MEMORY;
        for (int64_t k = 0; k < copies; k++)
            memcpy(p + (size_t)k * bytes, from->p, bytes);
        if (copies != 1)
            c->sources[i].shape.d[0] *= copies;
    }
    return TUTTI_OK;
}

static tutti_status check_threads(op_check *c)
{
    int64_t largest = 1, differs = -1;
    outcome one, three = {0};
    tutti_status status;

    for (int i = 0; i < c->n; i++)
        if (tutti_shape_count(c->given[i].shape) > largest)
            largest = tutti_shape_count(c->given[i].shape);
    TUTTI_TRY(set_batch(c, SEVERAL / largest + 1));
    status = run_with(c, 1, &one);
    if (status == TUTTI_OK)
        status = run_with(c, 3, &three);
    for (int64_t i = 0; status == TUTTI_OK && i < one.count && differs < 0; i++)
        if (memcmp(&one.p[i], &three.p[i], sizeof(float)) != 0)
            differs = i;
    if (differs >= 0)
        status = tutti__fail(TUTTI_ERR_INTERNAL,
                             "three threads give other bits than one: %s %lld is %.9g and %.9g",
                             differs < one.result ? "element" : "gradient",
                             (long long)(differs < one.result ? differs : differs - one.result),
                             (double)three.p[differs], (double)one.p[differs]);
    free(one.p);
    free(three.p);
    return status;
}

/* Only of sources that may have 16 bit: those of others are refused. */
static tutti_status check_half(op_check *c)
{
    double largest = 1, error = 0;
    outcome f32, half = {0};
    tutti_status status;

    TUTTI_TRY(set_batch(c, 1));
    status = run_with(c, 1, &f32);
    if (status != TUTTI_OK) {
        free(f32.p);
        return status;
    }
    c->half = TUTTI_BF16;
    status = run_with(c, 1, &half);
    c->half = TUTTI_F32;
    for (int64_t i = 0; status == TUTTI_OK && i < f32.result; i++) {
        const double wide = (double)f32.p[i], narrow = (double)half.p[i];
        const bool equal = wide == narrow || (wide != wide && narrow != narrow);

        if (isfinite(wide))
            largest = fmax(largest, fabs(wide));
        if (!equal) /* one that is not a number is infinitely far from others */
            error = fmax(error, isfinite(wide - narrow) ? fabs(wide - narrow) : INFINITY);
    }
    free(f32.p);
    free(half.p);
    if (status == TUTTI_ERR_ARG ||
        status == TUTTI_ERR_UNSUPPORTED) /* no activations, or no such kernels */
        return TUTTI_OK;
    TUTTI_TRY(status);
    if (!(error <= c->opts.half_tolerance * largest))
        return tutti__fail(
            TUTTI_ERR_INTERNAL,
            "BF16 differs from F32 by %g; the largest result is %g, the tolerance %g", error,
            largest, c->opts.half_tolerance);
    return TUTTI_OK;
}

static tutti_status check_empty(op_check *c)
{
    outcome o;
    tutti_status status;

    TUTTI_TRY(set_batch(c, 0));
    status = run_with(c, 1, &o);
    free(o.p);
    return status;
}

static tutti_status check_all(op_check *c)
{
    static const struct {
        const char *what;
        tutti_status (*check)(op_check *c);
    } checks[] = {{"gradients", check_gradients},
                  {"threads", check_threads},
                  {"16 bit", check_half},
                  {"an empty batch", check_empty}};

    TUTTI_TRY(set_batch(c, 1));
    for (size_t i = 0; i < TUTTI__COUNT_OF(checks); i++) {
        const tutti_status status = checks[i].check(c);

        if (status != TUTTI_OK)
            return tutti__fail(status, "tutti_op_check, %s: %s", checks[i].what,
                               tutti_last_error());
    }
    return TUTTI_OK;
}

tutti_status tutti_op_check(tutti_tensor *(*call)(tutti_tensor *const *src, void *arg), void *arg,
                            const tutti_array *sources, int n_sources,
                            const tutti_op_check_opts *opts)
{
    op_check c = {
        .call = call,
        .arg = arg,
        .given = sources,
        .n = n_sources,
        .opts = {.tolerance = opts && opts->tolerance > 0 ? opts->tolerance : 1e-2,
                 .half_tolerance = opts && opts->half_tolerance > 0 ? opts->half_tolerance : 3e-2,
                 .weights = opts ? opts->weights : 0},
        .half = TUTTI_F32};
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(call));
    TUTTI_TRY(TUTTI__NOT_NULL(sources));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_op_check_opts, opts));
    if (n_sources < 1 || n_sources > TUTTI_OP_MAX_SOURCES)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_op_check: %d sources, expected 1 to %d", n_sources,
                           TUTTI_OP_MAX_SOURCES);
    status = check_all(&c);
    for (int i = 0; i < c.n; i++)
        free((void *)c.sources[i].p);
    free(c.factors);
    return status;
}
