/* comm_reduce.c -- how fast one core reduces what several ranks contributed.   SPDX-License-Identifier: MIT
 *
 *     build/bench/bench_comm_reduce [KIB]
 *
 * One row per type, one column per number of sources, each of KIB kibibytes (default 32: all in the second-level cache), summed and
 * stored into all of them, as an all_reduce in place does. The figure is GB/s read and written: two bytes
 * moved per byte of each source. It is the best of several rounds. */
#include "base/base.h"
#include "comm/core/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, MOST = 8 };

static double gigabytes_per_s(tutti_dtype dtype, tutti_redop op, size_t n, size_t bytes, void **at)
{
    size_t count = bytes / tutti_dtype_size(dtype), repeats = 1 + (32u << 20) / (bytes * n);
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = tutti__now_ns(), ns;

        for (size_t i = 0; i < repeats; i++)
            tutti__reduce(dtype, op, at, n, (const void *const *)at, n, count);
        ns = tutti__now_ns() - begin;
        if (2.0 * (double)(repeats * n * bytes) / (double)ns > best)
            best = 2.0 * (double)(repeats * n * bytes) / (double)ns;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                         TUTTI_I8,  TUTTI_U8,  TUTTI_I32, TUTTI_I64};
    static const size_t SOURCES[] = {2, 3, 4, 8};
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 32) << 10;
    void *at[MOST];

    for (size_t i = 0; i < MOST; i++) {
        at[i] = tutti__alloc(bytes + 64 * MOST);
        if (!at[i])
            return 1;
        at[i] = (char *)at[i] + 64 * i; /* not all in the same cache sets */
    }
    printf("# GB/s read and written by one core, %zu KiB a source\n%-10s", bytes >> 10, "sum");
    for (size_t s = 0; s < TUTTI__COUNT_OF(SOURCES); s++)
        printf("%8zu", SOURCES[s]);
    for (size_t d = 0; d < TUTTI__COUNT_OF(DTYPES); d++) {
        printf("\n%-10s", tutti_dtype_name(DTYPES[d]));
        for (size_t s = 0; s < TUTTI__COUNT_OF(SOURCES); s++)
            printf("%8.1f", gigabytes_per_s(DTYPES[d], TUTTI_SUM, SOURCES[s], bytes, at));
    }
    printf("\n");
    return 0;
}
