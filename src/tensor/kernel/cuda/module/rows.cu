/* rows.cu -- softmax and losses, over rows of F32.   SPDX-License-Identifier: MIT
 *
 * A row is processed by a warp, or if long by a block. The logarithm of a row's sum is kept separate from its largest
 * element, so that large logits lose no precision. */
#include "base/real_f32.h"
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/arrays.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/kernel/cuda/module/groups.cuh"

/* largest: of the row; log_sum: log of the sum of exp(x - largest). If any element is NaN, log_sum is. */
template <int G>
DEVICE void log_sum_exp(const float *x, int64_t rows, int64_t width, Own<float> &largest,
                        Own<float> &log_sum)
{
    EACH_THREAD(t)
    {
        const float *row = x + row_of<G>(t) * width;
        float most = -INFINITY;

        if (row_of<G>(t) < rows)
            for (int64_t i = t % G; i < width; i += G)
                most = row[i] > most ? row[i] : most;
        largest[t] = most;
    }
    reduce<G>(largest, Max());
    EACH_THREAD(t)
    {
        const float *row = x + row_of<G>(t) * width;
        float sum = 0;

        if (row_of<G>(t) < rows)
            for (int64_t i = t % G; i < width; i += G)
                sum += expf(row[i] - largest[t]);
        log_sum[t] = sum;
    }
    reduce<G>(log_sum, Sum());
    EACH_THREAD(t)
    {
        log_sum[t] = logf(log_sum[t]);
    }
}

template <int G>
KERNEL void softmax_kernel(float *y, const float *x, const int64_t rows, const int64_t width,
                           const bool log)
{
    Own<float> largest, log_sum;

    log_sum_exp<G>(x, rows, width, largest, log_sum);
    EACH_THREAD(t)
    {
        const int64_t at = row_of<G>(t) * width;

        if (row_of<G>(t) < rows)
            for (int64_t i = t % G; i < width; i += G) {
                const float value = x[at + i] - largest[t] - log_sum[t];

                y[at + i] = log ? value : expf(value);
            }
    }
}

tutti_status tutti__own_softmax(int device, void *stream, float *y, const float *x, int64_t rows,
                                int64_t width, bool log)
{
    if (width < LONG)
        return launch(device, stream, blocks_of(rows, THREADS / WARP), softmax_kernel<WARP>, y, x,
                      rows, width, log);
    return launch(device, stream, rows, softmax_kernel<THREADS>, y, x, rows, width, log);
}

template <int G>
KERNEL void softmax_backward_kernel(float *dx, const float *dy, const float *y, const int64_t rows,
                                    const int64_t width, const bool log)
{
    Own<float> sum;

    EACH_THREAD(t)
    {
        const int64_t at = row_of<G>(t) * width;
        float all = 0;

        if (row_of<G>(t) < rows)
            for (int64_t i = t % G; i < width; i += G)
                all += log ? dy[at + i] : dy[at + i] * y[at + i];
        sum[t] = all;
    }
    reduce<G>(sum, Sum());
    EACH_THREAD(t)
    {
        const int64_t at = row_of<G>(t) * width;

        if (row_of<G>(t) < rows)
            for (int64_t i = t % G; i < width; i += G)
                dx[at + i] =
                    log ? dy[at + i] - expf(y[at + i]) * sum[t] : y[at + i] * (dy[at + i] - sum[t]);
    }
}

tutti_status tutti__own_softmax_backward(int device, void *stream, float *dx, const float *dy,
                                         const float *y, int64_t rows, int64_t width, bool log)
{
    if (width < LONG)
        return launch(device, stream, blocks_of(rows, THREADS / WARP),
                      softmax_backward_kernel<WARP>, dx, dy, y, rows, width, log);
    return launch(device, stream, rows, softmax_backward_kernel<THREADS>, dx, dy, y, rows, width,
                  log);
}

/* ---- Cross entropy ----
 * saved: [N] largest, [N] log_sum, [N] the row's loss, and how many rows count. */

