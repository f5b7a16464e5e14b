/* sort.c -- the elements along a dimension in order, where they were, and the first k of them.   SPDX-License-Identifier: MIT
 * Equal elements keep their order; NaN is larger than all others, as in PyTorch. Kept: for each element of the result a 64-bit word
 * with its place in the last 32 bits, and above it a key in the order of the values. Words are distinct. On a device: for each element
 * of x, its place in the result. */
#include "tensor/each.h"
#include "tensor/op/reduction.h"

#include <string.h>

typedef struct attributes {
    int dim;
    bool descending;
    int64_t first; /* how many of them; -1: all */
} attributes;

static tutti_status sort_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    tutti__extent e;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    if (tutti__dim_index(a->dim, y->n) < 0)
        return TUTTI_ERR_ARG;
    e = tutti__extent_of_dim(*y, a->dim);
    if (e.n > INT32_MAX)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected at most %d elements along dim %d",
                           tutti__shape_text(*y), INT32_MAX, a->dim);
    if (a->first != -1 && (a->first < 1 || a->first > e.n))
        return tutti__fail(TUTTI_ERR_ARG, "k is %lld, but x is %s: expected 1 to %lld",
                           (long long)a->first, tutti__shape_text(*y), (long long)e.n);
    if (a->first != -1 && y->n > 0)
        y->d[tutti__dim_index(a->dim, y->n)] = a->first;
    return TUTTI_OK;
}

static tutti_status argsort_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    TUTTI_TRY(sort_shape(p, y, dtype));
    *dtype = TUTTI_I64;
    return TUTTI_OK;
}

static int64_t keeps(const tutti_op_args *p)
{
    return 2 * tutti_shape_count(p->sources[0]->shape);
}

/* ---- One line -------------------------------------------------------------------------------- */

/* The first `first` of them, by bits, from `bit` down: in place, and never more than 64 levels deep. */
static void sort_words(uint64_t *w, int64_t n, int64_t first, int bit)
{
    const int64_t few = 16;

    for (; n > few && bit >= 0; bit--) {
        int64_t low = 0, high = n;

        while (low < high) {
            if (w[low] >> bit & 1) {
                const uint64_t word = w[low];

                w[low] = w[--high];
                w[high] = word;
            } else {
                low++;
            }
        }
        if (low >= first) {
            n = low;
            continue;
        }
        sort_words(w, low, low, bit - 1);
        w += low;
        n -= low;
        first -= low;
    }
    for (int64_t i = 1; i < n; i++) {
        const uint64_t word = w[i];
        int64_t k = i;

        for (; k > 0 && w[k - 1] > word; k--)
            w[k] = w[k - 1];
        w[k] = word;
    }
}

/* ---- All lines ------------------------------------------------------------------------------- */

typedef struct sorting {
    const tutti_op_args *p;
    tutti__extent e; /* of x */
    int64_t first;   /* elements of the result */
    bool descending;
} sorting;

static uint64_t *words_of(const sorting *s, int64_t line)
{
    return (uint64_t *)(void *)s->p->kept + line * s->e.n;
}

/* Where a line of n elements starts. */
static int64_t start_of(const sorting *s, int64_t line, int64_t n)
{
    return line / s->e.inner * n * s->e.inner + line % s->e.inner;
}

static void forward_job(void *arg, int64_t line)
{
    const sorting *s = arg;
    const tutti_op_args *p = s->p;
    const int64_t to = start_of(s, line, s->first);
    const float *x = (const float *)p->src[0] + start_of(s, line, s->e.n);
    uint64_t *w = words_of(s, line);

    for (int64_t k = 0; k < s->e.n; k++) {
        const uint32_t key = tutti__sort_key(x[k * s->e.inner]);

        w[k] = (uint64_t)(s->descending ? ~key : key) << 32 | (uint64_t)k;
    }
    sort_words(w, s->e.n, s->first, 63);
    for (int64_t k = 0; k < s->first; k++) {
        const int64_t place = (int64_t)(w[k] & UINT32_MAX);

        if (p->indices)
            p->indices[to + k * s->e.inner] = place;
        else
            p->y[to + k * s->e.inner] = x[place * s->e.inner];
    }
}

