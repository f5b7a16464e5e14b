/* norm.cu -- layer, RMS, group and instance norm: rows of F32 that are normalised.   SPDX-License-Identifier: MIT
 * Sums are in double. */
#include "device/cuda/module/lanes.cuh"
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/kernel/cuda/module/groups.cuh"

/* Where the weight of an element is. */
DEVICE int64_t weight_at(const tutti__cuda_norm &c, int64_t row, int64_t column)
{
    if (c.groups == 1 && c.length == 1)
        return column;
    return row % c.groups * (c.width / c.length) + column / c.length;
}

template <int G>
KERNEL void norm_kernel(const tutti__cuda_norm c, float *y, const float *bias)
{
    Own<double> sum, squares;

    EACH_THREAD(t)
    {
        const int64_t row = row_of<G>(t);
        double all = 0;

        if (c.centred && row < c.rows)
            for (int64_t i = t % G; i < c.width; i += G)
                all += (double)c.x[row * c.width + i];
        sum[t] = all;
    }
    reduce<G>(sum, Sum());
    EACH_THREAD(t)
    {
        const int64_t row = row_of<G>(t);
        const float mean = (float)(sum[t] / (double)c.width);
        double all = 0;

        if (row < c.rows)
            for (int64_t i = t % G; i < c.width; i += G) {
                const double d = (double)(c.x[row * c.width + i] - mean);

                all += d * d;
            }
        squares[t] = all;
    }
    reduce<G>(squares, Sum());
    EACH_THREAD(t)
    {
        const int64_t row = row_of<G>(t);
        const float mean = (float)(sum[t] / (double)c.width);
        const float inv_std = (float)(1 / sqrt(squares[t] / (double)c.width + (double)c.eps));

        if (row < c.rows) {
            if (t % G == 0) {
                c.moments[row] = mean;
                c.moments[c.rows + row] = inv_std;
            }
            for (int64_t i = t % G; i < c.width; i += G) {
                const int64_t at = row * c.width + i, k = weight_at(c, row, i);
                const float h = (c.x[at] - mean) * inv_std;

                y[at] = (c.weight ? h * c.weight[k] : h) + (bias ? bias[k] : 0);
            }
        }
    }
}

tutti_status tutti__own_norm(int device, void *stream, const tutti__cuda_norm *c, float *y,
                             const float *bias)
{
    if (c->width < LONG)
        return launch(device, stream, blocks_of(c->rows, THREADS / WARP), norm_kernel<WARP>, *c, y,
                      bias);
    return launch(device, stream, c->rows, norm_kernel<THREADS>, *c, y, bias);
}

/* dx = inv_std (g - mean g - h mean(g h)), g = dy weight, h = (x - mean) inv_std */
template <int G>
KERNEL void norm_backward_kernel(const tutti__cuda_norm c, float *dx, const float *dy)
{
    Own<double> sum, product;

    EACH_THREAD(t)
    {
        const int64_t row = row_of<G>(t);
        double all = 0, of_products = 0;

        if (row < c.rows)
            for (int64_t i = t % G; i < c.width; i += G) {
                const int64_t at = row * c.width + i;
                const float g = c.weight ? dy[at] * c.weight[weight_at(c, row, i)] : dy[at];

                all += (double)g;
                of_products += (double)g * (double)(c.x[at] - c.moments[row]);
            }
        sum[t] = all;
        product[t] = of_products;
    }
    reduce<G>(sum, Sum());
    reduce<G>(product, Sum());
    EACH_THREAD(t)
    {
        const int64_t row = row_of<G>(t);

        if (row < c.rows) {
            const float mean = c.moments[row], inv_std = c.moments[c.rows + row];
            const float mean_g = c.centred ? (float)(sum[t] / (double)c.width) : 0;
            const float slope =
                (float)(product[t] / (double)c.width * (double)inv_std * (double)inv_std);

            for (int64_t i = t % G; i < c.width; i += G) {
                const int64_t at = row * c.width + i;
                const float g = c.weight ? dy[at] * c.weight[weight_at(c, row, i)] : dy[at];

                dx[at] = (g - mean_g - (c.x[at] - mean) * slope) * inv_std;
            }
        }
    }
}

tutti_status tutti__own_norm_backward(int device, void *stream, const tutti__cuda_norm *c,
                                      float *dx, const float *dy)
{
    if (c->width < LONG)
        return launch(device, stream, blocks_of(c->rows, THREADS / WARP),
                      norm_backward_kernel<WARP>, *c, dx, dy);
    return launch(device, stream, c->rows, norm_backward_kernel<THREADS>, *c, dx, dy);
}

struct NormProducts {
    tutti__cuda_norm c;
    float *products;
    const float *dy;
    template <int V>
    METHOD void run(int64_t i) const
    {
        for (int k = 0; k < V; k++) {
            const int64_t row = (i + k) / c.width;

            products[i + k] = dy[i + k] * ((c.x[i + k] - c.moments[row]) * c.moments[c.rows + row]);
        }
    }
};

tutti_status tutti__own_norm_products(int device, void *stream, const tutti__cuda_norm *c,
                                      float *products, const float *dy)
{
    return map(device, stream, NormProducts{*c, products, dy}, c->rows * c->width, false);
}
