/* embedding.cu -- copies rows out of a table, and adds gradients to it.   SPDX-License-Identifier: MIT
 *
 * Backward: one block for each index; it works only if no earlier index is the same, and then adds the rows of all equal
 * ones, in their order. So no two blocks add to the same row, and sums equal the CPU's. */
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/families.cuh"

KERNEL void embedding_kernel(float *y, const float *w, const int64_t *indices, const int64_t total,
                             const int64_t D)
{
    EACH_THREAD(t)
    {
        const int64_t i = block_index() * THREADS + t;

        if (i < total)
            y[i] = w[indices[i / D] * D + i % D];
    }
}

tutti_status tutti__own_embedding(int device, void *stream, float *y, const float *w,
                                  const int64_t *indices, int64_t n, int64_t D)
{
    return launch(device, stream, blocks_of(n * D, THREADS), embedding_kernel, y, w, indices, n * D,
                  D);
}

KERNEL void embedding_backward_kernel(float *dw, const float *dy, const int64_t *indices,
                                      const int64_t n, const int64_t D)
{
    SHARED bool same[THREADS];
    const int64_t first = block_index(), index = indices[first];
    Own<int> earlier, any;

    EACH_THREAD(t)
    {
        int found = 0;

        for (int64_t i = t; i < first; i += THREADS)
            found |= indices[i] == index;
        earlier[t] = found;
    }
    reduce<THREADS>(earlier, Max());
    if (earlier[0]) /* the same in all threads */
        return;
    for (int64_t from = first; from < n; from += THREADS) {
        EACH_THREAD(t)
        {
            any[t] = same[t] = from + t < n && indices[from + t] == index;
        }
        reduce<THREADS>(any, Max());
        if (!any[0]) /* the same in all threads */
            continue;
        EACH_THREAD(t)
        {
            for (int i = 0; i < THREADS; i++)
                for (int64_t d = t; same[i] && d < D; d += THREADS)
                    dw[index * D + d] += dy[(from + i) * D + d];
        }
        block_barrier();
    }
}

tutti_status tutti__own_embedding_backward(int device, void *stream, float *dw, const float *dy,
                                           const int64_t *indices, int64_t n, int64_t D)
{
    return launch(device, stream, n, embedding_backward_kernel, dw, dy, indices, n, D);
}
