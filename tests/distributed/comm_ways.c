/* comm: whichever way plain memory gets to peers, what comes out is the same: every way is tried in turn, over many calls, also
 * where one rank may not read other processes.   SPDX-License-Identifier: MIT */
#include "harness/ranks.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

enum { CALLS = 130, ODD = 1 }; /* CALLS: until each way has been tried again */

static float value_of(int from, int to, size_t i, int call)
{
    return (float)((i * 7 + (size_t)(from * 31 + to * 17 + call * 5)) % 8191);
}

typedef struct stand {
    tutti_group *group;
    int size, rank, call;
    size_t count; /* of a piece */
    float *src, *dst;
} stand;

static void fill(const stand *s, size_t pieces)
{
    for (size_t to = 0; to < pieces; to++)
        for (size_t i = 0; i < s->count; i++)
            s->src[to * s->count + i] = value_of(s->rank, (int)to, i, s->call);
    memset(s->dst, 0x5a, (size_t)s->size * s->count * sizeof *s->dst);
}

static bool holds(const stand *s, const float *p, int from, int to)
{
    for (size_t i = 0; i < s->count; i++)
        if (p[i] != value_of(from, to, i, s->call))
            return false;
    return true;
}

static bool holds_sum(const stand *s, int to)
{
    for (size_t i = 0; i < s->count; i++) {
        float sum = value_of(0, to, i, s->call);

        for (int r = 1; r < s->size; r++)
            sum += value_of(r, to, i, s->call);
        if (s->dst[i] != sum)
            return false;
    }
    return true;
}

static int check_reductions(stand *s)
{
    const size_t n = (size_t)s->size;

    fill(s, 1);
    CHECK(tutti_all_reduce_from(s->group, TUTTI_CONST_BUF(s->src, s->count, TUTTI_F32),
                                TUTTI_BUF(s->dst, s->count, TUTTI_F32), TUTTI_SUM,
                                NULL) == TUTTI_OK);
    CHECK(holds_sum(s, 0));
    fill(s, n);
    CHECK(tutti_reduce_scatter(s->group, TUTTI_CONST_BUF(s->src, n * s->count, TUTTI_F32),
                               TUTTI_BUF(s->dst, s->count, TUTTI_F32), TUTTI_SUM,
                               NULL) == TUTTI_OK);
    CHECK(holds_sum(s, s->rank));
    return 0;
}

static int check_moves(stand *s)
{
    const size_t n = (size_t)s->size;
    const int root = s->call % s->size;

    fill(s, 1);
    CHECK(tutti_broadcast(s->group,
                          TUTTI_BUF(s->rank == root ? s->src : s->dst, s->count, TUTTI_F32), root,
                          NULL) == TUTTI_OK);
    CHECK(holds(s, s->rank == root ? s->src : s->dst, root, 0));
    fill(s, 1);
    CHECK(tutti_all_gather(s->group, TUTTI_CONST_BUF(s->src, s->count, TUTTI_F32),
                           TUTTI_BUF(s->dst, n * s->count, TUTTI_F32), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(s, s->dst + (size_t)r * s->count, r, 0));
    memset(s->src, 0x5a, s->count * sizeof *s->src); /* nobody reads it any more */
    fill(s, n);
    CHECK(tutti_all_to_all(s->group, TUTTI_CONST_BUF(s->src, n * s->count, TUTTI_F32),
                           TUTTI_BUF(s->dst, n * s->count, TUTTI_F32), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(s, s->dst + (size_t)r * s->count, r, s->rank));
    return 0;
}

/* Sizes alternate, so that the tail of a call of many chunks meets the head of one of few. */
static int make_many_calls(tutti_group *group, void *arg)
{
    const size_t *counts = arg;
    stand s = {.group = group, .size = tutti_group_size(group), .rank = tutti_group_rank(group)};
    const size_t most = (size_t)s.size * 50000 * sizeof *s.src;
    int result = 0;

    s.src = malloc(most);
    s.dst = malloc(most);
    CHECK(s.src && s.dst);
    for (s.call = 0; s.call < CALLS && result == 0; s.call++)
        for (size_t i = 0; counts[i] && result == 0; i++) {
            s.count = counts[i];
            result = check_reductions(&s) || check_moves(&s);
        }
    free(s.src);
    free(s.dst);
    return result;
}

static void may_not_read(int rank)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};

    if (rank == ODD && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0))
        _exit(77);
}

static void run(int ranks, size_t chunk_bytes, bool threads, void (*before)(int rank))
{
    static const size_t COUNTS[] = {3000, 40, 50000, 9001, 0}, SMALL[] = {2100, 700, 5003, 0};
    const tutti_ranks_opts opts = {.processes = !threads,
                                   .before = before,
                                   .tuning = {.chunk_bytes = chunk_bytes, .stage_all = threads}};

    assert_int_equal(tutti_run_ranks(ranks, make_many_calls,
                                     (void *)(uintptr_t)(chunk_bytes ? SMALL : COUNTS), &opts),
                     0);
}

static void two_processes(void **state)
{
    (void)state;
    run(2, 0, false, NULL);
    run(2, 1024, false, NULL);
}

static void more_processes_than_cores(void **state)
{
    (void)state;
    run(3, 4096, false, NULL);
}

static void one_rank_may_not_read_the_others(void **state)
{
    int results[2];
    const tutti_ranks_opts probe = {.processes = true, .before = may_not_read, .results = results};

    (void)state;
    if (tutti_run_ranks(2, make_many_calls, (void *)(uintptr_t)(const size_t[]){9000, 0}, &probe) !=
        0) {
        if (results[ODD] == 77) {
            print_message("no seccomp filters here\n");
            skip();
        }
        fail();
    }
}

static void threads_that_stage(void **state)
{
    (void)state;
    run(2, 1024, true, NULL);
    run(3, 0, true, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes),
        cmocka_unit_test(more_processes_than_cores),
        cmocka_unit_test(one_rank_may_not_read_the_others),
        cmocka_unit_test(threads_that_stage),
    };

    return cmocka_run_group_tests_name("comm_ways", tests, NULL, NULL);
}
