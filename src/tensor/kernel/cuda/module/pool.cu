/* pool.cu -- max, average and global average pooling, channels last.   SPDX-License-Identifier: MIT
 *
 * Backward gathers: an element of dx adds up the windows that contain it, in order. */
#include "tensor/kernel/cuda/module/columns.cuh"
#include "tensor/kernel/cuda/module/families.cuh"

static bool can_vector(const tutti__cuda_windows *c)
{
    return c->C % LANES == 0;
}

/* Loops over windows are short, and rows are unrolled already: unrolling these too would cost registers. */
#ifdef TUTTI_CUDA_HOST
#define ROLLED
#else
#define ROLLED _Pragma("unroll 1")
#endif

/* The kernels' parameters: 32 bits suffice within an image, and there are many divisions. */
struct Side {
    int in, out, extent, kernel, stride, padding, dilation; /* extent: of the window, as dilated */
};

struct Windows {
    int64_t C;
    int H, W, out_h, out_w;
    Side h, w;
    int divisor;
    bool exclude_padding;
};

static Side side_from(const tutti__cuda_windows *c, int d)
{
    return Side{(int)(d == 0 ? c->H : c->W),
                (int)(d == 0 ? c->out_h : c->out_w),
                (int)((c->kernel[d] - 1) * c->dilation[d] + 1),
                (int)c->kernel[d],
                (int)c->stride[d],
                (int)c->padding[d],
                (int)c->dilation[d]};
}

static Windows windows_from(const tutti__cuda_windows *c)
{
    return Windows{c->C,
                   (int)c->H,
                   (int)c->W,
                   (int)c->out_h,
                   (int)c->out_w,
                   side_from(c, 0),
                   side_from(c, 1),
                   (int)c->divisor,
                   c->exclude_padding};
}

/* The pixel of a row of a matrix [N*height*width][C]. */
struct Pixel {
    int64_t image;
    int row, column;
};

DEVICE Pixel pixel_of(int64_t row, int height, int width)
{
    const int64_t plane = (int64_t)height * width, image = row / plane;
    const int rest = (int)(row - image * plane);

    return Pixel{image, rest / width, rest % width};
}

/* Windows, or pixels, [from, to) */
struct Range {
    int from, to;
};

/* The part of window `o` inside the image. */
DEVICE Range window_of(const Side &s, int o)
{
    const int at = o * s.stride - s.padding, to = at + s.extent;
    const int from = at < 0 ? at + (-at + s.dilation - 1) / s.dilation * s.dilation : at;

    return Range{from, to < s.in ? to : s.in};
}

/* The windows whose extent contains pixel i. */
DEVICE Range windows_of(const Side &s, int i)
{
    const int at = i + s.padding, to = at / s.stride + 1;

    return Range{at < s.extent ? 0 : (at - s.extent) / s.stride + 1, to < s.out ? to : s.out};
}

/* The pixels of window `o` that an average counts. */
DEVICE int counted(const Windows &c, const Side &s, int o)
{
    const int at = o * s.stride - s.padding, padded = s.in + s.padding;
    const int to = at + s.kernel < padded ? at + s.kernel : padded;
    const Range inside = window_of(s, o);

    return c.exclude_padding ? inside.to - inside.from : to - at;
}

DEVICE float divisor_of(const Windows &c, int i, int j)
{
    return c.divisor != 0 ? (float)c.divisor
                          : (float)counted(c, c.h, i) * (float)counted(c, c.w, j);
}

/* ---- Max ---- */

template <class T>
struct MaxPool {
    Windows c;
    T *y;
    const T *x;
    int32_t *index;

    template <int V>
    struct Channels {
        const MaxPool *f;
        int64_t channel;

