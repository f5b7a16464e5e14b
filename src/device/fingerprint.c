/* fingerprint.c -- digest, norm and signed sum of elements, in one pass over memory.   SPDX-License-Identifier: MIT */
#include "device/fingerprint.h"

#include <math.h>

/* LANES parts of each sum; elements with one table of signs; elements that are hashed and summed while they are in the cache. */
enum { LANES = 16, TABLE = 1024, BLOCK = 1 << 13 };

typedef struct sums {
    tutti_dtype dtype;
    tutti__hash64_state *hash;
    double squares[LANES], dot[LANES];
    double signs[TABLE];
    size_t at; /* place of the next element */
} sums;

static uint64_t splitmix64(uint64_t number)
{
    uint64_t z = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double sign(size_t k)
{
    return splitmix64(k / 64) >> k % 64 & 1 ? -1 : 1;
}

static void set_signs(sums *t)
{
    for (size_t k = 0; k < TABLE; k += 64) {
        const uint64_t bits = splitmix64(k / 64);

        for (size_t i = 0; i < 64; i++)
            t->signs[k + i] = bits >> i & 1 ? -1 : 1;
    }
}

typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64), aligned(8), may_alias));

/* Whole groups of LANES elements, of one table of signs. The product of two floats is exact in double. */
TUTTI__CLONES
static void add_groups(double *squares, double *dot, const float *x, const double *signs, size_t n)
{
    doubles s0 = *(doubles *)squares, s1 = *(doubles *)(squares + 8), d0 = {0}, d1 = {0};

    for (size_t i = 0; i < n; i += LANES) {
        const doubles v0 = __builtin_convertvector(*(const floats *)(x + i), doubles);
        const doubles v1 = __builtin_convertvector(*(const floats *)(x + i + 8), doubles);

        s0 += v0 * v0;
        s1 += v1 * v1;
        d0 += v0 * *(const doubles *)(signs + i);
        d1 += v1 * *(const doubles *)(signs + i + 8);
    }
    *(doubles *)squares = s0;
    *(doubles *)(squares + 8) = s1;
    *(doubles *)dot = d0;
    *(doubles *)(dot + 8) = d1;
}

static void add_one(sums *t, double v)
{
    const size_t k = t->at % TABLE;

    t->squares[k % LANES] += v * v;
    t->dot[k % LANES] += v * t->signs[k] * sign(TABLE + t->at / TABLE);
    t->at++;
}

static void add_f32(sums *t, const float *x, size_t n)
{
    size_t i = 0;

    while (i < n) {
        const size_t k = t->at % TABLE;
        size_t here = TABLE - k < n - i ? TABLE - k : n - i;
        double dot[LANES];

        here -= here % LANES;
        if (k % LANES || here == 0) {
            add_one(t, (double)x[i++]);
            continue;
        }
        add_groups(t->squares, dot, x + i, t->signs + k, here);
        for (int l = 0; l < LANES; l++)
            t->dot[l] += sign(TABLE + t->at / TABLE) * dot[l];
        t->at += here;
        i += here;
    }
}

static void add_block(sums *t, const void *p, size_t n)
{
    float f32[BLOCK];

    switch (t->dtype) {
    case TUTTI_F32:
        add_f32(t, p, n);
        break;
    case TUTTI_BF16:
    case TUTTI_F16:
        tutti__half_to_f32(f32, p, n, t->dtype);
        add_f32(t, f32, n);
        break;
    case TUTTI_I64:
        for (size_t i = 0; i < n; i++)
            add_one(t, (double)((const int64_t *)p)[i]);
        break;
    default:
        for (size_t i = 0; i < n * tutti_dtype_size(t->dtype); i++)
            add_one(t, ((const unsigned char *)p)[i]);
    }
}

/* Blocks of it, which are hashed and summed while they are in the cache. */
static void add(void *arg, const void *part, size_t bytes)
{
    sums *t = arg;
    const size_t block = BLOCK * tutti_dtype_size(t->dtype);

    for (size_t at = 0; at < bytes; at += block) {
        const size_t here = bytes - at < block ? bytes - at : block;
        const char *from = (const char *)part + at;

        tutti__hash64_add(t->hash, from, here);
        add_block(t, from, here / tutti_dtype_size(t->dtype));
    }
}

tutti_status tutti__fingerprint_of(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                   size_t n, tutti_dtype dtype, size_t first)
{
    sums t = {.dtype = dtype, .hash = tutti__hash64_new(), .at = first};
    double squares = 0, dot = 0;
    tutti_status status;

    *f = (tutti__fingerprint){0};
    if (!t.hash)
        return TUTTI_ERR_MEMORY;
    set_signs(&t);
    status = tutti__read_parts(stream, p, n * tutti_dtype_size(dtype), add, &t);
    for (int l = 0; l < LANES; l++) {
        squares += t.squares[l];
        dot += t.dot[l];
    }
    *f = (tutti__fingerprint){tutti__hash64_end(t.hash), sqrt(squares), dot};
    return status;
}
