/* smpi_rounds.c -- a collective's rounds over the MPI wire, in SimGrid's virtual time.   SPDX-License-Identifier: MIT
 *
 * Built by bench/simulate_smpi.sh with smpicc, from libtutti_comm and src/comm/backend/mpi/module.c, and run by smpirun: every rank runs the
 * algorithm of the table as over any MPI. Messages cost what SimGrid says. Local actions, which SimGrid does not see, take here the
 * time that `tutti simulate` assumes, and are not done: ranks share most of their memory, of which a thousand would not fit.
 *
 *     smpi_rounds BYTES REDUCE_GBPS SWITCH_HOSTS CHUNK ALGORITHM...      lines of algorithm and microseconds, of the slowest rank */
#include "comm/algorithm/rounds_act.h"
#include "comm/algorithm/tcp_rounds.h"
#include "comm/backend/mpi/mpi.h"
#include "comm/transport/plain_memory.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OWN_BYTES = 2 << 20, SHARED_BYTES = 4 << 20 };

extern const tutti__mpi tutti_mpi_table;
/* The linker's --wrap. */
void __wrap_tutti__coll_act(const tutti__coll *call, const tutti__coll_memory *memory,
                            const tutti__coll_action *action);
char *__wrap_tutti__tcp_scratch(tutti__tcp *tcp, size_t bytes);
char *__wrap_tutti__plain_second(tutti__plain_memory *memory, const void *p, size_t bytes);

static double reduce_gbps;
static int switch_hosts;

/* As in simulate/collective.c. */
void __wrap_tutti__coll_act(const tutti__coll *call, const tutti__coll_memory *memory,
                            const tutti__coll_action *a)
{
    const bool none = a->kind == TUTTI__COLL_COPY && a->from.place == TUTTI__COLL_SRC &&
                      a->to.place == TUTTI__COLL_DST && a->from.at == a->to.at;
    const double bytes = (double)(a->count * tutti__element(call->dtype)),
                 ns = none ? 0 : bytes / reduce_gbps;
    const struct timespec t = {(time_t)(ns * 1e-9), (long)fmod(ns, 1e9)};

    (void)memory;
    nanosleep(&t, NULL);
}

