/* comm_scale.c with MPI.   SPDX-License-Identifier: MIT */
#include "../scale.h"

#include <mpi.h>

static float *whole, *out, *in;

static void call(int count)
{
    if (count > 0)
        MPI_Allreduce(MPI_IN_PLACE, whole, count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    else
        MPI_Alltoall(out, 1, MPI_FLOAT, in, 1, MPI_FLOAT, MPI_COMM_WORLD);
}

static double time_of(int count)
{
    double us[SCALE_CALLS];

    call(count);
    for (int i = 0; i < SCALE_CALLS; i++) {
        double begin;

        MPI_Barrier(MPI_COMM_WORLD);
        begin = scale_now(CLOCK_MONOTONIC);
        call(count);
        us[i] = (scale_now(CLOCK_MONOTONIC) - begin) * 1e6;
    }
    return scale_median(us);
}

int main(int argc, char **argv)
{
    static const int COUNTS[] = {1, 1024, 262144, 0};
    const char *text = getenv("BEGIN");
    const double begin = text ? atof(text) : scale_now(CLOCK_REALTIME);
    double first, us[4] = {0}, holds[3];
    int n, rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    whole = calloc(262144, sizeof *whole);
    out = calloc((size_t)n, sizeof *out);
    in = calloc((size_t)n, sizeof *in);
    if (!whole || !out || !in)
        return 1;
    call(1);
    first = (scale_now(CLOCK_REALTIME) - begin) * 1e3;
    scale_holds(holds);
    MPI_Allreduce(MPI_IN_PLACE, holds, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++)
        us[i] = time_of(COUNTS[i]);
    if (rank == 0)
        scale_say(first, us, holds);
    MPI_Finalize();
    return 0;
}
