/* elementwise.cu -- relu, add, dropout.   SPDX-License-Identifier: MIT */
#include "device/cuda/module/lanes.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/kernel/cuda/module/philox.cuh"

template <class T>
struct Relu {
    T *y;
    const T *x;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v = load<V>(x + i);

        for (int k = 0; k < V; k++)
            v[k] = v[k] < 0 ? 0 : v[k]; /* NaN stays NaN */
        store<V>(y + i, v);
    }
};

template <class T>
struct ReluBackward {
    T *dx;
    const T *dy, *y;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> d = load<V>(dy + i);
        const Lanes<V> v = load<V>(y + i);

        for (int k = 0; k < V; k++)
            d[k] = v[k] <= 0 ? 0 : d[k];
        store<V>(dx + i, d);
    }
};

template <class T>
struct Add {
    T *y;
    const T *a, *b;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v = load<V>(a + i);
        const Lanes<V> w = load<V>(b + i);

        for (int k = 0; k < V; k++)
            v[k] += w[k];
        store<V>(y + i, v);
    }
};

template <class T>
struct AddBias {
    T *y;
    const float *b;
    int64_t channels;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v = load<V>(y + i);
        const Lanes<V> w = load<V>(b + i % channels); /* V divides channels */

        for (int k = 0; k < V; k++)
            v[k] += w[k];
        store<V>(y + i, v);
    }
};

tutti_status tutti__own_relu(int device, void *stream, tutti_dtype dtype, void *y, const void *x,
                             int64_t n)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, Relu<T>{(T *)y, (const T *)x}, n, aligned(y, x));
    });
}

tutti_status tutti__own_relu_backward(int device, void *stream, tutti_dtype dtype, void *dx,
                                      const void *dy, const void *y, int64_t n)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, ReluBackward<T>{(T *)dx, (const T *)dy, (const T *)y}, n,
                   aligned(dx, dy, y));
    });
}

tutti_status tutti__own_add(int device, void *stream, tutti_dtype dtype, void *y, const void *a,
                            const void *b, int64_t n)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, Add<T>{(T *)y, (const T *)a, (const T *)b}, n, aligned(y, a, b));
    });
}

tutti_status tutti__own_add_bias(int device, void *stream, tutti_dtype dtype, void *y,
                                 const float *b, int64_t n, int64_t channels)
{
    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, AddBias<T>{(T *)y, b, channels}, n,
                   aligned(y, b) && channels % LANES == 0);
    });
}

/* ---- Dropout ---- */

/* Elements in the order of their indices. */
template <class T>
struct Dropout {
    T *y;
    const T *x;
    float scale;
    tutti__cuda_mask c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v = load<V>(x + i);
        uint32_t word[4];

        for (int k = 0; k < V; k++) {
            if (k % 4 == 0)
                philox(c, (uint32_t)((i + k) / 4), word);
            v[k] = drops(word[V == 1 ? i % 4 : k % 4], c.p) ? 0 : v[k] * scale;
        }
        store<V>(y + i, v);
    }
};

/* Channels last: neighbours' indices differ by a plane. */
template <class T>
struct DropoutChannelsLast {
    T *y;
    const T *x;
    float scale;
    tutti__cuda_mask c;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v = load<V>(x + i);
        const int64_t row = i / c.channels, first = i % c.channels; /* V divides c.channels */
        const int64_t at = row / c.plane * c.channels * c.plane + row % c.plane;

        for (int k = 0; k < V; k++) {
            const int64_t number = at + (first + k) * c.plane;
            uint32_t word[4];

            philox(c, (uint32_t)(number / 4), word);
            v[k] = drops(word[number % 4], c.p) ? 0 : v[k] * scale;
        }
        store<V>(y + i, v);
    }
};

tutti_status tutti__own_dropout(int device, void *stream, tutti_dtype dtype, void *y, const void *x,
                                int64_t n, const tutti__cuda_mask *c)
{
    const float scale = c->p < 1 ? 1 / (1 - c->p) : 0;

    return with_type(dtype, [=](auto type) {
        using T = decltype(type);
        if (c->channels == 1 || c->plane == 1)
            return map(device, stream, Dropout<T>{(T *)y, (const T *)x, scale, *c}, n,
                       aligned(y, x));
        return map(device, stream, DropoutChannelsLast<T>{(T *)y, (const T *)x, scale, *c}, n,
                   aligned(y, x) && c->channels % LANES == 0);
    });
}
