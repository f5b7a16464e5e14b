/* cudnn_problem.h -- a convolution as parsed by the stand-in of cuDNN, and its computation.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_STANDIN_CUDNN_PROBLEM_H
#define TUTTI_TESTS_STANDIN_CUDNN_PROBLEM_H

#include "elements.h"

typedef struct tensor {
    int64_t name, alignment, d[4], strides[4];
    element type;
} tensor;

typedef struct problem {
    int direction; /* 0: y of x and w; 1: x of y and w; 2: w of x and y */
    float alpha, beta;
    tensor x, w, y;
    int64_t stride[2], before[2], after[2], dilation[2];
    bool one_type;
} problem;

typedef enum rounding { ROUND_NONE, ROUND_TF32, ROUND_F16 } rounding;

typedef struct execution {
    problem problem;
    void *x, *w, *y, *workspace;
    int64_t workspace_bytes;
    rounding rounding; /* of F32 factors */
    bool reduced;      /* sums kept in fewer bits */
    bool varies;       /* the order of sums */
    uint32_t turn;
} execution;

static inline bool problem_fits(const problem *p)
{
    for (int i = 0; i < 2; i++) {
        const int64_t extent = (p->w.d[2 + i] - 1) * p->dilation[i] + 1;
        const int64_t span = p->x.d[2 + i] + p->before[i] + p->after[i] - extent;

        if (span < 0 || p->y.d[2 + i] != span / p->stride[i] + 1)
            return false;
    }
    return p->x.d[0] == p->y.d[0] && p->x.d[1] % p->w.d[1] == 0 && p->y.d[1] == p->w.d[0] &&
           p->w.d[0] % (p->x.d[1] / p->w.d[1]) == 0; /* groups */
}

static inline void tensor_text(char text[160], const char *name, const tensor *t)
{
    snprintf(text, 160, "%s=%s[%lld,%lld,%lld,%lld](%lld,%lld,%lld,%lld)@%lld", name,
             element_name(t->type), (long long)t->d[0], (long long)t->d[1], (long long)t->d[2],
             (long long)t->d[3], (long long)t->strides[0], (long long)t->strides[1],
             (long long)t->strides[2], (long long)t->strides[3], (long long)t->alignment);
}

static inline void problem_record(const char *what, const problem *p, const char *more)
{
    static const char *const directions[] = {"forward", "backward_data", "backward_filter"};
    char x[160], w[160], y[160], dilated[64] = "";

    tensor_text(x, "x", &p->x);
    tensor_text(w, "w", &p->w);
    tensor_text(y, "y", &p->y);
    if (p->dilation[0] != 1 || p->dilation[1] != 1)
        snprintf(dilated, sizeof dilated, " dilation=%lld,%lld", (long long)p->dilation[0],
                 (long long)p->dilation[1]);
    record("cudnn %s %s %s %s %s stride=%lld,%lld before=%lld,%lld after=%lld,%lld%s alpha=%g "
           "beta=%g%s",
           what, directions[p->direction], x, w, y, (long long)p->stride[0],
           (long long)p->stride[1], (long long)p->before[0], (long long)p->before[1],
           (long long)p->after[0], (long long)p->after[1], dilated, (double)p->alpha,
           (double)p->beta, more);
}

/* ---- Computing: over copies as floats, channels last ------------------------------------------------------- */

static inline int64_t tensor_offset(const tensor *t, int64_t i)
{
    const int64_t c = i % t->d[1], w = i / t->d[1] % t->d[3], h = i / t->d[1] / t->d[3] % t->d[2];

    return i / t->d[1] / t->d[3] / t->d[2] * t->strides[0] + c * t->strides[1] + h * t->strides[2] +
           w * t->strides[3];
}

static inline int64_t tensor_count(const tensor *t)
{
    return t->d[0] * t->d[1] * t->d[2] * t->d[3];
}

static inline float *tensor_read(const tensor *t, const void *p, rounding how)
{
    const int64_t n = tensor_count(t);
    float *copy = malloc((size_t)n * sizeof *copy);

    if (!copy)
        abort();
    for (int64_t i = 0; i < n; i++) {
        const float x = element_load(p, t->type, tensor_offset(t, i));

        copy[i] = t->type != ELEMENT_F32 || how == ROUND_NONE ? x
                  : how == ROUND_TF32                         ? element_tf32(x)
                                      : tutti__f32_of_f16(tutti__f16_of_f32(x));
    }
    return copy;
}

static inline void tensor_write(const execution *e, const tensor *t, void *p, const float *from)
{
    const float noise = e->varies && e->turn % 2 ? 1 + 0x1p-21f : 1;

    for (int64_t i = 0; i < tensor_count(t); i++) {
        const int64_t at = tensor_offset(t, i);
        float x = e->problem.alpha * from[i] * noise;

        if (e->problem.beta != 0)
            x += e->problem.beta * element_load(p, t->type, at);
        element_store(p, t->type, at, e->reduced ? tutti__f32_of_bf16(tutti__bf16_of_f32(x)) : x);
    }
}

static inline float product_sum(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum[8] = {0}, rest = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        rest += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

static inline void add_scaled(float *restrict to, float factor, const float *restrict from,
                              int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

/* One pixel of y and one tap of w: all pairs of channels of a group. */
static inline void tap(const problem *p, float *x, float *w, float *y, int64_t w_step)
{
    const int64_t C = p->w.d[1], M = p->w.d[0], each = M / (p->x.d[1] / C);

    for (int64_t m = 0; m < M; m++) {
        float *seen = x + m / each * C;

        if (p->direction == 0)
            y[m] += product_sum(seen, w + m * w_step, C);
        else if (p->direction == 1)
            add_scaled(seen, y[m], w + m * w_step, C);
        else
            add_scaled(w + m * w_step, y[m], seen, C);
    }
}

static inline void problem_compute(const execution *e)
{
    const problem *p = &e->problem;
    const tensor *result = p->direction == 0 ? &p->y : p->direction == 1 ? &p->x : &p->w;
    void *to = p->direction == 0 ? e->y : p->direction == 1 ? e->x : e->w;
    float *x = tensor_read(&p->x, e->x, e->rounding), *w = tensor_read(&p->w, e->w, e->rounding);
    float *y = tensor_read(&p->y, e->y, e->rounding);
    float *sums = p->direction == 0 ? y : p->direction == 1 ? x : w;
    const int64_t C = p->x.d[1], M = p->w.d[0], kh = p->w.d[2], kw = p->w.d[3];
    const int64_t seen = p->w.d[1]; /* channels of x per group */

    memset(sums, 0, (size_t)tensor_count(result) * sizeof *sums);
    for (int64_t pixel = 0; pixel < p->y.d[0] * p->y.d[2] * p->y.d[3]; pixel++) {
        const int64_t n = pixel / (p->y.d[2] * p->y.d[3]);
        const int64_t top = pixel / p->y.d[3] % p->y.d[2] * p->stride[0] - p->before[0];
        const int64_t left = pixel % p->y.d[3] * p->stride[1] - p->before[1];

        for (int64_t i = 0; i < kh; i++) {
            for (int64_t j = 0; j < kw; j++) {
                const int64_t r = top + i * p->dilation[0], c = left + j * p->dilation[1];

                if (r >= 0 && r < p->x.d[2] && c >= 0 && c < p->x.d[3])
                    tap(p, x + ((n * p->x.d[2] + r) * p->x.d[3] + c) * C, w + (i * kw + j) * seen,
                        y + pixel * M, kh * kw * seen);
            }
        }
    }
    tensor_write(e, result, to, sums);
    free(x);
    free(w);
    free(y);
}

#endif