        /* Of equal values the first in row-major order wins, and NaN wins over all. */
        METHOD void run(int64_t row, int64_t at) const
        {
            const Windows &c = f->c;
            const Pixel p = pixel_of(row, c.out_h, c.out_w);
            const Range h = window_of(c.h, p.row), w = window_of(c.w, p.column);
            const T *image = f->x + p.image * c.H * c.W * c.C + channel;
            const bool none = h.from >= h.to || w.from >= w.to;
            Lanes<V> best = {};
            Pack<int32_t, V> index;

            if (!none)
                best = load<V>(image + (h.from * c.W + w.from) * c.C);
            for (int k = 0; k < V; k++) {
                best[k] = none ? -INFINITY : best[k];
                index.v[k] = none ? -1 : h.from * c.W + w.from;
            }
            ROLLED
            for (int i = h.from; i < h.to; i += c.h.dilation) {
                ROLLED
                for (int j = w.from; j < w.to; j += c.w.dilation) {
                    const Lanes<V> v = load<V>(image + (i * c.W + j) * c.C);

                    for (int k = 0; k < V; k++) {
                        const bool wins = v[k] > best[k] || v[k] != v[k];

                        best[k] = wins ? v[k] : best[k];
                        index.v[k] = wins ? i * c.W + j : index.v[k];
                    }
                }
            }
            store<V>(f->y + at, best);
            *(Pack<int32_t, V> *)(f->index + at) = index;
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, channel};
    }
};

tutti_status tutti__own_max_pool(int device, void *stream, const tutti__cuda_windows *c, void *y,
                                 const void *x, int32_t *index)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream, MaxPool<T>{windows_from(c), (T *)y, (const T *)x, index},
                           c->N * c->out_h * c->out_w, c->C, can_vector(c) && aligned(y, x, index));
    });
}

template <class T>
struct MaxPoolBackward {
    Windows c;
    T *dx;
    const T *dy;
    const int32_t *index;

    template <int V>
    struct Channels {
        const MaxPoolBackward *f;
        int64_t channel;

        METHOD void run(int64_t row, int64_t at) const
        {
            const Windows &c = f->c;
            const Pixel p = pixel_of(row, c.H, c.W);
            const Range h = windows_of(c.h, p.row), w = windows_of(c.w, p.column);
            const int pixel = p.row * c.W + p.column;
            Lanes<V> sum = {};

            ROLLED
            for (int i = h.from; i < h.to; i++) {
                ROLLED
                for (int j = w.from; j < w.to; j++) {
                    const int64_t from = ((p.image * c.out_h + i) * c.out_w + j) * c.C + channel;
                    const Pack<int32_t, V> index = *(const Pack<int32_t, V> *)(f->index + from);
                    const Lanes<V> d = load<V>(f->dy + from);

                    for (int k = 0; k < V; k++)
                        sum[k] += index.v[k] == pixel ? d[k] : 0;
                }
            }
            store<V>(f->dx + at, sum);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, channel};
    }
};

tutti_status tutti__own_max_pool_backward(int device, void *stream, const tutti__cuda_windows *c,
                                          void *dx, const void *dy, const int32_t *index)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream,
                           MaxPoolBackward<T>{windows_from(c), (T *)dx, (const T *)dy, index},
                           c->N * c->H * c->W, c->C, can_vector(c) && aligned(dx, dy, index));
    });
}

/* ---- Average ---- */

template <class T>
struct AvgPool {
    Windows c;
    T *y;
    const T *x;

    template <int V>
    struct Channels {
        const AvgPool *f;
        int64_t channel;

        METHOD void run(int64_t row, int64_t at) const
        {
            const Windows &c = f->c;
            const Pixel p = pixel_of(row, c.out_h, c.out_w);
            const Range h = window_of(c.h, p.row), w = window_of(c.w, p.column);
            const T *image = f->x + p.image * c.H * c.W * c.C + channel;
            Lanes<V> sum = {};

            ROLLED
            for (int i = h.from; i < h.to; i++) {
                ROLLED
                for (int j = w.from; j < w.to; j++) {
                    const Lanes<V> v = load<V>(image + (i * c.W + j) * c.C);

                    for (int k = 0; k < V; k++)
                        sum[k] += v[k];
                }
            }
            for (int k = 0; k < V; k++)
                sum[k] /= divisor_of(c, p.row, p.column);
            store<V>(f->y + at, sum);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, channel};
    }
};

tutti_status tutti__own_avg_pool(int device, void *stream, const tutti__cuda_windows *c, void *y,
                                 const void *x)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream, AvgPool<T>{windows_from(c), (T *)y, (const T *)x},
                           c->N * c->out_h * c->out_w, c->C, can_vector(c) && aligned(y, x));
    });
}