/* One's own at the beginning, where the list of a round's actions is; the rest is the same memory for all. */
static char *memory_of(size_t bytes)
{
    static int file = -1;
    const size_t whole = OWN_BYTES + (bytes / SHARED_BYTES + 1) * SHARED_BYTES;
    char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (file < 0) {
        file = memfd_create("shared", 0);
        if (ftruncate(file, SHARED_BYTES) != 0)
            return NULL;
    }
    for (size_t at = OWN_BYTES; p != MAP_FAILED && at < whole; at += SHARED_BYTES)
        if (mmap(p + at, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
            MAP_FAILED)
            return NULL;
    return p == MAP_FAILED ? NULL : p;
}

char *__wrap_tutti__tcp_scratch(tutti__tcp *tcp, size_t bytes)
{
    if (tcp->scratch_bytes < bytes) {
        if (tcp->scratch)
            munmap(tcp->scratch, tcp->scratch_bytes);
        tcp->scratch = memory_of(bytes);
        tcp->scratch_bytes = bytes;
    }
    return tcp->scratch;
}

/* As if buffers were memory of tutti_group_alloc: what is copied on its way costs SimGrid nothing. */
char *__wrap_tutti__plain_second(tutti__plain_memory *memory, const void *p, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return (char *)(uintptr_t)p;
}

/* SimGrid's ranks must not test in a loop, in which no virtual time passes. */
static int wait_some(tutti__mpi_request *requests, size_t n, bool *done, size_t *bytes)
{
    MPI_Request *here = malloc(n * sizeof *here);
    MPI_Status *statuses = malloc(n * sizeof *statuses);
    int *indices = malloc(n * sizeof *indices), n_done = 0, error;

    for (size_t i = 0; i < n; i++) {
        memcpy(&here[i], &requests[i], sizeof here[i]);
        done[i] = false;
    }
    error = MPI_Waitsome((int)n, here, &n_done, indices, statuses);
    for (int k = 0; k < n_done && !error; k++) {
        int count = 0;

        MPI_Get_count(&statuses[k], MPI_BYTE, &count);
        done[indices[k]] = true;
        bytes[indices[k]] = (size_t)count;
    }
    free(here);
    free(statuses);
    free(indices);
    return error;
}

/* All begin at one time: a barrier's end differs. */
static double begin_together(void)
{
    double at, now;
    struct timespec left;

    MPI_Barrier(MPI_COMM_WORLD);
    now = MPI_Wtime();
    MPI_Allreduce(&now, &at, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    at = ceil(at) + 1;
    now = at - MPI_Wtime();
    left = (struct timespec){(time_t)now, (long)(fmod(now, 1) * 1e9)};
    nanosleep(&left, NULL);
    return MPI_Wtime();
}

static int run(tutti__tcp *tcp, size_t bytes, size_t chunk, const char *name)
{
    tutti__operation op = {.signature = {.op = TUTTI__OP_ALL_REDUCE,
                                         .dtype = TUTTI_F32,
                                         .redop = TUTTI_SUM,
                                         .count = bytes / sizeof(float)},
                           .timeout_ms = 1 << 30,
                           .deadline = INFINITY};
    tutti__tcp_rounds r = {.tcp = tcp,
                           .op = &op,
                           .first = true,
                           .algorithm = tutti__coll_find(TUTTI__OP_ALL_REDUCE, name),
                           .call = {.op = TUTTI__OP_ALL_REDUCE,
                                    .dtype = TUTTI_F32,
                                    .redop = TUTTI_SUM,
                                    .size = tcp->comm->size,
                                    .count = bytes / sizeof(float),
                                    .chunk = chunk / sizeof(float),
                                    .block = {1}},
                           .ranks = tcp->everyone,
                           .me = tcp->comm->rank,
                           .divisor = (size_t)tcp->comm->size};
    double begin, mine, slowest = 0;

    if (tcp->comm->size > switch_hosts)
        r.call.block[1] = tcp->comm->size % switch_hosts == 0 ? switch_hosts : tcp->comm->size;
    if (!r.algorithm || !tutti__coll_fits(r.algorithm, &r.call))
        return 0;
    r.dst = op.dst = memory_of(bytes);
    r.src = op.src = r.dst;
    if (!r.src)
        return 1;
    begin = begin_together();
    if (tutti__tcp_run_rounds(&r) != TUTTI_OK)
        return 1;
    mine = MPI_Wtime() - begin;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (tcp->comm->rank == 0)
        printf("%s %.3f\n", name, slowest * 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    tutti__mpi mpi = tutti_mpi_table;
    tutti__mpi_world world = {0};
    tutti__comm comm = {.local_size = 1, .timeout_ms = 1 << 30};
    tutti__plain_memory memory = {0};
    tutti__tcp *tcp;
    int failed = 0;

    if (argc < 6 || mpi.start(&world) != 0)
        return 2;
    mpi.wait = wait_some;
    reduce_gbps = atof(argv[2]);
    switch_hosts = atoi(argv[3]);
    comm.rank = world.rank;
    comm.size = world.size;
    if (tutti__comm_init(&comm) != TUTTI_OK ||
        tutti__mpi_wire_new(&tcp, &comm, &mpi, world.comm) != TUTTI_OK)
        return 1;
    tcp->memory = &memory;
    for (int i = 5; i < argc && !failed; i++)
        failed = run(tcp, (size_t)atoll(argv[1]), (size_t)atoll(argv[4]), argv[i]);
    if (failed)
        fprintf(stderr, "rank %d: %s\n", comm.rank, tutti_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
