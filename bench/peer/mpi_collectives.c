/* mpi_collectives.c -- an MPI's collectives, timed as `tutti bench` times Tutti's: for bench/all_reduce.sh and collectives.sh.
 * SPDX-License-Identifier: MIT
 *
 *     mpirun -np N mpi_collectives OP... BYTES...        lines of: collective, bytes of the larger buffer, microseconds
 *
 * Each call follows a barrier; its time is the mean over ranks; prints the median over calls. Each collective is checked once
 * with numbers that identify each rank's contribution. */
#define _GNU_SOURCE
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WARMUP = 5, LEAST = 10, MOST = 1000, HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };
/* Of one collective and size: with more ranks than cores a call may take milliseconds. */
static const double SECONDS = 0.4;

typedef struct stand {
    int rank, size;
    float *src, *dst;
} stand;

typedef struct collective {
    const char *name;
    void (*call)(const stand *s, int whole, int piece);
} collective;

static void all_reduce(const stand *s, int whole, int piece)
{
    (void)piece;
    MPI_Allreduce(MPI_IN_PLACE, s->dst, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(const stand *s, int whole, int piece)
{
    (void)piece;
    MPI_Reduce(s->rank == 0 ? MPI_IN_PLACE : s->dst, s->dst, whole, MPI_FLOAT, MPI_SUM, 0,
               MPI_COMM_WORLD);
}

static void reduce_scatter(const stand *s, int whole, int piece)
{
    (void)whole;
    MPI_Reduce_scatter_block(s->src, s->dst, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(const stand *s, int whole, int piece)
{
    (void)piece;
    MPI_Bcast(s->dst, whole, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(const stand *s, int whole, int piece)
{
    (void)whole;
    MPI_Scatter(s->src, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void gather(const stand *s, int whole, int piece)
{
    (void)whole;
    MPI_Gather(s->rank == 0 ? MPI_IN_PLACE : s->dst, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT, 0,
               MPI_COMM_WORLD);
}

static void all_gather(const stand *s, int whole, int piece)
{
    (void)whole;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, s->dst, piece, MPI_FLOAT, MPI_COMM_WORLD);
}

static void all_to_all(const stand *s, int whole, int piece)
{
    (void)whole;
    MPI_Alltoall(s->src, piece, MPI_FLOAT, s->dst, piece, MPI_FLOAT, MPI_COMM_WORLD);
}

static void barrier(const stand *s, int whole, int piece)
{
    (void)s;
    (void)whole;
    (void)piece;
    MPI_Barrier(MPI_COMM_WORLD);
}

static const collective COLLECTIVES[] = {
    {"all_reduce", all_reduce}, {"reduce", reduce},         {"reduce_scatter", reduce_scatter},
    {"broadcast", broadcast},   {"scatter", scatter},       {"gather", gather},
    {"all_gather", all_gather}, {"all_to_all", all_to_all}, {"barrier", barrier}};

/* Each rank contributes its number + 1 everywhere: rank 0's result shows whether all contributed. */
static void check(const stand *s, const collective *c, int whole, int piece)
{
    float last = 0;

    for (int i = 0; i < whole; i++)
        s->src[i] = s->dst[i] = (float)(s->rank + 1);
    c->call(s, whole, piece);
    if (c->call == all_reduce || c->call == reduce || c->call == reduce_scatter)
        last = (float)(s->size * (s->size + 1)) / 2;
    else if (c->call == broadcast || c->call == scatter)
        last = 1;
    else if (c->call != barrier)
        last = (float)s->size;
    if (s->rank == 0 && last != 0 &&
        s->dst[c->call == reduce_scatter || c->call == scatter ? piece - 1 : whole - 1] != last) {
        fprintf(stderr, "mpi_collectives: %s of %d elements is wrong\n", c->name, whole);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(s->src, 0, (size_t)whole * sizeof(float)); /* repeated sums stay 0 */
    memset(s->dst, 0, (size_t)whole * sizeof(float));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double timed(const stand *s, const collective *c, int whole)
{
    double begin;

    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    c->call(s, whole, whole / s->size);
    return MPI_Wtime() - begin;
}

static void measure(const stand *s, const collective *c, int whole)
{
    double *times, begin;
    int calls;

    check(s, c, whole, whole / s->size);
    begin = MPI_Wtime();
    for (int i = 0; i < WARMUP; i++)
        (void)timed(s, c, whole);
    calls = (int)(SECONDS / ((MPI_Wtime() - begin) / WARMUP + 1e-9));
    calls = calls < LEAST ? LEAST : calls > MOST ? MOST : calls;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    times = calloc((size_t)calls, sizeof *times);
    if (!times)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (int i = 0; i < calls; i++)
        times[i] = timed(s, c, whole) * 1e6 / s->size;
    MPI_Allreduce(MPI_IN_PLACE, times, calls, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    qsort(times, (size_t)calls, sizeof *times, compare);
    if (s->rank == 0)
        printf("%s %zu %.3f\n", c->name, c->call == barrier ? 0 : (size_t)whole * sizeof(float),
               times[calls / 2]);
    free(times);
}

/* Elements of the larger buffer, at least one for each rank. */
static int whole_of(const stand *s, const char *bytes)
{
    int n = (int)(atol(bytes) / (long)sizeof(float)) / s->size;

    return (n > 0 ? n : 1) * s->size;
}

static void measure_all(const stand *s, const collective *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (atol(argv[i]) > 0) {
            int whole = whole_of(s, argv[i]);

            if (c->call == all_reduce || c->call == reduce || c->call == broadcast)
                whole = (int)(atol(argv[i]) / (long)sizeof(float));
            measure(s, c, whole);
            if (c->call == barrier)
                return;
        }
}

/* Like Tutti: uses large pages for large buffers if available. Writes each page: pages never written are all mapped to one
 * page of zeros, which is fast to read. */
static float *take(size_t bytes)
{
    size_t alignment = bytes < LARGE ? 64 : HUGE_PAGE,
           rounded = (bytes + alignment - 1) / alignment * alignment;
    float *p = aligned_alloc(alignment, rounded);

    if (p && bytes >= LARGE)
        (void)madvise(p, rounded, MADV_HUGEPAGE);
    return p ? memset(p, 0, rounded) : NULL;
}

int main(int argc, char **argv)
{
    stand s = {0};
    size_t most = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.size);
    for (int i = 1; i < argc; i++) {
        size_t n = (size_t)whole_of(&s, argv[i]);

        most = n > most ? n : most;
    }
    s.src = take(most * sizeof *s.src);
    s.dst = take(most * sizeof *s.dst);
    if (!s.src || !s.dst)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (int i = 1; i < argc; i++)
        for (size_t c = 0; c < sizeof COLLECTIVES / sizeof *COLLECTIVES; c++)
            if (strcmp(argv[i], COLLECTIVES[c].name) == 0)
                measure_all(&s, &COLLECTIVES[c], argc, argv);
    free(s.src);
    free(s.dst);
    MPI_Finalize();
    return 0;
}