template <int G>
KERNEL void cross_entropy_rows_kernel(const tutti__cuda_cross_entropy c, const float *logits,
                                      const int64_t *labels, float *saved)
{
    Own<float> largest, log_sum, all;

    log_sum_exp<G>(logits, c.N, c.C, largest, log_sum);
    EACH_THREAD(t)
    {
        const float *row = logits + row_of<G>(t) * c.C;
        float sum = 0;

        if (row_of<G>(t) < c.N && c.smoothing > 0)
            for (int64_t i = t % G; i < c.C; i += G)
                sum += row[i] - largest[t] - log_sum[t];
        all[t] = sum;
    }
    reduce<G>(all, Sum());
    EACH_THREAD(t)
    {
        const int64_t n = row_of<G>(t);

        if (t % G == 0 && n < c.N) {
            const bool counts = labels[n] != c.ignore_index;
            const float log_p = counts ? logits[n * c.C + labels[n]] - largest[t] - log_sum[t] : 0;
            float loss = -(1 - c.smoothing) * log_p;

            if (c.smoothing > 0) /* an infinite sum times 0 would be NaN */
                loss -= c.smoothing / (float)c.C * all[t];
            saved[n] = largest[t];
            saved[c.N + n] = log_sum[t];
            saved[2 * c.N + n] = counts ? loss : 0;
        }
    }
}

KERNEL void cross_entropy_mean_kernel(const tutti__cuda_cross_entropy c, const int64_t *labels,
                                      float *saved, float *loss)
{
    Own<double> sum, counted;

    EACH_THREAD(t)
    {
        double all = 0, n = 0;

        for (int64_t i = t; i < c.N; i += THREADS) {
            all += (double)saved[2 * c.N + i];
            n += labels[i] != c.ignore_index;
        }
        sum[t] = all;
        counted[t] = n;
    }
    reduce<THREADS>(sum, Sum());
    reduce<THREADS>(counted, Sum());
    EACH_THREAD(t)
    {
        if (t == 0) {
            *loss = (float)(sum[t] / counted[t]);
            saved[3 * c.N] = (float)counted[t];
        }
    }
}

tutti_status tutti__own_cross_entropy(int device, void *stream, const tutti__cuda_cross_entropy *c,
                                      float *loss, const float *logits, const int64_t *labels,
                                      float *saved)
{
    const tutti_status status =
        c->C < LONG ? launch(device, stream, blocks_of(c->N, THREADS / WARP),
                             cross_entropy_rows_kernel<WARP>, *c, logits, labels, saved)
                    : launch(device, stream, c->N, cross_entropy_rows_kernel<THREADS>, *c, logits,
                             labels, saved);

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, 1, cross_entropy_mean_kernel, *c, labels, saved, loss);
}

struct CrossEntropyBackward {
    tutti__cuda_cross_entropy c;
    float *dx;
    const float *dloss, *logits;
    const int64_t *labels;
    const float *saved;

    template <int V>
    METHOD void run(int64_t i) const
    {
        const float counted = saved[3 * c.N], scale = counted > 0 ? *dloss / counted : 0;

        for (int k = 0; k < V; k++) {
            const int64_t n = (i + k) / c.C, label = labels[n];
            const float p = expf(logits[i + k] - saved[n] - saved[c.N + n]);
            const float target =
                c.smoothing / (float)c.C + ((i + k) % c.C == label ? 1 - c.smoothing : 0);

            dx[i + k] = label == c.ignore_index ? 0 : (p - target) * scale;
        }
    }
};

tutti_status tutti__own_cross_entropy_backward(int device, void *stream,
                                               const tutti__cuda_cross_entropy *c, float *dx,
                                               const float *dloss, const float *logits,
                                               const int64_t *labels, const float *saved)
{
    return map(device, stream, CrossEntropyBackward{*c, dx, dloss, logits, labels, saved},
               c->N * c->C, false);
}

/* ---- Cross entropy of logits that become their gradients ---- */