static void backward_job(void *arg, int64_t line)
{
    const sorting *s = arg;
    const float *dy = s->p->dy + start_of(s, line, s->first);
    float *dx = s->p->dsrc[0] + start_of(s, line, s->e.n);
    const uint64_t *w = words_of(s, line);

    for (int64_t k = s->first; k < s->e.n; k++)
        dx[(int64_t)(w[k] & UINT32_MAX) * s->e.inner] = 0;
    for (int64_t k = 0; k < s->first; k++)
        dx[(int64_t)(w[k] & UINT32_MAX) * s->e.inner] = dy[k * s->e.inner];
}

static void each_line(const tutti_op_args *p, void (*job)(void *arg, int64_t line))
{
    const attributes *a = p->attributes;
    sorting s = {p, tutti__extent_of_dim(p->sources[0]->shape, a->dim), a->first, a->descending};

    s.first = s.first == -1 ? s.e.n : s.first;
    if (p->count > 0)
        tutti_op_parallel(p, job, &s, s.e.outer * s.e.inner);
}

static void forward(const tutti_op_args *p)
{
    each_line(p, forward_job);
}

static void backward(const tutti_op_args *p)
{
    each_line(p, backward_job);
}

/* ---- On a device ----------------------------------------------------------------------------- */

static tutti__each_job lines_of(const tutti_op_args *p, tutti__job_kind kind)
{
    const attributes *a = p->attributes;
    const tutti__extent e = tutti__extent_of_dim(p->sources[0]->shape, a->dim);
    tutti__each_job job = {kind,
                           {.lines = {.n = e.n,
                                      .inner = e.inner,
                                      .first = a->first == -1 ? e.n : a->first,
                                      .backwards = a->descending,
                                      .dy = p->dy,
                                      .to = p->dsrc ? p->dsrc[0] : p->y,
                                      .to_index = p->indices,
                                      .rank = (int32_t *)p->kept}}};

    job.of.lines.x = p->src[0];
    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__each_job job = lines_of(p, TUTTI__JOB_sort);

    return tutti__each_on_device(p, &job, tutti_shape_count(p->sources[0]->shape));
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__each_job job = lines_of(p, TUTTI__JOB_sort_gradient);

    return tutti__each_on_device(p, &job, tutti_shape_count(p->sources[0]->shape));
}

/* ---- The operations -------------------------------------------------------------------------- */

#define VALUES(called)                                                                             \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = sort_shape,                                                             \
                  .forward = forward,                                                              \
                  .backward = backward,                                                            \
                  .keeps = keeps,                                                                  \
                  .activations = 1},                                                               \
        .device_forward = device_forward, .device_backward = device_backward                       \
    }

tutti_tensor *tutti_sort(tutti_tensor *x, int dim, bool descending)
{
    static const tutti__op op = VALUES("sort");

    return tutti__op_run(&op, &x, 1, &(attributes){dim, descending, -1}, sizeof(attributes));
}

tutti_tensor *tutti_argsort(tutti_tensor *x, int dim, bool descending)
{
    static const tutti__op op = {.plain = {.name = "argsort",
                                           .shape = argsort_shape,
                                           .forward = forward,
                                           .keeps = keeps,
                                           .no_grad = true,
                                           .activations = 1},
                                 .device_forward = device_forward};

    return tutti__op_run(&op, &x, 1, &(attributes){dim, descending, -1}, sizeof(attributes));
}

tutti_tensor *tutti_topk(tutti_tensor *x, int64_t k, int dim, bool largest)
{
    static const tutti__op op = VALUES("topk");

    /* -1 means all, here */
    return tutti__op_run(&op, &x, 1, &(attributes){dim, largest, k < 0 ? 0 : k},
                         sizeof(attributes));
}
