/* comm_turns.c -- small broadcasts that wait for each other: bench/turns.sh runs it.   SPDX-License-Identifier: MIT
 *
 *     turns     root alternates, so each broadcast begins with what the one before has brought
 *     barrier   a barrier and a broadcast, in turn: nothing that a rank leaves to the next call is missed
 *
 * Where each call is timed alone after a barrier, a root that does not wait for the others is charged only for its copy.
 * Prints lines of: pattern, bytes, microseconds a broadcast (and barrier), the median over batches. Compiled with TURNS_MPI
 * it does the same by MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef TURNS_MPI
#include <mpi.h>
#else
#include <tutti/group.h>
#endif

enum { BATCHES = 200, CALLS = 500, SMALL = 1, MIDDLE = 1024 };

static float data[MIDDLE];

#ifdef TURNS_MPI
static int start(void)
{
    int rank;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static void stop(void)
{
    MPI_Finalize();
}

static void broadcast(int count, int root)
{
    MPI_Bcast(data, count, MPI_FLOAT, root, MPI_COMM_WORLD);
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}
#else
static tutti_group *group;

static int start(void)
{
    TUTTI_MUST(tutti_group_init(&group, NULL));
    return tutti_group_rank(group);
}

static void stop(void)
{
    tutti_group_free(group);
}

static void broadcast(int count, int root)
{
    TUTTI_MUST(tutti_broadcast(group, TUTTI_BUF(data, (size_t)count, TUTTI_F32), root, NULL));
}

static void barrier(void)
{
    TUTTI_MUST(tutti_barrier(group, NULL));
}
#endif

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double measure(int count, int turns)
{
    double times[BATCHES];

    for (int batch = 0; batch < BATCHES; batch++) {
        double begin;

        barrier();
        begin = now_us();
        for (int i = 0; i < CALLS; i++) {
            if (!turns)
                barrier();
            broadcast(count, turns ? i % 2 : 0);
        }
        times[batch] = (now_us() - begin) / CALLS;
    }
    qsort(times, BATCHES, sizeof *times, compare);
    return times[BATCHES / 2];
}

int main(void)
{
    int rank = start();
    const int counts[] = {SMALL, MIDDLE};

    for (int turns = 0; turns < 2; turns++)
        for (int i = 0; i < 2; i++) {
            double us = measure(counts[i], turns);

            if (rank == 0)
                printf("%s %d %.3f\n", turns ? "turns" : "barrier", counts[i] * 4, us);
        }
    stop();
    return 0;
}
