/* batch_norm.cu -- batch norm with residual and relu, channels last.   SPDX-License-Identifier: MIT
 *
 * Forward reads x twice: for the moments, and to normalise. A thread's deviations are from its own first value, and
 * moments are joined by the formula of Chan, Golub and LeVeque, so that large means lose no precision. Backward reads x,
 * dy and y twice: for the sums, and for dx; if dresidual, which is g, is wanted, the second pass reads it instead of dy
 * and y. */
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/columns.cuh"
#include "tensor/kernel/cuda/module/families.cuh"

static bool can_vector(int64_t channels)
{
    return channels % LANES == 0;
}

size_t tutti__own_batch_norm_scratch(int64_t rows, int64_t channels)
{
    const int64_t wide_chunks = columns_for_sums(rows, channels, can_vector(channels)).chunks;
    const int64_t chunks = columns_for_sums(rows, channels, false).chunks;

    return (size_t)(2 * channels * (wide_chunks > chunks ? wide_chunks : chunks)) * sizeof(float);
}

/* ---- Moments ---- */

/* How many of n rows a thread processes that takes every step-th one, beginning with its own. */
DEVICE int64_t share(int64_t n, int64_t own, int64_t step)
{
    return own < n ? (n - own + step - 1) / step : 0;
}

/* Joins the mean and squared deviations of n values with those of m others. */
DEVICE void join(float n, float *mean, float *squares, float m, float other_mean,
                 float other_squares)
{
    const float d = other_mean - *mean, part = m / (n + m);

    if (m > 0) { /* rows are assigned round robin: then n > 0 */
        *mean += d * part;
        *squares += other_squares + d * d * n * part;
    }
}

template <class T, int V>
KERNEL void moments_kernel(const T *x, const Columns c, float *partial)
{
    SHARED float shared[2][V][THREADS];

    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);
        const int64_t n = p.row < p.end ? share(p.end - p.row, 0, p.step) : 0;
        Lanes<V> first = {}, sum = {}, squares = {};

        if (n > 0)
            first = load<V>(x + p.row * c.channels + p.channel);
        UNROLL
        for (int64_t row = p.row + p.step; row < p.end; row += p.step) {
            const Lanes<V> v = load<V>(x + row * c.channels + p.channel);

            for (int k = 0; k < V; k++) {
                const float d = v[k] - first[k];

                sum[k] += d;
                squares[k] += d * d;
            }
        }
        for (int k = 0; k < V; k++) {
            const float mean = n > 0 ? sum[k] / (float)n : 0;

            shared[0][k][t] = first[k] + mean;
            shared[1][k][t] = squares[k] - sum[k] * mean;
        }
    }
    for (int half = THREADS / c.lanes / 2; half > 0; half /= 2) {
        block_barrier();
        EACH_THREAD(t)
        {
            const Place p = place_of<V>(c, t);
            const int own = t / c.lanes;
            const int64_t rows = p.end - p.chunk * c.chunk;

            if (own < half)
                for (int k = 0; k < V; k++)
                    join((float)share(rows, own, 2 * half), &shared[0][k][t], &shared[1][k][t],
                         (float)share(rows, own + half, 2 * half), shared[0][k][t + half * c.lanes],
                         shared[1][k][t + half * c.lanes]);
        }
    }
    block_barrier();
    store_partial<V, 2>(c, shared, partial);
}

DEVICE float blend(float running, double value, float momentum)
{
    return (float)((1 - (double)momentum) * (double)running + (double)momentum * value);
}

DEVICE void set_statistics(const tutti__cuda_batch_norm &c, const tutti__cuda_running &r, int64_t i,
                           double mean, double var)
{
    c.mean[i] = (float)mean;
    c.inv_std[i] = (float)(1 / sqrt(var + (double)r.eps));
}

/* Stores the moments of channel i, and updates the running ones. */
DEVICE void take_moments(const tutti__cuda_batch_norm &c, const tutti__cuda_running &r, int64_t i,
                         double mean, double squares)
{
    set_statistics(c, r, i, mean, squares / r.count);
    if (r.mean)
        r.mean[i] = blend(r.mean[i], mean, r.momentum);
    if (r.var)
        r.var[i] = blend(r.var[i], squares / (r.count - 1), r.momentum);
}

KERNEL void join_moments_kernel(const Columns c, const float *partial, double *moments,
                                const tutti__cuda_batch_norm to, const tutti__cuda_running r,
                                const bool statistics)
{
    Own<double> sum, squares;

    EACH_THREAD(t)
    {
        const int64_t channel = channel_of(t);
        double all = 0;

        if (channel < c.channels)
            for (int64_t i = t % WARP; i < c.chunks; i += WARP) {
                const int64_t left = c.rows - i * c.chunk;

                all += (double)(left < c.chunk ? left : c.chunk) *
                       (double)partial[channel * c.chunks + i];
            }
        sum[t] = all;
    }
    reduce<WARP>(sum, Sum());
    EACH_THREAD(t)
    {
        const int64_t channel = channel_of(t);
        const double mean = sum[t] / (double)c.rows;
        double all = 0;

        if (channel < c.channels)
            for (int64_t i = t % WARP; i < c.chunks; i += WARP) {
                const int64_t left = c.rows - i * c.chunk;
                const double d = (double)partial[channel * c.chunks + i] - mean;

                all += (double)partial[(c.channels + channel) * c.chunks + i] +
                       (double)(left < c.chunk ? left : c.chunk) * d * d;
            }
        squares[t] = all;
    }
    reduce<WARP>(squares, Sum());
    EACH_THREAD(t)
    {
        const int64_t channel = channel_of(t);
        const double mean = c.rows ? sum[t] / (double)c.rows : 0;

        if (t % WARP == 0 && channel < c.channels) {
            moments[channel] = mean;
            moments[c.channels + channel] = squares[t];
            if (statistics)
                take_moments(to, r, channel, mean, squares[t]);
        }
    }
}

