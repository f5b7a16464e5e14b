/* columns.cuh -- blocks over a matrix [rows][channels]: channels last, for computations per channel.
 * SPDX-License-Identifier: MIT
 *
 *            tile 0          tile 1
 *          +---------------+-----
 *  chunk 0 | t0 t1 .. t7   |          a block has one tile and one chunk; its threads are `lanes` wide, each with V
 *          | t8 t9 .. t15  |          channels, and take the chunk's rows round robin
 *          | ...           |
 *  chunk 1 | t0 ..
 *
 * V is LANES if channels are a multiple of that, else 1. */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_COLUMNS_CUH
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_COLUMNS_CUH

#include "device/cuda/module/lanes.cuh"

struct Columns {
    int64_t rows, channels;
    int64_t chunk, chunks; /* rows of a chunk, and how many of them */
    int lanes, tiles;
};

static inline Columns columns_shape(int64_t rows, int64_t channels, bool vectors)
{
    const int64_t across = vectors ? channels / LANES : channels;
    Columns c = {};

    c.rows = rows;
    c.channels = channels;
    for (c.lanes = 1; c.lanes < across && c.lanes < WARP;)
        c.lanes *= 2;
    c.tiles = (int)blocks_of(across, c.lanes);
    return c;
}

/* For sums: enough blocks to fill a GPU, but few, so that joining their sums costs little. */
static inline Columns columns_for_sums(int64_t rows, int64_t channels, bool vectors)
{
    Columns c = columns_shape(rows, channels, vectors);
    const int64_t abreast = THREADS / c.lanes, enough = c.tiles < 1024 ? 1024 / c.tiles : 1;
    const int64_t most = blocks_of(rows, abreast * 4);

    c.chunk =
        blocks_of(blocks_of(rows, most < enough ? (most ? most : 1) : enough), abreast) * abreast;
    c.chunks = rows ? blocks_of(rows, c.chunk) : 0;
    return c;
}

/* For maps: a few rows a thread, to reuse the values of its channels; for a large matrix more rows, as long as there are
 * enough blocks to fill a GPU. */
static inline Columns columns_for_map(int64_t rows, int64_t channels, bool vectors)
{
    Columns c = columns_shape(rows, channels, vectors);
    const int64_t abreast = THREADS / c.lanes, each = rows * c.tiles / (abreast * 4096);

    c.chunk = abreast * (each < 4 ? 4 : each < 16 ? each : 16);
    c.chunks = blocks_of(rows, c.chunk);
    return c;
}

/* The position of a thread. */
struct Place {
    int64_t channel, row, end; /* row, row + step, ... < end */
    int64_t chunk;
    int step;
};

template <int V>
DEVICE Place place_of(const Columns &c, int t)
{
    Place p;
    const int64_t from = block_index() / c.tiles * c.chunk;

    p.chunk = block_index() / c.tiles;
    p.channel = (block_index() % c.tiles * c.lanes + t % c.lanes) * V;
    p.step = THREADS / c.lanes;
    p.row = from + t / c.lanes;
    p.end = from + c.chunk < c.rows ? from + c.chunk : c.rows;
    if (p.channel >= c.channels) /* after the last channel: no rows */
        p.row = p.end;
    return p;
}

/* ---- Maps ---- */

/* f.at<V>(channel) loads the values of the channels; its run(row, i) processes them in a row, where i is the index of
 * their first element. */
template <int V, class F>
KERNEL void columns_map_kernel(const F f, const Columns c)
{
    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);

        if (p.row < p.end) {
            const auto g = f.template at<V>(p.channel);

            UNROLL
            for (int64_t row = p.row; row < p.end; row += p.step)
                g.run(row, row * c.channels + p.channel);
        }
    }
}

template <class F>
static tutti_status columns_map(int device, void *stream, const F &f, int64_t rows,
                                int64_t channels, bool vectors)
{
    const Columns c = columns_for_map(rows, channels, vectors);

    return vectors ? launch(device, stream, c.tiles * c.chunks, columns_map_kernel<LANES, F>, f, c)
                   : launch(device, stream, c.tiles * c.chunks, columns_map_kernel<1, F>, f, c);
}

/* ---- Sums ---- */

/* Sums the Q values [V] of each thread in `shared` over the rows of threads, into the first row of threads. */
template <int V, int Q>
DEVICE void sum_block(const Columns &c, float shared[Q][V][THREADS])
{
    for (int half = THREADS / c.lanes / 2; half > 0; half /= 2) {
        block_barrier();
        EACH_THREAD(t)
        {
            if (t / c.lanes < half)
                for (int q = 0; q < Q; q++)
                    for (int k = 0; k < V; k++)
                        shared[q][k][t] += shared[q][k][t + half * c.lanes];
        }
    }
    block_barrier();
}

/* The first row of threads stores its values to [Q][channels][chunks]. */
template <int V, int Q>
DEVICE void store_partial(const Columns &c, float shared[Q][V][THREADS], float *partial)
{
    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);

        if (t < c.lanes && p.channel < c.channels)
            for (int q = 0; q < Q; q++)
                for (int k = 0; k < V; k++)
                    partial[(q * c.channels + p.channel + k) * c.chunks + p.chunk] =
                        shared[q][k][t];
    }
}

/* partial [Q][channels][chunks] = the sums made by f.add<V>(sums, row, i). */
template <int V, class F>
KERNEL void columns_sum_kernel(const F f, const Columns c, float *partial)
{
    SHARED float shared[F::Q][V][THREADS];

    EACH_THREAD(t)
    {
        const Place p = place_of<V>(c, t);
        Lanes<V> sum[F::Q] = {};

        if (p.row < p.end) {
            const auto g = f.template at<V>(p.channel);

            UNROLL
            for (int64_t row = p.row; row < p.end; row += p.step)
                g.add(sum, row, row * c.channels + p.channel);
        }
        for (int q = 0; q < F::Q; q++)
            for (int k = 0; k < V; k++)
                shared[q][k][t] = sum[q][k];
    }
    sum_block<V, F::Q>(c, shared);
    store_partial<V, F::Q>(c, shared, partial);
}

template <class F>
static tutti_status columns_sum(int device, void *stream, const F &f, const Columns &c,
                                float *partial, bool vectors)
{
    return vectors ? launch(device, stream, c.tiles * c.chunks, columns_sum_kernel<LANES, F>, f, c,
                            partial)
                   : launch(device, stream, c.tiles * c.chunks, columns_sum_kernel<1, F>, f, c,
                            partial);
}

/* ---- Joining chunks: one warp per channel ---- */

static constexpr int WARPS = THREADS / WARP;

DEVICE int64_t channel_of(int t)
{
    return block_index() * WARPS + t / WARP;
}

#endif
