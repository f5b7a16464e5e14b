/* flat.cu -- arithmetic over flat memory: optimizers, norms, 16 bit.   SPDX-License-Identifier: MIT */
#include "device/cuda/cuda_flat.h"
#include "device/cuda/module/lanes.cuh"
#include "device/cuda/module/reduce.cuh"
#include "device/cuda/module/squares.cuh"

#include <string.h>

/* ---- Element by element, in the CPU's order of operations ---- */

struct Fill {
    float *p;
    float value;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x;

        for (int k = 0; k < V; k++)
            x[k] = value;
        store<V>(p + i, x);
    }
};

struct Scale {
    float *p;
    float factor;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i);

        for (int k = 0; k < V; k++)
            x[k] *= factor;
        store<V>(p + i, x);
    }
};

struct Sgd {
    float *p;
    const float *g;
    float *buffer;
    tutti__sgd c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i), d = load<V>(g + i), b;

        for (int k = 0; k < V; k++)
            d[k] = d[k] + c.decay * x[k];
        if (buffer) {
            b = load<V>(buffer + i);
            for (int k = 0; k < V; k++) {
                b[k] = c.momentum * b[k] + c.fresh * d[k];
                d[k] = c.nesterov ? d[k] + c.momentum * b[k] : b[k];
            }
            store<V>(buffer + i, b);
        }
        for (int k = 0; k < V; k++)
            x[k] -= c.lr * d[k];
        store<V>(p + i, x);
    }
};

struct Adam {
    float *p;
    const float *g;
    float *m, *v;
    tutti__adam c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i), d = load<V>(g + i), mean = load<V>(m + i),
                 square = load<V>(v + i);

        for (int k = 0; k < V; k++) {
            const float kept = c.keep * x[k];

            d[k] = d[k] + c.decay * x[k];
            mean[k] = mean[k] + c.fresh1 * (d[k] - mean[k]);
            square[k] = c.beta2 * square[k] + c.fresh2 * d[k] * d[k];
            x[k] = kept - c.rate * mean[k] / (sqrtf(square[k]) / c.root + c.eps);
        }
        store<V>(m + i, mean);
        store<V>(v + i, square);
        store<V>(p + i, x);
    }
};

struct Rmsprop {
    float *p;
    const float *g;
    float *square, *mean, *buffer;
    tutti__rmsprop c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i), d = load<V>(g + i), s = load<V>(square + i), m, b;

        if (mean)
            m = load<V>(mean + i);
        if (buffer)
            b = load<V>(buffer + i);
        for (int k = 0; k < V; k++) {
            float v, a;

            d[k] = d[k] + c.decay * x[k];
            s[k] = c.alpha * s[k] + c.fresh * d[k] * d[k];
            v = s[k];
            if (mean) {
                m[k] = m[k] + c.fresh * (d[k] - m[k]);
                v = s[k] - m[k] * m[k];
            }
            a = sqrtf(v < 0 ? 0 : v) + c.eps;
            if (buffer) {
                b[k] = c.momentum * b[k] + d[k] / a;
                x[k] -= c.lr * b[k];
            } else {
                x[k] -= c.lr * d[k] / a;
            }
        }
        store<V>(square + i, s);
        if (mean)
            store<V>(mean + i, m);
        if (buffer)
            store<V>(buffer + i, b);
        store<V>(p + i, x);
    }
};

struct Adagrad {
    float *p;
    const float *g;
    float *sum;
    tutti__adagrad c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i), d = load<V>(g + i), s = load<V>(sum + i);

        for (int k = 0; k < V; k++) {
            d[k] = d[k] + c.decay * x[k];
            s[k] = s[k] + c.start + d[k] * d[k];
            x[k] -= c.rate * d[k] / (sqrtf(s[k]) + c.eps);
        }
        store<V>(sum + i, s);
        store<V>(p + i, x);
    }
};

struct Clamp {
    float *p;
    float limit;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> x = load<V>(p + i);

        for (int k = 0; k < V; k++)
            x[k] = x[k] < -limit ? -limit : x[k] > limit ? limit : x[k];
        store<V>(p + i, x);
    }
};

template <class To, class From>
struct Convert {
    To *to;
    const From *from;
    template <int V>
    METHOD void run(int64_t i) const
    {
        store<V>(to + i, load<V>(from + i));
    }
};

static tutti_status fill(int device, void *stream, float *p, size_t n, float value)
{
    return map(device, stream, Fill{p, value}, (int64_t)n, aligned(p));
}

