/* max_pool.c -- max pooling by windows that do not overlap.   SPDX-License-Identifier: MIT
 *
 * A vector is W channels of a pixel. For each, forward keeps which pixel of its window is the largest: the first of equal ones, or the
 * last NaN. Backward writes each pixel's gradient once. */
#include "tensor/kernel/vector/isa/vector.h"

typedef uint8_t tap_bytes __attribute__((vector_size(W), aligned(1), may_alias));

typedef struct pooling {
    const tutti__pool_shape *s;
    const float *from;
    float *to;
    uint8_t *taps;
    bool streams; /* `to` is stored non-temporally */
} pooling;

INLINE vec choose(veci which, vec a, vec b)
{
    return (vec)((which & (veci)a) | (~which & (veci)b));
}

static void forward_plane(void *arg, int64_t plane, int member)
{
    const pooling *p = arg;
    const tutti__pool_shape *s = p->s;
    const int64_t row = s->in_w * W, at = plane * s->out_h * s->out_w * W;
    const float *x = p->from + plane * s->in_h * row;

    (void)member;
    for (int64_t k = 0; k < s->out_h * s->out_w; k++) {
        const float *window =
            x + k / s->out_w * s->stride[0] * row + k % s->out_w * s->stride[1] * W;
        vec best = *(const vec_at *)window;
        veci tap = {0};

        for (int i = 0; i < s->kernel[0]; i++)
            for (int j = 0; j < s->kernel[1]; j++) {
                const vec v = *(const vec_at *)(window + i * row + j * W);
                const veci above = (veci)(v > best) | (veci)(v != v);

                best = choose(above, v, best);
                tap = (above & (i * s->kernel[1] + j)) | (~above & tap);
            }
        *(vec_at *)(p->to + at + k * W) = best;
        *(tap_bytes *)(p->taps + at + k * W) = __builtin_convertvector(tap, tap_bytes);
    }
}

INLINE void put(const pooling *p, float *to, vec v)
{
    if (p->streams)
        stream(to, v);
    else
        *(vec_at *)to = v;
}

/* A row of dx: of the windows whose first pixels' gradients are at `at`, their row i; at < 0: of none. */
INLINE void backward_row(const pooling *p, float *dx, int64_t at, int i)
{
    const tutti__pool_shape *s = p->s;
    int64_t w = 0;

    for (int64_t k = 0; at >= 0 && k < s->out_w; k++) {
        const vec dy = *(const vec_at *)(p->from + at + k * W);
        const veci tap = __builtin_convertvector(*(const tap_bytes *)(p->taps + at + k * W), veci);

        for (int j = 0; j < s->kernel[1]; j++, w++)
            put(p, dx + w * W, choose(tap == i * s->kernel[1] + j, dy, (vec){0}));
        for (int j = s->kernel[1]; j < s->stride[1] && w < s->in_w; j++, w++)
            put(p, dx + w * W, (vec){0});
    }
    for (; w < s->in_w; w++)
        put(p, dx + w * W, (vec){0});
}

static void backward_plane(void *arg, int64_t plane, int member)
{
    const pooling *p = arg;
    const tutti__pool_shape *s = p->s;

    (void)member;
    for (int64_t h = 0; h < s->in_h; h++) {
        const int64_t window = h / s->stride[0];
        const int i = (int)(h % s->stride[0]);
        const bool inside = window < s->out_h && i < s->kernel[0];

        backward_row(p, p->to + (plane * s->in_h + h) * s->in_w * W,
                     inside ? (plane * s->out_h + window) * s->out_w * W : -1, i);
    }
    if (p->streams)
        streamed();
}

void tutti__max_pool_forward(tutti_ctx *cx, const tutti__pool_shape *s, float *y, uint8_t *taps,
                             const float *x)
{
    pooling p = {s, x, y, taps, false};

    tutti__parallel(cx, forward_plane, &p, s->planes);
}

/* Bytes of dx from which it is stored non-temporally: it leaves the cache before it is read. */
#define STREAM_BYTES ((int64_t)512 << 10)

void tutti__max_pool_backward(tutti_ctx *cx, const tutti__pool_shape *s, float *dx, const float *dy,
                              uint8_t *taps)
{
    const int64_t bytes = s->planes * s->in_h * s->in_w * (int64_t)sizeof(vec);
    pooling p = {s, dy, dx, taps, bytes >= STREAM_BYTES && (uintptr_t)dx % sizeof(vec) == 0};

    tutti__parallel(cx, backward_plane, &p, s->planes);
}