tutti_status tutti__own_batch_norm_moments(int device, void *stream,
                                           const tutti__cuda_batch_norm *c, const void *x,
                                           void *scratch, double *moments,
                                           const tutti__cuda_running *r)
{
    const bool vectors = can_vector(c->channels) && aligned(x);
    const Columns columns = columns_for_sums(c->rows, c->channels, vectors);
    const tutti_status status = with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return vectors ? launch(device, stream, columns.tiles * columns.chunks,
                                moments_kernel<T, LANES>, (const T *)x, columns, (float *)scratch)
                       : launch(device, stream, columns.tiles * columns.chunks,
                                moments_kernel<T, 1>, (const T *)x, columns, (float *)scratch);
    });

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, blocks_of(c->channels, WARPS), join_moments_kernel, columns,
                  (const float *)scratch, moments, *c, r ? *r : tutti__cuda_running{}, r != NULL);
}

KERNEL void statistics_kernel(const tutti__cuda_batch_norm c, const double *moments,
                              const tutti__cuda_running r)
{
    EACH_THREAD(t)
    {
        const int64_t i = block_index() * THREADS + t;

        if (i < c.channels) {
            if (moments)
                take_moments(c, r, i, moments[i], moments[c.channels + i]);
            else
                set_statistics(c, r, i, (double)r.mean[i], (double)r.var[i]);
        }
    }
}

tutti_status tutti__own_batch_norm_statistics(int device, void *stream,
                                              const tutti__cuda_batch_norm *c,
                                              const double *moments, const tutti__cuda_running *r)
{
    return launch(device, stream, blocks_of(c->channels, THREADS), statistics_kernel, *c, moments,
                  *r);
}

/* ---- Normalising ---- */

template <class T>
struct Normalise {
    T *y;
    const T *x, *residual;
    const float *mean, *inv_std, *w, *b;
    bool relu;

    template <int V>
    struct Channels {
        const Normalise *f;
        Lanes<V> mean, scale, shift;

        METHOD void run(int64_t, int64_t i) const
        {
            Lanes<V> v = load<V>(f->x + i);

            for (int k = 0; k < V; k++)
                v[k] = (v[k] - mean[k]) * scale[k] + shift[k];
            if (f->residual) {
                const Lanes<V> extra = load<V>(f->residual + i);

                for (int k = 0; k < V; k++)
                    v[k] += extra[k];
            }
            for (int k = 0; k < V; k++)
                v[k] = f->relu && v[k] < 0 ? 0 : v[k];
            store<V>(f->y + i, v);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        Channels<V> c = {this, load<V>(mean + channel), load<V>(w + channel), load<V>(b + channel)};
        const Lanes<V> by = load<V>(inv_std + channel);

        for (int k = 0; k < V; k++)
            c.scale[k] *= by[k];
        return c;
    }
};

tutti_status tutti__own_batch_norm_apply(int device, void *stream, const tutti__cuda_batch_norm *c,
                                         void *y, const void *x, const void *residual)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream,
                           Normalise<T>{(T *)y, (const T *)x, (const T *)residual, c->mean,
                                        c->inv_std, c->w, c->b, c->relu},
                           c->rows, c->channels,
                           can_vector(c->channels) &&
                               aligned(y, x, residual, c->mean, c->inv_std, c->w, c->b));
    });
}

/* ---- Backward ---- */

/* dy, or 0 where the relu's output is 0; y NULL: no relu */
template <int V, class T>
DEVICE Lanes<V> behind_relu(const T *dy, const T *y, int64_t i)
{
    Lanes<V> g = load<V>(dy + i);

    if (y) {
        const Lanes<V> v = load<V>(y + i);

        for (int k = 0; k < V; k++)
            g[k] = v[k] <= 0 ? 0 : g[k];
    }
    return g;
}

template <class T>
struct GradientSums {
    static constexpr int Q = 2;
    const T *dy, *y, *x;
    T *dresidual;
    const float *mean, *inv_std;

    template <int V>
    struct Channels {
        const GradientSums *f;
        Lanes<V> mean, inv_std;

        METHOD void add(Lanes<V> *sum, int64_t, int64_t i) const
        {
            const Lanes<V> g = behind_relu<V>(f->dy, f->y, i), v = load<V>(f->x + i);

            for (int k = 0; k < V; k++) {
                sum[0][k] += g[k];
                sum[1][k] += g[k] * ((v[k] - mean[k]) * inv_std[k]);
            }
            if (f->dresidual)
                store<V>(f->dresidual + i, g);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, load<V>(mean + channel), load<V>(inv_std + channel)};
    }
};