static tutti_status scale(int device, void *stream, float *p, size_t n, float factor)
{
    return map(device, stream, Scale{p, factor}, (int64_t)n, aligned(p));
}

KERNEL void count_kernel(int64_t *p)
{
    EACH_THREAD(t)
    {
        if (t == 0)
            ++*p;
    }
}

static tutti_status count(int device, void *stream, int64_t *p)
{
    return launch(device, stream, 1, count_kernel, p);
}

static tutti_status sgd(int device, void *stream, float *p, const float *g, float *buffer, size_t n,
                        const tutti__sgd *c)
{
    return map(device, stream, Sgd{p, g, buffer, *c}, (int64_t)n, aligned(p, g, buffer));
}

static tutti_status adam(int device, void *stream, float *p, const float *g, float *m, float *v,
                         size_t n, const tutti__adam *c)
{
    return map(device, stream, Adam{p, g, m, v, *c}, (int64_t)n, aligned(p, g, m, v));
}

static tutti_status rmsprop(int device, void *stream, float *p, const float *g, float *square,
                            float *mean, float *buffer, size_t n, const tutti__rmsprop *c)
{
    return map(device, stream, Rmsprop{p, g, square, mean, buffer, *c}, (int64_t)n,
               aligned(p, g, square, mean, buffer));
}

static tutti_status adagrad(int device, void *stream, float *p, const float *g, float *sum,
                            size_t n, const tutti__adagrad *c)
{
    return map(device, stream, Adagrad{p, g, sum, *c}, (int64_t)n, aligned(p, g, sum));
}

static tutti_status clamp(int device, void *stream, float *p, size_t n, float limit)
{
    return map(device, stream, Clamp{p, limit}, (int64_t)n, aligned(p));
}

static tutti_status narrowed(int device, void *stream, void *to, const float *from, size_t n,
                             tutti_dtype dtype)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, Convert<T, float>{(T *)to, from}, (int64_t)n, aligned(to, from));
    });
}

static tutti_status widened(int device, void *stream, float *to, const void *from, size_t n,
                            tutti_dtype dtype)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, Convert<float, T>{to, (const T *)from}, (int64_t)n,
                   aligned(to, from));
    });
}

/* ---- Over spans: as many per launch as fit into its arguments ---- */

static constexpr int SPANS = 120;
static constexpr int64_t PART = THREADS * LANES * 8; /* elements per block */

struct Spans {
    tutti__flat_span span[SPANS];
    int64_t first[SPANS + 1]; /* block of each span */
    int n;
};

/* The part of a span that this block computes. */
struct Stretch {
    float *p;
    int64_t n;
};

DEVICE Stretch stretch_of(const Spans &s)
{
    const int64_t block = block_index();
    int low = 0, high = s.n - 1;

    while (low < high) { /* the last span whose first block is not after this one */
        const int middle = (low + high + 1) / 2;

        if (s.first[middle] <= block)
            low = middle;
        else
            high = middle - 1;
    }
    const int64_t from = (block - s.first[low]) * PART, left = (int64_t)s.span[low].n - from;

    return Stretch{s.span[low].p + from, left < PART ? left : PART};
}

/* Calls f(table, blocks before it) for all spans, SPANS per table. */
template <class F>
static tutti_status each_table(const tutti__flat_span *spans, size_t n, F f)
{
    int64_t before = 0;

    for (size_t at = 0; at < n;) {
        Spans s;

        s.n = 0;
        s.first[0] = 0;
        for (; at < n && s.n < SPANS; at++) {
            if (spans[at].n == 0)
                continue;
            s.span[s.n] = spans[at];
            s.first[s.n + 1] = s.first[s.n] + blocks_of((int64_t)spans[at].n, PART);
            s.n++;
        }
        const tutti_status status = f(s, before);

        if (status != TUTTI_OK)
            return status;
        before += s.first[s.n];
    }
    return TUTTI_OK;
}

KERNEL void sum_squares_kernel(const Spans s, tutti__squares *partial)
{
    const Stretch stretch = stretch_of(s);
    Own<Squares> sum;

    EACH_THREAD(t)
    {
        const bool vectors = ((uintptr_t)stretch.p & 15) == 0;
        Squares all = {};

        for (int64_t i = (int64_t)t * LANES; i < stretch.n; i += THREADS * LANES) {
            if (vectors && i + LANES <= stretch.n)
                all.add(load<LANES>(stretch.p + i));
            else
                for (int64_t k = i; k < i + LANES && k < stretch.n; k++)
                    all.add(load<1>(stretch.p + k));
        }
        sum[t] = all;
    }
    reduce_squares(sum, &partial[block_index()]);
}

