/* squares.cuh -- sums of squares that know no order, as device/squares.h defines them, of a thread and of a block.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_CUDA_MODULE_SQUARES_CUH
#define TUTTI_DEVICE_CUDA_MODULE_SQUARES_CUH

#include "device/cuda/module/lanes.cuh"
#include "device/cuda/module/reduce.cuh"
#include "device/squares.h"

#include <string.h>

DEVICE uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & INT32_MAX;
}

/* A thread's. low may exceed 32 bits until carry. */
struct Squares : tutti__squares {
    METHOD void raise(uint32_t bits)
    {
        const int rise = TUTTI__SQUARES_TOP(bits) - TUTTI__SQUARES_TOP(largest);

        largest = bits > largest ? bits : largest;
        for (int i = 0; i < rise && i < 2; i++) {
            high[1] = high[0];
            low[1] = low[0];
            high[0] = low[0] = 0;
        }
    }

    METHOD void carry()
    {
        for (int k = 0; k < 2; k++) {
            high[k] += low[k] >> 32;
            low[k] &= UINT32_MAX;
        }
    }

    /* As many elements as a thread has, without carry. */
    template <int V>
    METHOD void add(const Lanes<V> &x)
    {
        uint32_t most = 0;
        uint64_t bits[2];
        double magic[2];

        for (int k = 0; k < V; k++)
            most = magnitude(x[k]) > most ? magnitude(x[k]) : most;
        raise(most);
        for (int k = 0; k < 2; k++)
            bits[k] = TUTTI__SQUARES_MAGIC(TUTTI__SQUARES_TOP(largest) - k);
        memcpy(magic, bits, sizeof magic);
        for (int k = 0; k < V; k++) {
            const double d = (double)x[k] * (double)x[k];
            const double sum[2] = {d + magic[0], d - (d + magic[0] - magic[0]) + magic[1]};
            uint64_t whole[2];

            memcpy(whole, sum, sizeof whole);
            for (int j = 0; j < 2; j++)
                low[j] = (int64_t)((uint64_t)low[j] + whole[j] - bits[j]); /* NaN: anything */
        }
    }

    METHOD void add(const tutti__squares &more)
    {
        raise(more.largest);
        const int below = TUTTI__SQUARES_TOP(largest) - TUTTI__SQUARES_TOP(more.largest);

        for (int k = 0; k + below < 2; k++) {
            high[k + below] += more.high[k];
            low[k + below] += more.low[k];
        }
        carry();
    }
};

/* *to = the sum of all threads'. */
DEVICE void reduce_squares(Own<Squares> &own, tutti__squares *to)
{
    Own<uint32_t> most;
    Own<int64_t> part;

    EACH_THREAD(t)
    {
        most[t] = own[t].largest;
    }
    reduce<THREADS>(most, Max());
    EACH_THREAD(t)
    {
        own[t].raise(most[t]);
        own[t].carry();
    }
    for (int k = 0; k < 4; k++) {
        EACH_THREAD(t)
        {
            part[t] = k < 2 ? own[t].high[k] : own[t].low[k - 2];
        }
        reduce<THREADS>(part, Sum());
        EACH_THREAD(t)
        {
            if (t == 0)
                *(k < 2 ? &to->high[k] : &to->low[k - 2]) = part[t];
        }
    }
    EACH_THREAD(t)
    {
        if (t == 0)
            to->largest = most[t];
    }
}

#endif