/* Of a block's row, in each thread: its largest logit, the sum of all, and that of exp(logit - largest). */
DEVICE void row_sums(const tutti__cuda_array &logits, int64_t start, int64_t classes,
                     Own<float> &largest, Own<double> &all, Own<double> &sum)
{
    EACH_THREAD(t)
    {
        largest[t] = -INFINITY;
        all[t] = 0;
        for (int64_t i = t; i < classes; i += THREADS) {
            const float x = element(logits, start + i);

            largest[t] = x > largest[t] || x != x ? x : largest[t];
            all[t] += (double)x;
        }
    }
    reduce<THREADS>(largest, Max());
    reduce<THREADS>(all, Sum());
    EACH_THREAD(t)
    {
        sum[t] = 0;
        for (int64_t i = t; i < classes; i += THREADS)
            sum[t] += (double)tutti__exp_f32(element(logits, start + i) - largest[t]);
    }
    reduce<THREADS>(sum, Sum());
}

/* A block for a row. */
KERNEL void label_rows_kernel(const tutti__cuda_cross_entropy c, const tutti__cuda_array logits,
                              const int64_t *labels, float *loss, const bool gradients,
                              const double divisor)
{
    const int64_t row = block_index(), start = row * c.C, label = labels[row];
    const bool ignored = label == c.ignore_index;
    const double smoothing = (double)c.smoothing;
    const float own = ignored ? 0 : element(logits, start + label);
    Own<float> largest;
    Own<double> all, sum;

    row_sums(logits, start, c.C, largest, all, sum);
    EACH_THREAD(t)
    {
        const double log_sum = (double)largest[t] + tutti__log_normal(sum[t]);
        const float scale = (float)(1 / (sum[t] * divisor));
        const float add = (float)(-smoothing / ((double)c.C * divisor));

        if (t == 0)
            loss[row] = ignored ? 0
                                : (float)((1 - smoothing) * (log_sum - (double)own) +
                                          smoothing * (log_sum - all[t] / (double)c.C));
        for (int64_t i = t; gradients && i < c.C; i += THREADS) {
            const float p = tutti__exp_f32(element(logits, start + i) - largest[t]);
            float g = p * scale + add;

            if (i == label)
                g = (float)((double)g - (1 - smoothing) / divisor);
            store_to<1>(logits, start + i, {{ignored ? 0 : g}});
        }
    }
}

/* ---- The same of classes that are divided among ranks ---- */

/* A block for a row. */
KERNEL void label_sums_kernel(const tutti__cuda_cross_entropy c, const tutti__cuda_array logits,
                              const int64_t *labels, const int64_t first, double *sums)
{
    const int64_t row = block_index(), start = row * c.C, label = labels[row] - first;
    const bool ignored = labels[row] == c.ignore_index;
    Own<float> largest;
    Own<double> all, sum;

    row_sums(logits, start, c.C, largest, all, sum);
    EACH_THREAD(t)
    {
        double *to = sums + 4 * row;

        if (t != 0)
            continue;
        to[0] = ignored ? 0 : (double)largest[t];
        to[1] = ignored ? 0 : sum[t];
        to[2] = ignored || label < 0 || label >= c.C ? 0 : (double)element(logits, start + label);
        to[3] = ignored ? 0 : all[t];
    }
}

tutti_status tutti__own_label_sums(int device, void *stream, const tutti__cuda_cross_entropy *c,
                                   tutti__cuda_array logits, const int64_t *labels, int64_t first,
                                   double *sums)
{
    return launch(device, stream, c->N, label_sums_kernel, *c, logits, labels, first, sums);
}