KERNEL void sum_partial_kernel(const tutti__squares *partial, const int64_t n, tutti__squares *to)
{
    Own<Squares> sum;

    EACH_THREAD(t)
    {
        Squares all = {};

        for (int64_t i = t; i < n; i += THREADS)
            all.add(partial[i]);
        sum[t] = all;
    }
    reduce_squares(sum, to);
}

static size_t sum_squares_partial(const tutti__flat_span *spans, size_t n)
{
    size_t blocks = 0;

    for (size_t i = 0; i < n; i++)
        blocks += (size_t)blocks_of((int64_t)spans[i].n, PART);
    return blocks;
}

static tutti_status sum_squares(int device, void *stream, const tutti__flat_span *spans, size_t n,
                                tutti__squares *partial, tutti__squares *sum)
{
    const tutti_status status = each_table(spans, n, [=](const Spans &s, int64_t before) {
        return launch(device, stream, s.first[s.n], sum_squares_kernel, s, partial + before);
    });

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, 1, sum_partial_kernel, partial,
                  (int64_t)sum_squares_partial(spans, n), sum);
}

/* x * 0 is 0 for every finite x, else NaN. All blocks that find something write the same value. */
KERNEL void unscale_kernel(const Spans s, const float factor, int32_t *found)
{
    const Stretch stretch = stretch_of(s);

    EACH_THREAD(t)
    {
        const bool vectors = ((uintptr_t)stretch.p & 15) == 0;
        float nothing = 0;

        for (int64_t i = (int64_t)t * LANES; i < stretch.n; i += THREADS * LANES) {
            if (vectors && i + LANES <= stretch.n) {
                Lanes<LANES> x = load<LANES>(stretch.p + i);

                for (int k = 0; k < LANES; k++) {
                    nothing += x[k] * 0.0f;
                    x[k] *= factor;
                }
                store<LANES>(stretch.p + i, x);
            } else {
                for (int64_t k = i; k < i + LANES && k < stretch.n; k++) {
                    nothing += stretch.p[k] * 0.0f;
                    stretch.p[k] *= factor;
                }
            }
        }
        if (nothing != 0)
            *found = 1;
    }
}

static tutti_status unscale(int device, void *stream, const tutti__flat_span *spans, size_t n,
                            float factor, int32_t *found)
{
    return each_table(spans, n, [=](const Spans &s, int64_t) {
        return launch(device, stream, s.first[s.n], unscale_kernel, s, factor, found);
    });
}

/* Not finite: all bits of the exponent are set. */
template <class T>
struct FindNonfinite {
    const T *p;
    T mask;
    int32_t *found;
    template <int V>
    METHOD void run(int64_t i) const
    {
        const Pack<T, V> x = *(const Pack<T, V> *)(p + i);
        bool any = false;

        for (int k = 0; k < V; k++)
            any |= (x.v[k] & mask) == mask;
        if (any)
            *found = 1;
    }
};

template <class T>
static tutti_status find(int device, void *stream, const void *p, size_t n, T mask, int32_t *found)
{
    return map(device, stream, FindNonfinite<T>{(const T *)p, mask, found}, (int64_t)n, aligned(p));
}

static tutti_status find_nonfinite(int device, void *stream, const void *p, size_t n,
                                   tutti_dtype dtype, int32_t *found)
{
    switch (dtype) {
    case TUTTI_F32:
        return find(device, stream, p, n, UINT32_C(0x7f800000), found);
    case TUTTI_F64:
        return find(device, stream, p, n, UINT64_C(0x7ff0000000000000), found);
    case TUTTI_F16:
        return find(device, stream, p, n, (uint16_t)0x7c00, found);
    case TUTTI_BF16:
        return find(device, stream, p, n, (uint16_t)0x7f80, found);
    default: /* integers are finite */
        return TUTTI_OK;
    }
}

/* ---- Sums that do not depend on the order: elementwise as on the CPU ---- */

/* *to becomes the larger of the two. */
DEVICE void keep_largest(uint32_t *to, uint32_t bits)
{
#ifdef TUTTI_CUDA_HOST
    *to = bits > *to ? bits : *to;
#else
    atomicMax(to, bits);
#endif
}

DEVICE void keep_total(uint64_t *to, unsigned long long more)
{
#ifdef TUTTI_CUDA_HOST
    *to += more;
#else
    atomicAdd((unsigned long long *)to, more);
#endif
}

