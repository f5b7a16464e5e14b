/* local_response_norm.c -- each element divided by a power of the squares in the channels around it.   SPDX-License-Identifier: MIT
 *   x [N,C,..]:  s_c = k + alpha / size * (sum of x_j^2 over the channels j from c - size / 2 on, `size` of them, that exist)
 *   y_c = x_c s_c^-beta,  dx_j = dy_j s_j^-beta - 2 alpha beta / size * x_j * (sum over c with j in its window: dy_c x_c s_c^(-beta - 1))
 * Kept: s. */
#include "base/real.h"
#include "tensor/op.h"

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

/* Channel c of a sample: `length` elements; what it adds to or reads from the channels of its window. */
typedef struct plane {
    const tutti_op_args *p;
    const attributes *a;
    int64_t channels, length;
} plane;

static plane plane_of(const tutti_op_args *p)
{
    plane l = {p, p->attributes, p->shape.d[1], 1};

    for (int i = 2; i < p->shape.n; i++)
        l.length *= p->shape.d[i];
    return l;
}

static double power(float s, float by)
{
    return tutti__exp((double)by * tutti__log((double)s));
}

static int64_t first_of(const plane *l, int64_t c)
{
    return c < l->a->size / 2 ? 0 : c - l->a->size / 2;
}

static int64_t end_of(const plane *l, int64_t c)
{
    const int64_t end = c - l->a->size / 2 + l->a->size;

    return end < l->channels ? end : l->channels;
}

static void forward_job(void *arg, int64_t i)
{
    const plane *l = arg;
    const float *x = (const float *)l->p->src[0] + i / l->channels * l->channels * l->length;
    const int64_t c = i % l->channels, at = i * l->length;

    for (int64_t k = 0; k < l->length; k++) {
        double squares = 0;

        for (int64_t j = first_of(l, c); j < end_of(l, c); j++)
            squares += (double)x[j * l->length + k] * (double)x[j * l->length + k];
        l->p->kept[at + k] =
            (float)((double)l->a->k + (double)l->a->alpha / (double)l->a->size * squares);
        l->p->y[at + k] =
            (float)((double)x[c * l->length + k] * power(l->p->kept[at + k], -l->a->beta));
    }
}

static void forward(const tutti_op_args *p)
{
    plane l = plane_of(p);

    tutti_op_parallel(p, forward_job, &l, p->shape.d[0] * l.channels);
}

static void backward_job(void *arg, int64_t i)
{
    const plane *l = arg;
    const int64_t sample = i / l->channels * l->channels * l->length, j = i % l->channels;
    const float *x = (const float *)l->p->src[0] + sample, *dy = l->p->dy + sample;
    const float *s = l->p->kept + sample;
    const double factor = 2 * (double)l->a->alpha * (double)l->a->beta / (double)l->a->size;

    for (int64_t k = 0; k < l->length; k++) {
        const int64_t at = j * l->length + k;
        double sum = 0;

        for (int64_t c = j - l->a->size; c <= j + l->a->size; c++) {
            const int64_t other = c * l->length + k;

            if (c >= 0 && c < l->channels && first_of(l, c) <= j && j < end_of(l, c))
                sum += (double)dy[other] * (double)x[other] * power(s[other], -l->a->beta - 1);
        }
        l->p->dsrc[0][sample + at] =
            (float)((double)dy[at] * power(s[at], -l->a->beta) - factor * (double)x[at] * sum);
    }
}

static void backward(const tutti_op_args *p)
{
    plane l = plane_of(p);

    tutti_op_parallel(p, backward_job, &l, p->shape.d[0] * l.channels);
}

tutti_tensor *tutti_functional_local_response_norm(tutti_tensor *x, int size, float alpha,
                                                   float beta, float k)
{
    static const tutti_op op = {.name = "local_response_norm",
                                .shape = shape,
                                .forward = forward,
                                .backward = backward,
                                .keeps = keeps,
                                .backward_reads = 1 << 0,
                                .activations = 1};
    const attributes a = {size, (float)tutti__or((double)alpha, 1e-4),
                          (float)tutti__or((double)beta, 0.75), (float)tutti__or((double)k, 1)};

    return tutti_op_run(&op, &x, 1, &a, sizeof a);
}
