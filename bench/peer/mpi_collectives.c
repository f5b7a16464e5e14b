/* mpi_collectives.c -- collectives of an MPI, timed as `tutti bench` times ours: for bench/collectives.sh.
 * SPDX-License-Identifier: MIT
 *
 *     mpirun -np N mpi_collectives        lines of: collective, bytes of the larger buffer, microseconds
 *
 * Each call follows a barrier; its time is the mean over ranks, shown is the median over calls. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 25 << 20, WARMUP = 5 };

typedef struct stand {
    int rank, size;
    char *src, *dst;
} stand;

static void call(const stand *s, const char *op, int whole)
{
    int piece = whole / s->size;
    MPI_Comm world = MPI_COMM_WORLD;

    if (strcmp(op, "all_reduce") == 0)
        MPI_Allreduce(MPI_IN_PLACE, s->dst, whole, MPI_FLOAT, MPI_SUM, world);
    else if (strcmp(op, "reduce") == 0)
        MPI_Reduce(s->rank == 0 ? MPI_IN_PLACE : s->dst, s->dst, whole, MPI_FLOAT, MPI_SUM, 0,
                   world);
    else if (strcmp(op, "reduce_scatter") == 0)
        MPI_Reduce_scatter_block(s->src, s->dst, piece, MPI_FLOAT, MPI_SUM, world);
    else if (strcmp(op, "broadcast") == 0)
        MPI_Bcast(s->dst, whole, MPI_FLOAT, 0, world);
    else if (strcmp(op, "scatter") == 0)
        MPI_Scatter(s->src, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT, 0, world);
    else if (strcmp(op, "gather") == 0)
        MPI_Gather(s->rank == 0 ? MPI_IN_PLACE : s->src, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT,
                   0, world);
    else if (strcmp(op, "all_gather") == 0)
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, s->dst, piece, MPI_FLOAT, world);
    else
        MPI_Alltoall(s->src, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT, world);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const stand *s, const char *op, int whole)
{
    int calls = (int)(1e9 / (whole * 4.0 + 5e5));
    double *times, begin;

    calls = calls < 10 ? 10 : calls > 500 ? 500 : calls;
    times = calloc((size_t)calls, sizeof *times);
    for (int i = -WARMUP; i < calls; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        call(s, op, whole);
        if (i >= 0)
            times[i] = (MPI_Wtime() - begin) * 1e6 / s->size;
    }
    MPI_Allreduce(MPI_IN_PLACE, times, calls, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    qsort(times, (size_t)calls, sizeof *times, compare);
    if (s->rank == 0)
        printf("%s %zu %.2f\n", op, (size_t)whole * sizeof(float), times[calls / 2]);
    free(times);
}

int main(int argc, char **argv)
{
    static const char *const OPS[] = {"all_reduce", "reduce", "reduce_scatter", "broadcast",
                                      "scatter",    "gather", "all_gather",     "all_to_all"};
    static const int BYTES[] = {4 << 10, 64 << 10, 1 << 20, MOST};
    stand s = {0};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.size);
    s.src = malloc(MOST);
    s.dst = malloc(MOST);
    if (!s.src || !s.dst)
        return 4;
    memset(
        s.src, 0,
        MOST); /* pages of its own: those never written are all one page of zeros, which is quick to read */
    memset(s.dst, 1, MOST);
    for (size_t o = 0; o < sizeof OPS / sizeof *OPS; o++)
        for (size_t i = 0; i < sizeof BYTES / sizeof *BYTES; i++)
            measure(&s, OPS[o], BYTES[i] / 4 / s.size * s.size);
    free(s.src);
    free(s.dst);
    MPI_Finalize();
    return 0;
}