/* Calls f(i, sum) for each i of the block's part, which returns bits and adds to its sum. *largest becomes the maximum of the bits and
 * itself, *total grows by the sums. */
template <class F>
KERNEL void fixed_kernel(const F f, const int64_t n, const tutti__fixed_seen seen)
{
    const int64_t from = block_index() * PART;
    Own<uint32_t> most;
    Own<unsigned long long> total;

    EACH_THREAD(t)
    {
        uint32_t all = 0;
        uint64_t sum = 0;

        for (int64_t i = from + t; i < n && i < from + PART; i += THREADS) {
            const uint32_t bits = f(i, sum);

            all = bits > all ? bits : all;
        }
        most[t] = all;
        total[t] = sum;
    }
    reduce<THREADS>(most, Max());
    reduce<THREADS>(total, Sum());
    EACH_THREAD(t)
    {
        if (t == 0) {
            keep_largest(seen.largest, most[t]);
            keep_total(seen.total, total[t]);
        }
    }
}

template <class F>
static tutti_status each_fixed(int device, void *stream, const F &f, size_t n,
                               const tutti__fixed_seen *seen)
{
    return launch(device, stream, blocks_of((int64_t)n, PART), fixed_kernel<F>, f, (int64_t)n,
                  *seen);
}

/* T: uint64_t or uint32_t. */
template <class T>
struct FixedAdd {
    T *sums;
    const float *g;
    double scale;
    bool first;
    METHOD uint32_t operator()(int64_t i, uint64_t &total) const
    {
        const double whole = 6755399441055744.0; /* 1.5 * 2^52 */
        const double x = (double)g[i] * scale + whole;
        uint64_t bits;

        memcpy(&bits, &x, sizeof bits);
        const T term = (T)(bits - UINT64_C(0x4338000000000000));
        sums[i] = first ? term : sums[i] + term;
        total += term;
        return magnitude(g[i]);
    }
};

template <class T>
struct FixedJoin {
    T *sums;
    const T *more;
    template <int V>
    METHOD void run(int64_t i) const
    {
        for (int k = 0; k < V; k++)
            sums[i + k] += more[i + k];
    }
};

DEVICE double double_of(uint64_t sum)
{
    return (double)(int64_t)sum;
}
DEVICE double double_of(uint32_t sum)
{
    return (double)(int32_t)sum;
}

template <class T>
struct FixedMean {
    float *mean;
    const T *sums;
    double unit, count;
    METHOD uint32_t operator()(int64_t i, uint64_t &total) const
    {
        total += sums[i];
        mean[i] = (float)(double_of(sums[i]) * unit / count);
        return magnitude(mean[i]);
    }
};

static tutti_status fixed_add(int device, void *stream, void *sums, const float *g, size_t n,
                              const tutti__fixed *f, bool first, const tutti__fixed_seen *seen)
{
    const double scale = ldexp(1, f->exponent);

    if (f->bits == 64)
        return each_fixed(device, stream, FixedAdd<uint64_t>{(uint64_t *)sums, g, scale, first}, n,
                          seen);
    return each_fixed(device, stream, FixedAdd<uint32_t>{(uint32_t *)sums, g, scale, first}, n,
                      seen);
}

static tutti_status fixed_join(int device, void *stream, void *sums, const void *more, size_t n,
                               const tutti__fixed *f)
{
    if (f->bits == 64)
        return map(device, stream, FixedJoin<uint64_t>{(uint64_t *)sums, (const uint64_t *)more},
                   (int64_t)n, aligned(sums, more));
    return map(device, stream, FixedJoin<uint32_t>{(uint32_t *)sums, (const uint32_t *)more},
               (int64_t)n, aligned(sums, more));
}

static tutti_status fixed_mean(int device, void *stream, float *mean, const void *sums, size_t n,
                               const tutti__fixed *f, int count, const tutti__fixed_seen *seen)
{
    const double unit = ldexp(1, -f->exponent);

    if (f->bits == 64)
        return each_fixed(device, stream,
                          FixedMean<uint64_t>{mean, (const uint64_t *)sums, unit, (double)count}, n,
                          seen);
    return each_fixed(device, stream,
                      FixedMean<uint32_t>{mean, (const uint32_t *)sums, unit, (double)count}, n,
                      seen);
}

const tutti__cuda_flat tutti__cuda_flat_table = {
    fill,        scale,      count,
    sgd,         adam,       rmsprop,
    adagrad,     clamp,      sum_squares_partial,
    sum_squares, unscale,    find_nonfinite,
    narrowed,    widened,    fixed_add,
    fixed_join,  fixed_mean,
};
