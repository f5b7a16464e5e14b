/* fingerprint.c -- digest, norm and signed sum of elements, in one pass over memory.   SPDX-License-Identifier: MIT */
#include "device/fingerprint.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { LANES = TUTTI__FINGERPRINT_LANES, TABLE = 1024 };

/* t(0), t(1), ... and a(0), a(1), ..., and the loop for this CPU, once set_up has run. */
static double signs[TABLE];
static uint32_t keys[TABLE];
static tutti__fingerprint_run *run;

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

static void set_up(void)
{
    for (size_t k = 0; k < TABLE; k++) {
        signs[k] = sign(k);
        keys[k] = (uint32_t)splitmix64(k) | 1;
    }
    run = tutti__fingerprint_run_at(0);
}

/* Of n elements from k on in a row of the table. */
static void add_values(tutti__fingerprint_parts *parts, const float *x, const uint32_t *w, size_t k,
                       size_t n)
{
    const size_t whole = n - n % LANES;

    if (whole > 0)
        run(parts, x, signs + k, w, keys + k, whole);
    for (size_t i = whole; i < n; i++) {
        const double v = (double)x[i];
        uint32_t word;

        memcpy(&word, w + i, sizeof word);
        parts->squares[i - whole] += v * v;
        parts->dot[i - whole] += v * signs[k + i];
        parts->digest += (uint64_t)word * keys[k + i];
    }
}

static void add_one(tutti__fingerprint_parts *parts, uint64_t word, double v, size_t k)
{
    parts->squares[k % LANES] += v * v;
    parts->dot[k % LANES] += v * signs[k];
    parts->digest += word * keys[k];
}

static void add_row(tutti__fingerprint_parts *parts, const void *p, tutti_dtype dtype, size_t k,
                    size_t n)
{
    uint32_t words[TABLE];
    float values[TABLE];

    switch (dtype) {
    case TUTTI_F32:
        add_values(parts, p, p, k, n);
        break;
    case TUTTI_BF16:
    case TUTTI_F16:
        for (size_t i = 0; i < n; i++)
            words[i] = ((const uint16_t *)p)[i];
        tutti__half_to_f32(values, p, n, dtype);
        add_values(parts, values, words, k, n);
        break;
    case TUTTI_I64:
        for (size_t i = 0; i < n; i++)
            add_one(parts, ((const uint64_t *)p)[i], (double)((const int64_t *)p)[i], k + i);
        break;
    default:
        for (size_t i = 0; i < n; i++)
            add_one(parts, ((const unsigned char *)p)[i], ((const unsigned char *)p)[i], k + i);
    }
}

void tutti__fingerprint_add(tutti__fingerprint_sums *sums, const void *p, size_t n, size_t first)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const size_t size = tutti_dtype_size(sums->dtype);
    tutti__fingerprint_parts parts = {.digest = 0};

    pthread_once(&once, set_up);
    memcpy(parts.squares, sums->squares, sizeof parts.squares);
    for (size_t i = 0, here; i < n; i += here) {
        const size_t row = (first + i) / TABLE, k = (first + i) % TABLE;
        const double row_sign = sign(TABLE + row);

        here = TABLE - k < n - i ? TABLE - k : n - i;
        memset(parts.dot, 0, sizeof parts.dot);
        parts.digest = 0;
        add_row(&parts, (const char *)p + i * size, sums->dtype, k, here);
        for (int l = 0; l < LANES; l++)
            sums->dot[l] += row_sign * parts.dot[l];
        sums->digest += parts.digest * (splitmix64(TABLE + row) | 1);
    }
    memcpy(sums->squares, parts.squares, sizeof parts.squares);
}

tutti__fingerprint tutti__fingerprint_end(const tutti__fingerprint_sums *sums)
{
    double squares = 0, dot = 0;

    for (int l = 0; l < LANES; l++) {
        squares += sums->squares[l];
        dot += sums->dot[l];
    }
    return (tutti__fingerprint){sums->digest, sqrt(squares), dot};
}

typedef struct parts_of {
    tutti__fingerprint_sums sums;
    size_t at;
} parts_of;

static void add_part(void *arg, const void *part, size_t bytes)
{
    parts_of *of = arg;
    const size_t n = bytes / tutti_dtype_size(of->sums.dtype);

    tutti__fingerprint_add(&of->sums, part, n, of->at);
    of->at += n;
}

tutti_status tutti__fingerprint_of(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                   size_t n, tutti_dtype dtype, size_t first)
{
    parts_of of = {.sums.dtype = dtype, .at = first};
    const tutti_status status =
        tutti__read_parts(stream, p, n * tutti_dtype_size(dtype), add_part, &of);

    *f = tutti__fingerprint_end(&of.sums);
    return status;
}