/* The sums over all ranks, in rank order: each thread computes them. */
KERNEL void divided_rows_kernel(const tutti__cuda_cross_entropy c, const tutti__cuda_array logits,
                                const int64_t *labels, float *loss, const bool gradients,
                                const double divisor, const tutti__cuda_parts parts)
{
    const int64_t row = block_index(), start = row * c.C, label = labels[row] - parts.first;
    const bool ignored = labels[row] == c.ignore_index;
    const double smoothing = (double)c.smoothing, V = (double)parts.classes;
    const double here = parts.sums[4 * (parts.rank * c.N + row)];

    EACH_THREAD(t)
    {
        double largest = parts.sums[4 * row], sum = 0, own = 0, all = 0, log_sum, scale;

        for (int r = 1; r < parts.ranks; r++) {
            const double x = parts.sums[4 * (r * c.N + row)];

            largest = x > largest || x != x ? x : largest;
        }
        for (int r = 0; r < parts.ranks; r++) {
            const double *part = parts.sums + 4 * (r * c.N + row);

            sum += part[1] * tutti__exp_negative(part[0] - largest);
            own += part[2];
            all += part[3];
        }
        log_sum = largest + tutti__log_normal(sum);
        scale = tutti__exp_negative(here - largest) / (sum * divisor);
        if (t == 0)
            loss[row] =
                ignored
                    ? 0
                    : (float)((1 - smoothing) * (log_sum - own) + smoothing * (log_sum - all / V));
        for (int64_t i = t; gradients && i < c.C; i += THREADS) {
            const float p = tutti__exp_f32(element(logits, start + i) - (float)here);
            float g = p * (float)scale + (float)(-smoothing / (V * divisor));

            if (i == label)
                g = (float)((double)g - (1 - smoothing) / divisor);
            store_to<1>(logits, start + i, {{ignored ? 0 : g}});
        }
    }
}

tutti_status tutti__own_label_rows(int device, void *stream, const tutti__cuda_cross_entropy *c,
                                   tutti__cuda_array logits, const int64_t *labels, float *loss,
                                   bool gradients, double divisor, const tutti__cuda_parts *parts)
{
    if (parts->sums)
        return launch(device, stream, c->N, divided_rows_kernel, *c, logits, labels, loss,
                      gradients, divisor, *parts);
    return launch(device, stream, c->N, label_rows_kernel, *c, logits, labels, loss, gradients,
                  divisor);
}

/* ---- Mean squared error ---- */

static constexpr int64_t PART = THREADS * 64; /* elements a block */

KERNEL void mse_kernel(const float *x, const float *target, const int64_t n, double *partial)
{
    Own<double> sum;

    EACH_THREAD(t)
    {
        const int64_t from = block_index() * PART, to = from + PART < n ? from + PART : n;
        double all = 0;

        UNROLL
        for (int64_t i = from + t; i < to; i += THREADS) {
            const double d = (double)x[i] - (double)target[i];

            all += d * d;
        }
        sum[t] = all;
    }
    reduce<THREADS>(sum, Sum());
    EACH_THREAD(t)
    {
        if (t == 0)
            partial[block_index()] = sum[t];
    }
}

KERNEL void mean_kernel(const double *partial, const int64_t parts, const int64_t n, float *mean)
{
    Own<double> sum;

    EACH_THREAD(t)
    {
        double all = 0;

        for (int64_t i = t; i < parts; i += THREADS)
            all += partial[i];
        sum[t] = all;
    }
    reduce<THREADS>(sum, Sum());
    EACH_THREAD(t)
    {
        if (t == 0)
            *mean = (float)(sum[t] / (double)n);
    }
}

size_t tutti__own_mse_scratch(int64_t n)
{
    return (size_t)blocks_of(n, PART) * sizeof(double);
}

tutti_status tutti__own_mse(int device, void *stream, float *loss, const float *x,
                            const float *target, int64_t n, void *scratch)
{
    const tutti_status status =
        launch(device, stream, blocks_of(n, PART), mse_kernel, x, target, n, (double *)scratch);

    if (status != TUTTI_OK)
        return status;
    return launch(device, stream, 1, mean_kernel, (const double *)scratch, blocks_of(n, PART), n,
                  loss);
}

struct MseBackward {
    float *dx;
    const float *dloss, *x, *target;
    int64_t n;
    template <int V>
    METHOD void run(int64_t i) const
    {
        const float scale = 2 * *dloss / (float)n;
        Lanes<V> d = load<V>(x + i);
        const Lanes<V> aim = load<V>(target + i);

        for (int k = 0; k < V; k++)
            d[k] = scale * (d[k] - aim[k]);
        store<V>(dx + i, d);
    }
};

tutti_status tutti__own_mse_backward(int device, void *stream, float *dx, const float *dloss,
                                     const float *x, const float *target, int64_t n)
{
    return map(device, stream, MseBackward{dx, dloss, x, target, n}, n, aligned(dx, x, target));
}
