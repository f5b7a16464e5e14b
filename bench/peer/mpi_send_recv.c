/* mpi_send_recv.c -- an MPI's ping-pong between two ranks, timed as `tutti bench ping_pong` times Tutti's:
 * for bench/send_recv.sh.
 * SPDX-License-Identifier: MIT
 *
 *     mpirun -np 2 mpi_send_recv BYTES...        lines of: bytes, microseconds of half a round trip
 *
 * A timed round follows a barrier and has several round trips if messages are short, one if they are long; prints the
 * median over rounds. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 5, TRIPS = 16, TRIPS_BYTES = 256 << 10 };

typedef struct stand {
    int rank;
    char *src, *dst;
} stand;

static void trip(const stand *s, int bytes)
{
    if (s->rank == 0)
        MPI_Send(s->src, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(s->dst, bytes, MPI_BYTE, 1 - s->rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (s->rank == 1)
        MPI_Send(s->src, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const stand *s, int bytes)
{
    int rounds = (int)(1e9 / (bytes + 5e5)), trips = bytes < TRIPS_BYTES ? TRIPS : 1;
    double *times, begin;

    rounds = rounds < 10 ? 10 : rounds > 1000 ? 1000 : rounds;
    times = calloc((size_t)rounds, sizeof *times);
    if (!times)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (int i = -WARMUP; i < rounds; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        for (int k = 0; k < trips; k++)
            trip(s, bytes);
        if (i >= 0)
            times[i] = (MPI_Wtime() - begin) * 1e6 / (2 * trips);
    }
    qsort(times, (size_t)rounds, sizeof *times, compare);
    if (s->rank == 0)
        printf("%d %.3f\n", bytes, times[rounds / 2]);
    free(times);
}

int main(int argc, char **argv)
{
    stand s = {0};
    int most = 1, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++)
        most = atoi(argv[i]) > most ? atoi(argv[i]) : most;
    s.src = malloc((size_t)most);
    s.dst = malloc((size_t)most);
    if (ranks != 2 || !s.src || !s.dst)
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(s.src, 1, (size_t)most); /* its own pages, not the page of zeros */
    memset(s.dst, 2, (size_t)most);
    for (int i = 1; i < argc; i++)
        measure(&s, atoi(argv[i]));
    free(s.src);
    free(s.dst);
    MPI_Finalize();
    return 0;
}
