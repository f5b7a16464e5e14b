/* comm_groups.c -- what a group costs each of its ranks: time, threads, descriptors, mappings.   SPDX-License-Identifier: MIT
 *
 *     build/bench/bench_comm_groups RANKS GROUPS      prints one line for each way of making a group
 *
 * The ranks are processes of this host, which meet in a store that rank 0 hosts. Times (the median, and the shortest) and counts
 * are rank 0's; `used`: after each group has run one asynchronous call. */
#include "../tests/harness/resources.h"

#include <tutti/group.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct counts {
    int threads, descriptors, mappings;
} counts;

static counts count(void)
{
    return (counts){count_threads(), count_descriptors(), count_mappings()};
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void check(tutti_status status)
{
    if (status == TUTTI_OK)
        return;
    fprintf(stderr, "%s\n", tutti_last_error());
    exit(1);
}

typedef tutti_status splitter(tutti_group *group, const int *ranks, int n_ranks, const char *name,
                              tutti_group **sub_p);
typedef tutti_group *maker(tutti_group *world, tutti_store *store, int i);

static tutti_group *of_all(tutti_group *world, splitter *split)
{
    int n = tutti_group_size(world), ranks[64];
    tutti_group *group;

    for (int r = 0; r < n; r++)
        ranks[r] = r;
    check(split(world, ranks, n, "sub", &group));
    return group;
}

static tutti_group *by_split(tutti_group *world, tutti_store *store, int i)
{
    (void)store;
    (void)i;
    return of_all(world, tutti_group_split);
}

static tutti_group *by_members(tutti_group *world, tutti_store *store, int i)
{
    (void)store;
    (void)i;
    return of_all(world, tutti_group_split_members);
}

static tutti_group *by_store(tutti_group *world, tutti_store *store, int i)
{
    char name[32];
    tutti_group *group;

    snprintf(name, sizeof name, "own-%d", i);
    check(tutti_group_init(&group, &(tutti_group_opts){.store = store,
                                                       .rank = tutti_group_rank(world),
                                                       .world_size = tutti_group_size(world),
                                                       .name = name}));
    return group;
}

static void measure(const char *what, maker *make, tutti_group *world, tutti_store *store, int n)
{
    tutti_group **groups = calloc((size_t)n, sizeof(tutti_group *));
    double *took = calloc((size_t)n, sizeof *took), *freed = calloc((size_t)n, sizeof *freed);
    counts before, made, used;

    check(tutti_barrier(world, NULL));
    before = count();
    for (int i = 0; i < n; i++) {
        took[i] = -now_ms();
        groups[i] = make(world, store, i);
        took[i] += now_ms();
    }
    made = count();
    for (int i = 0; i < n; i++) {
        tutti_work *work;

        check(tutti_barrier(groups[i], &work));
        check(tutti_work_wait(work));
    }
    used = count();
    check(tutti_barrier(world, NULL));
    for (int i = 0; i < n; i++) {
        freed[i] = -now_ms();
        tutti_group_free(groups[i]);
        freed[i] += now_ms();
    }
    qsort(took, (size_t)n, sizeof *took, by_value);
    qsort(freed, (size_t)n, sizeof *freed, by_value);
    if (tutti_group_rank(world) == 0)
        printf("%-7s %d ranks, a group: %.3f ms (%.3f), freed in %.3f (%.3f); threads %.1f, used "
               "%.1f; descriptors %.1f; mappings %.1f, used %.1f\n",
               what, tutti_group_size(world), took[n / 2], took[0], freed[n / 2], freed[0],
               (double)(made.threads - before.threads) / n,
               (double)(used.threads - before.threads) / n,
               (double)(made.descriptors - before.descriptors) / n,
               (double)(made.mappings - before.mappings) / n,
               (double)(used.mappings - before.mappings) / n);
    fflush(stdout);
    free(groups);
    free(took);
    free(freed);
    check(tutti_barrier(world, NULL));
}

static void run(int rank, int size, int n, tutti_store *store)
{
    tutti_group *world;

    check(tutti_group_init(&world,
                           &(tutti_group_opts){.store = store, .rank = rank, .world_size = size}));
    measure("split", by_split, world, store, n);
    measure("members", by_members, world, store, n);
    measure("store", by_store, world, store, n);
    tutti_group_free(world);
    tutti_store_free(store);
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 2, n = argc > 2 ? atoi(argv[2]) : 20, pipes[64][2];
    int failed = 0, status, port;
    tutti_store *store;

    if (size < 1 || size > 64 || n < 1) {
        fprintf(stderr, "%s RANKS GROUPS, with 1 to 64 ranks\n", argv[0]);
        return 2;
    }
    for (int r = 1; r < size; r++) {
        if (pipe(pipes[r]) != 0)
            return 1;
        if (fork() == 0) {
            if (read(pipes[r][0], &port, sizeof port) != sizeof port)
                return 1;
            check(tutti_store_tcp_connect(&store, "127.0.0.1", port, 10000));
            run(r, size, n, store);
            return 0;
        }
    }
    check(tutti_store_tcp_serve(&store, "127.0.0.1", 0));
    port = tutti_store_port(store);
    for (int r = 1; r < size; r++)
        if (write(pipes[r][1], &port, sizeof port) != sizeof port)
            return 1;
    run(0, size, n, store);
    while (wait(&status) > 0)
        failed += status != 0;
    return failed != 0;
}