/* Adds up the chunks' sums; n: of all channels, of one quantity or two. */
KERNEL void join_sums_kernel(const Columns c, const float *partial, const int64_t n,
                             const tutti__cuda_sums to)
{
    Own<double> sum;

    EACH_THREAD(t)
    {
        const int64_t i = channel_of(t);
        double all = 0;

        if (i < n)
            for (int64_t k = t % WARP; k < c.chunks; k += WARP)
                all += (double)partial[i * c.chunks + k];
        sum[t] = all;
    }
    reduce<WARP>(sum, Sum());
    EACH_THREAD(t)
    {
        const int64_t i = channel_of(t);
        const bool first = i < c.channels;
        float *gradient = first ? to.db : to.dw;

        if (t % WARP == 0 && i < n) {
            if (to.sums)
                to.sums[i] = sum[t];
            if (gradient) {
                gradient += first ? i : i - c.channels;
                *gradient =
                    (float)((first ? to.add_db : to.add_dw) ? (double)*gradient + sum[t] : sum[t]);
            }
        }
    }
}

tutti_status tutti__own_batch_norm_sums(int device, void *stream, const tutti__cuda_batch_norm *c,
                                        const void *dy, const void *y, const void *x,
                                        void *dresidual, void *scratch, const tutti__cuda_sums *to)
{
    const bool vectors =
        can_vector(c->channels) && aligned(dy, y, x, dresidual, c->mean, c->inv_std);
    const Columns columns = columns_for_sums(c->rows, c->channels, vectors);
    const tutti_status status = with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_sum(device, stream,
                           GradientSums<T>{(const T *)dy, c->relu ? (const T *)y : NULL,
                                           (const T *)x, (T *)dresidual, c->mean, c->inv_std},
                           columns, (float *)scratch, vectors);
    });

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, blocks_of(2 * c->channels, WARPS), join_sums_kernel, columns,
                  (const float *)scratch, 2 * c->channels, *to);
}

template <class T>
struct Gradient {
    T *dx;
    const T *dy, *y, *x;
    const float *mean, *inv_std, *w;
    const double *sums;
    double share; /* 1 / count */
    int64_t channels;

    template <int V>
    struct Channels {
        const Gradient *f;
        Lanes<V> mean, inv_std, factor, of_sum, slope;

        METHOD void run(int64_t, int64_t i) const
        {
            Lanes<V> g = behind_relu<V>(f->dy, f->y, i);
            const Lanes<V> v = load<V>(f->x + i);

            for (int k = 0; k < V; k++) {
                const float xhat = (v[k] - mean[k]) * inv_std[k];

                g[k] = factor[k] * (g[k] - of_sum[k] - xhat * slope[k]);
            }
            store<V>(f->dx + i, g);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        Channels<V> c = {
            this, load<V>(mean + channel), load<V>(inv_std + channel), load<V>(w + channel), {},
            {}};

        for (int k = 0; k < V; k++) {
            c.factor[k] *= c.inv_std[k];
            c.of_sum[k] = (float)(sums[channel + k] * share);
            c.slope[k] = (float)(sums[channels + channel + k] * share);
        }
        return c;
    }
};

tutti_status tutti__own_batch_norm_gradient(int device, void *stream,
                                            const tutti__cuda_batch_norm *c, const double *sums,
                                            double count, void *dx, const void *dy, const void *y,
                                            const void *x)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(
            device, stream,
            Gradient<T>{(T *)dx, (const T *)dy, c->relu ? (const T *)y : NULL, (const T *)x,
                        c->mean, c->inv_std, c->w, sums, 1 / count, c->channels},
            c->rows, c->channels,
            can_vector(c->channels) && aligned(dx, dy, y, x, c->mean, c->inv_std, c->w));
    });
}

/* ---- The gradient of a bias ---- */

template <class T>
struct RowSums {
    static constexpr int Q = 1;
    const T *x;

    template <int V>
    struct Channels {
        const T *x;
        METHOD void add(Lanes<V> *sum, int64_t, int64_t i) const
        {
            const Lanes<V> v = load<V>(x + i);

            for (int k = 0; k < V; k++)
                sum[0][k] += v[k];
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t) const
    {
        return Channels<V>{x};
    }
};

tutti_status tutti__own_sum_rows(int device, void *stream, tutti_dtype dtype, float *to,
                                 const void *x, int64_t rows, int64_t channels, bool add,
                                 void *scratch)
{
    const bool vectors = can_vector(channels) && aligned(x);
    const Columns columns = columns_for_sums(rows, channels, vectors);
    const tutti_status status = with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return columns_sum(device, stream, RowSums<T>{(const T *)x}, columns, (float *)scratch,
                           vectors);
    });

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, blocks_of(channels, WARPS), join_sums_kernel, columns,
                  (const float *)scratch, channels, tutti__cuda_sums{NULL, to, NULL, add, false});
}
