/* comm: results are the same for every method by which memory gets to peers: every method is tried in turn, over many calls, also if
 * one rank cannot read other processes.   SPDX-License-Identifier: MIT
 * timeout: 400, of which it needs less than 2 on an idle machine */
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

enum {
    ALL_AGAIN = 130, /* calls until each method has been tried again */
    ALL_ONCE = 12,   /* until each has been tried, and the fastest chosen */
    ODD = 1,
    MOST = 50000, /* numbers of a piece */
    MOST_RANKS = 3,
    PERIOD = 8191,
};

/* Messages are ranges of these numbers, with another start for each sender, receiver and call. */
static float numbers[MOST + PERIOD];

static const float *numbers_of(int from, int to, int call)
{
    return numbers + (from * 1031 + to * 517 + call * 5) % PERIOD;
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
        memcpy(s->src + to * s->count, numbers_of(s->rank, (int)to, s->call),
               s->count * sizeof *s->src);
    memset(s->dst, 0x5a, (size_t)s->size * s->count * sizeof *s->dst);
}

static bool holds(const stand *s, const float *p, int from, int to)
{
    return memcmp(p, numbers_of(from, to, s->call), s->count * sizeof *p) == 0;
}

static bool holds_sum(const stand *s, int to)
{
    const float *parts[MOST_RANKS];

    for (int r = 0; r < s->size; r++)
        parts[r] = numbers_of(r, to, s->call);
    for (size_t i = 0; i < s->count; i++) {
        float sum = parts[0][i];

        for (int r = 1; r < s->size; r++)
            sum += parts[r][i];
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
    memset(s->src, 0x5a, s->count * sizeof *s->src); /* it is not read any more */
    fill(s, n);
    CHECK(tutti_all_to_all(s->group, TUTTI_CONST_BUF(s->src, n * s->count, TUTTI_F32),
                           TUTTI_BUF(s->dst, n * s->count, TUTTI_F32), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(s, s->dst + (size_t)r * s->count, r, s->rank));
    fill(s, n);
    CHECK(tutti_scatter(s->group,
                        s->rank == root ? TUTTI_CONST_BUF(s->src, n * s->count, TUTTI_F32)
                                        : (tutti_const_buf){0},
                        TUTTI_BUF(s->dst, s->count, TUTTI_F32), root, NULL) == TUTTI_OK);
    CHECK(holds(s, s->dst, root, s->rank));
    fill(s, 1);
    CHECK(
        tutti_gather(s->group, TUTTI_CONST_BUF(s->src, s->count, TUTTI_F32),
                     s->rank == root ? TUTTI_BUF(s->dst, n * s->count, TUTTI_F32) : (tutti_buf){0},
                     root, NULL) == TUTTI_OK);
    for (int r = 0; s->rank == root && r < s->size; r++)
        CHECK(holds(s, s->dst + (size_t)r * s->count, r, 0));
    return 0;
}

/* Half as many to every second rank. */
static size_t uneven(const stand *s, int from, int to)
{
    return (from + to) % 2 ? s->count / 2 : s->count;
}

static int check_uneven(stand *s)
{
    size_t sent[MOST_RANKS], taken[MOST_RANKS], n_sent = 0, n_taken = 0;

    for (int r = 0; r < s->size; r++) {
        sent[r] = uneven(s, s->rank, r);
        taken[r] = uneven(s, r, s->rank);
        memcpy(s->src + n_sent, numbers_of(s->rank, r, s->call), sent[r] * sizeof *s->src);
        n_sent += sent[r];
        n_taken += taken[r];
    }
    memset(s->dst, 0x5a, n_taken * sizeof *s->dst);
    CHECK(tutti_all_to_all_v(s->group, TUTTI_CONST_BUF(s->src, n_sent, TUTTI_F32), sent,
                             TUTTI_BUF(s->dst, n_taken, TUTTI_F32), taken, NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++) {
        n_taken -= taken[s->size - 1 - r];
        CHECK(memcmp(s->dst + n_taken, numbers_of(s->size - 1 - r, s->rank, s->call),
                     taken[s->size - 1 - r] * sizeof *s->dst) == 0);
    }
    return 0;
}

/* To the next rank, from the one before. */
static int check_messages(stand *s)
{
    const int next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    tutti_work *work;

    fill(s, 1);
    CHECK(tutti_recv(s->group, TUTTI_BUF(s->dst, s->count, TUTTI_F32), before, 0, &work) ==
          TUTTI_OK);
    CHECK(tutti_send(s->group, TUTTI_CONST_BUF(s->src, s->count, TUTTI_F32), next, 0, NULL) ==
          TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    CHECK(holds(s, s->dst, before, 0));
    return 0;
}

typedef struct sizes {
    size_t counts[6]; /* up to the first 0 */
    int calls;
    bool shared; /* in memory of tutti_group_alloc */
} sizes;

/* Sizes alternate, so that the tail of a call of many chunks overlaps the head of one of few. */
static int make_many_calls(tutti_group *group, void *arg)
{
    const sizes *how = arg;
    const size_t *counts = how->counts;
    void *memory = NULL;
    stand s = {.group = group, .size = tutti_group_size(group), .rank = tutti_group_rank(group)};
    const size_t most = (size_t)s.size * MOST * sizeof *s.src;
    int result = 0;

    if (how->shared)
        CHECK(tutti_group_alloc(group, 2 * most, &memory) == TUTTI_OK);
    else
        CHECK(memory = malloc(2 * most));
    s.src = memory;
    s.dst = s.src + most / sizeof *s.src;
    for (s.call = 0; s.call < how->calls && result == 0; s.call++)
        for (size_t i = 0; counts[i] && result == 0; i++) {
            s.count = counts[i];
            result =
                check_reductions(&s) || check_moves(&s) || check_uneven(&s) || check_messages(&s);
        }
    if (how->shared)
        tutti_group_release(group, memory);
    else
        free(memory);
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

static const sizes USUAL = {{3000, 40, MOST, 9001}, ALL_AGAIN, false};
static const sizes SMALL = {{2100, 700, 5003}, ALL_AGAIN, false};
static const sizes SHARED = {{3000, MOST, 40, 9001}, ALL_ONCE, true};
/* More than 64 chunks of 1 KiB, which bypass the cache. */
static const sizes MUCH = {{20011, 1027}, ALL_ONCE, false};
static const sizes MUCH_SHARED = {{20011, 1027}, ALL_ONCE, true};

static const tutti_ranks_opts PROCESSES = {.processes = true}, THREADS = {0};

static void run(int ranks, size_t chunk_bytes, const sizes *counts, const tutti_ranks_opts *how)
{
    tutti_ranks_opts opts = *how;

    opts.tuning.chunk_bytes = chunk_bytes;
    assert_int_equal(tutti_run_ranks(ranks, make_many_calls, (void *)(uintptr_t)counts, &opts), 0);
}

static void two_processes(void **state)
{
    (void)state;
    run(2, 0, &USUAL, &PROCESSES);
    run(2, 1024, &MUCH, &PROCESSES);
}

/* Only some of these calls are large enough to be read through the kernel, though they are timed together. */
static void two_processes_beside_the_least_read(void **state)
{
    (void)state;
    run(2, 3 << 19, &(const sizes){{MOST, 33000}, ALL_AGAIN, false}, &PROCESSES);
}

static void more_processes_than_cores(void **state)
{
    (void)state;
    run(3, 4096, &SMALL, &PROCESSES);
}

static void one_rank_may_not_read_the_others(void **state)
{
    int results[2];
    const tutti_ranks_opts probe = {.processes = true, .before = may_not_read, .results = results};

    (void)state;
    if (tutti_run_ranks(2, make_many_calls,
                        (void *)(uintptr_t) & (const sizes){{9000}, ALL_AGAIN, false},
                        &probe) != 0) {
        if (results[ODD] == 77) {
            print_message("no seccomp filters here\n");
            skip();
        }
        fail();
    }
}

static void threads_that_stage(void **state)
{
    const tutti_ranks_opts stage_all = {.tuning = {.stage_all = true}};

    (void)state;
    run(2, 1024, &SMALL, &stage_all);
    run(3, 0, &USUAL, &stage_all);
}

/* Each also writes to the others' memory. */
static void memory_of_the_group(void **state)
{
    (void)state;
    run(2, 0, &SHARED, &PROCESSES);
    run(2, 1024, &MUCH_SHARED, &PROCESSES);
    run(3, 1024, &MUCH_SHARED, &PROCESSES);
    run(3, 1024, &MUCH, &THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes),
        cmocka_unit_test(two_processes_beside_the_least_read),
        cmocka_unit_test(more_processes_than_cores),
        cmocka_unit_test(one_rank_may_not_read_the_others),
        cmocka_unit_test(threads_that_stage),
        cmocka_unit_test(memory_of_the_group),
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        numbers[i] = (float)(i * 7 % PERIOD);
    return cmocka_run_group_tests_name("comm_copy_methods", tests, NULL, NULL);
}
