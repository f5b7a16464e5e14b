/* elementwise.c -- relu and add, flat over memory: sources in one layout, padding included.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

#define PART  ((int64_t)1 << 14) /* elements per job */
#define PIECE 2048               /* of them at a time, in 16 bit */

typedef enum operation { RELU, RELU_BACKWARD, ADD } operation;

typedef struct job {
    operation operation;
    const tutti__runs *runs;
    float *y;
    const float *a, *b;
    int64_t n;
    tutti_dtype dtype;
} job;

static void map_part(const job *t, float *y, const float *a, const float *b, int64_t n)
{
    if (t->operation == RELU)
        t->runs->relu(y, a, n);
    else if (t->operation == ADD)
        t->runs->add(y, a, b, n);
    else
        t->runs->relu_gradient(y, a, b, n);
}

/* The same for 16 bit, widened and narrowed in the cache. */
static void map_half(const job *t, int64_t from, int64_t to)
{
    float a[PIECE], b[PIECE];

    for (int64_t i = from; i < to; i += PIECE) {
        const int64_t n = to - i < PIECE ? to - i : PIECE;

        tutti__half_to_f32(a, (const uint16_t *)(const void *)t->a + i, (size_t)n, t->dtype);
        if (t->operation != RELU)
            tutti__half_to_f32(b, (const uint16_t *)(const void *)t->b + i, (size_t)n, t->dtype);
        map_part(t, a, a, b, n);
        tutti__half_from_f32((uint16_t *)(void *)t->y + i, a, (size_t)n, t->dtype);
    }
}

static void map_job(void *arg, int64_t i, int member)
{
    const job *t = arg;
    const int64_t from = i * PART, to = from + PART < t->n ? from + PART : t->n;

    (void)member;
    if (t->dtype == TUTTI_F32)
        map_part(t, t->y + from, t->a + from, t->b ? t->b + from : NULL, to - from);
    else
        map_half(t, from, to);
}

/* y->data = operation(a, b), all in y's layout */
static void map(tutti_tensor *y, operation what, const void *a, const void *b)
{
    const size_t bytes = y->layout ? y->layout->bytes : tutti__tensor_bytes(y);
    const tutti__onednn *od = y->cx->kernel_state;
    job t = {what,    od->isa->runs, y->data, a, b, (int64_t)(bytes / tutti_dtype_size(y->dtype)),
             y->dtype};

    tutti__parallel(y->cx, map_job, &t, (t.n + PART - 1) / PART);
}

tutti_status tutti__onednn_relu_forward(tutti_tensor *y, tutti_tensor *x)
{
    TUTTI_TRY(tutti__tensor_alloc(y, x->layout));
    map(y, RELU, x->data, NULL);
    return TUTTI_OK;
}

tutti_status tutti__onednn_relu_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y)
{
    void *dy_data;

    TUTTI_TRY(tutti__onednn_in(dy, y->layout, &dy_data));
    TUTTI_TRY(dy->layout == y->layout ? tutti__tensor_take(dx, dy)
                                      : tutti__tensor_alloc(dx, y->layout));
    map(dx, RELU_BACKWARD, dy_data, y->data);
    return TUTTI_OK;
}

tutti_status tutti__onednn_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b)
{
    const tutti__layout *layout = a->layout ? a->layout : b->layout;
    void *a_data, *b_data;

    TUTTI_TRY(tutti__onednn_in(a, layout, &a_data));
    TUTTI_TRY(tutti__onednn_in(b, layout, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(y, layout));
    map(y, ADD, a_data, b_data);
    return TUTTI_OK;
}

tutti_status tutti__onednn_add_to(tutti_tensor *dst, tutti_tensor *src)
{
    dst->kernel_cache_step = 0; /* invalidates copies of it in other layouts */
    if (dst->layout != src->layout)
        return tutti__onednn_reorder(
            dst->cx, dst->shape, &(tutti__onednn_place){src->layout, src->dtype, src->data},
            &(tutti__onednn_place){dst->layout, dst->dtype, dst->data}, true);
    map(dst, ADD, dst->data, src->data);
    return TUTTI_OK;
}