template <class T>
struct AvgPoolBackward {
    Windows c;
    T *dx;
    const T *dy;

    template <int V>
    struct Channels {
        const AvgPoolBackward *f;
        int64_t channel;

        METHOD void run(int64_t row, int64_t at) const
        {
            const Windows &c = f->c;
            const Pixel p = pixel_of(row, c.H, c.W);
            const Range h = windows_of(c.h, p.row), w = windows_of(c.w, p.column);
            Lanes<V> sum = {};

            ROLLED
            for (int i = h.from; i < h.to; i++) {
                ROLLED
                for (int j = w.from; j < w.to; j++) {
                    const Lanes<V> d =
                        load<V>(f->dy + ((p.image * c.out_h + i) * c.out_w + j) * c.C + channel);

                    for (int k = 0; k < V; k++)
                        sum[k] += d[k] / divisor_of(c, i, j);
                }
            }
            store<V>(f->dx + at, sum);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, channel};
    }
};

tutti_status tutti__own_avg_pool_backward(int device, void *stream, const tutti__cuda_windows *c,
                                          void *dx, const void *dy)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream,
                           AvgPoolBackward<T>{windows_from(c), (T *)dx, (const T *)dy},
                           c->N * c->H * c->W, c->C, can_vector(c) && aligned(dx, dy));
    });
}

/* ---- Over the whole image ---- */

/* An image is a chunk of rows: one block sums its channels. */
template <class T, int V>
KERNEL void global_avg_pool_kernel(T *y, const T *x, const Columns c)
{
    SHARED float shared[1][V][THREADS];

    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);
        Lanes<V> sum = {};

        UNROLL
        for (int64_t row = p.row; row < p.end; row += p.step) {
            const Lanes<V> v = load<V>(x + row * c.channels + p.channel);

            for (int k = 0; k < V; k++)
                sum[k] += v[k];
        }
        for (int k = 0; k < V; k++)
            shared[0][k][t] = sum[k];
    }
    sum_block<V, 1>(c, shared);
    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);

        if (t < c.lanes && p.channel < c.channels)
            for (int k = 0; k < V; k++)
                narrow(y + p.chunk * c.channels + p.channel + k, shared[0][k][t] / (float)c.chunk);
    }
}

tutti_status tutti__own_global_avg_pool(int device, void *stream, const tutti__cuda_windows *c,
                                        void *y, const void *x)
{
    const bool vectors = can_vector(c) && aligned(x);
    Columns columns = columns_shape(c->N * c->H * c->W, c->C, vectors);

    columns.chunk = c->H * c->W;
    columns.chunks = c->N;
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return vectors ? launch(device, stream, columns.tiles * columns.chunks,
                                global_avg_pool_kernel<T, LANES>, (T *)y, (const T *)x, columns)
                       : launch(device, stream, columns.tiles * columns.chunks,
                                global_avg_pool_kernel<T, 1>, (T *)y, (const T *)x, columns);
    });
}

template <class T>
struct GlobalAvgPoolBackward {
    T *dx;
    const T *dy;
    int64_t plane, channels;

    template <int V>
    struct Channels {
        const GlobalAvgPoolBackward *f;
        int64_t channel;

        METHOD void run(int64_t row, int64_t at) const
        {
            Lanes<V> d = load<V>(f->dy + row / f->plane * f->channels + channel);

            for (int k = 0; k < V; k++)
                d[k] /= (float)f->plane;
            store<V>(f->dx + at, d);
        }
    };

    template <int V>
    METHOD Channels<V> at(int64_t channel) const
    {
        return Channels<V>{this, channel};
    }
};

tutti_status tutti__own_global_avg_pool_backward(int device, void *stream,
                                                 const tutti__cuda_windows *c, void *dx,
                                                 const void *dy)
{
    return with_type(c->dtype, [=](auto type) {
        using T = decltype(type);
        return columns_map(device, stream,
                           GlobalAvgPoolBackward<T>{(T *)dx, (const T *)dy, c->H * c->W, c->C},
                           c->N * c->H * c->W, c->C, can_vector(c) && aligned(dx, dy));
    });
}
