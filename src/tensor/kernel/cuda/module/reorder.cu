/* reorder.cu -- copies elements: to another dtype, layout or place.   SPDX-License-Identifier: MIT */
#include "device/cuda/module/lanes.cuh"
#include "tensor/kernel/cuda/module/families.cuh"

template <class To, class From>
struct Cast {
    To *to;
    const From *from;
    template <int V>
    METHOD void run(int64_t i) const
    {
        store<V>(to + i, load<V>(from + i));
    }
};

tutti_status tutti__own_cast(int device, void *stream, tutti__cuda_array to, tutti__cuda_array from,
                             int64_t n)
{
    return with_type(to.dtype, [=](auto to_type) {
        using To = decltype(to_type);
        return with_type(from.dtype, [=](auto from_type) {
            using From = decltype(from_type);
            return map(device, stream, Cast<To, From>{(To *)to.p, (const From *)from.p}, n,
                       aligned(to.p, from.p));
        });
    });
}

/* A square of TILE x TILE goes through shared memory, so that both sides access whole lines; the additional column avoids
 * bank conflicts. */
static constexpr int TILE = 32;

BOTH int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

template <class To, class From>
KERNEL void transpose_kernel(To *to, const From *from, const int64_t rows, const int64_t columns,
                             const bool add)
{
    SHARED float tile[TILE][TILE + 1];
    const int64_t across = tiles_of(columns), down = tiles_of(rows);
    const int64_t batch = block_index() / (across * down);
    const int64_t row = block_index() / across % down * TILE,
                  column = block_index() % across * TILE;

    from += batch * rows * columns;
    to += batch * rows * columns;
    EACH_THREAD(t)
    {
        for (int i = t / TILE; i < TILE; i += THREADS / TILE)
            if (row + i < rows && column + t % TILE < columns)
                tile[i][t % TILE] = wide(from[(row + i) * columns + column + t % TILE]);
    }
    block_barrier();
    EACH_THREAD(t)
    {
        for (int i = t / TILE; i < TILE; i += THREADS / TILE) {
            if (column + i < columns && row + t % TILE < rows) {
                To *p = to + (column + i) * rows + row + t % TILE;

                narrow(p, add ? wide(*p) + tile[t % TILE][i] : tile[t % TILE][i]);
            }
        }
    }
}

/* For a narrow matrix (images of 3 channels, weights of 9 taps) a square would be mostly empty: one element a thread. */
template <class To, class From>
KERNEL void transpose_narrow_kernel(To *to, const From *from, const int64_t n, const int64_t rows,
                                    const int64_t columns, const bool add)
{
    EACH_THREAD(t)
    {
        /* an index of `to`, so that writes are whole lines */
        const int64_t i = block_index() * THREADS + t;

        if (i < n) {
            const int64_t batch = i / (rows * columns), at = i % (rows * columns);
            const float x = wide(from[batch * rows * columns + at % rows * columns + at / rows]);

            narrow(to + i, add ? wide(to[i]) + x : x);
        }
    }
}

tutti_status tutti__own_transpose(int device, void *stream, tutti__cuda_array to,
                                  tutti__cuda_array from, int64_t batch, int64_t rows,
                                  int64_t columns, bool add)
{
    if (batch == 0 || rows == 0 || columns == 0)
        return TUTTI_OK;
    return with_type(to.dtype, [=](auto to_type) {
        using To = decltype(to_type);
        return with_type(from.dtype, [=](auto from_type) {
            using From = decltype(from_type);
            if (rows < TILE / 2 || columns < TILE / 2)
                return launch(device, stream, blocks_of(batch * rows * columns, THREADS),
                              transpose_narrow_kernel<To, From>, (To *)to.p, (const From *)from.p,
                              batch * rows * columns, rows, columns, add);
            return launch(device, stream, batch * tiles_of(rows) * tiles_of(columns),
                          transpose_kernel<To, From>, (To *)to.p, (const From *)from.p, rows,
                          columns, add);
        });
    });
}

/* ---- Blocks ---- */

/* I: of indices; 32-bit divisions are much faster. */
template <class T, class I, bool ADD>
KERNEL void move_kernel(T *to, const T *from, const tutti__cuda_moved c, const int64_t n)
{
    EACH_THREAD(t)
    {
        const int64_t i = block_index() * THREADS + t;

        if (i < n) {
            I rest = (I)i;
            int64_t at_to = 0, at_from = 0;

            for (int k = c.n - 1; k > 0; k--) {
                const I size = (I)c.size[k], at = rest % size;

                rest /= size;
                at_to += (int64_t)at * c.to_stride[k];
                at_from += (int64_t)at * c.from_stride[k];
            }
            at_to += (int64_t)rest * c.to_stride[0];
            at_from += (int64_t)rest * c.from_stride[0];
            if constexpr (ADD)
                to[at_to] += from[at_from];
            else
                to[at_to] = from[at_from];
        }
    }
}

template <class T, bool ADD>
static tutti_status move_as(int device, void *stream, void *to, const void *from,
                            const tutti__cuda_moved *c)
{
    int64_t n = 1;

    for (int i = 0; i < c->n; i++)
        n *= c->size[i];
    return n <= INT32_MAX ? launch(device, stream, blocks_of(n, THREADS),
                                   move_kernel<T, uint32_t, ADD>, (T *)to, (const T *)from, *c, n)
                          : launch(device, stream, blocks_of(n, THREADS),
                                   move_kernel<T, int64_t, ADD>, (T *)to, (const T *)from, *c, n);
}

tutti_status tutti__own_move(int device, void *stream, void *to, const void *from,
                             const tutti__cuda_moved *c)
{
    if (c->add)
        return move_as<float, true>(device, stream, to, from, c);
    switch (c->element) {
    case 2:
        return move_as<uint16_t, false>(device, stream, to, from, c);
    case 4:
        return move_as<uint32_t, false>(device, stream, to, from, c);
    case 8:
        return move_as<uint64_t, false>(device, stream, to, from, c);
    default:
        return move_as<Pack<uint64_t, 2>, false>(device, stream, to, from, c);
    }
}

template <class T>
struct Fill {
    T *to;
    float value;
    template <int V>
    METHOD void run(int64_t i) const
    {
        Lanes<V> v;

        for (int k = 0; k < V; k++)
            v[k] = value;
        store<V>(to + i, v);
    }
};

tutti_status tutti__own_fill(int device, void *stream, tutti__cuda_array to, float value, int64_t n)
{
    return with_type(to.dtype, [=](auto type) {
        using T = decltype(type);
        return map(device, stream, Fill<T>{(T *)to.p, value}, n, aligned(to.p));
    });
}
