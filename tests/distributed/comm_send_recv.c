/* comm: send and receive by rank and tag, beside collectives: any order, any size, to itself, and when a peer ends.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static tutti_buf ints(int32_t *p, size_t n)
{
    return TUTTI_BUF(p, n, TUTTI_I32);
}

static int32_t value(int from, int to, int tag, size_t i)
{
    return (int32_t)(from * 1000003 + to * 10007 + tag * 101 + (int)i);
}

/* ---- All to all ------------------------------------------------------------------------------ */

enum { N_SIZES = 9, N_TAGS = 3 };
static const size_t SIZES[N_SIZES] = {0, 1, 7, 4095, 4096, 4097, 65536, 65537, 300000};

/* Sends before anyone receives, tags received in another order than sent, itself included, collectives in between. */
static int all_pairs(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    size_t count = *(const size_t *)arg, n = (size_t)(size * N_TAGS), k = 0;
    int32_t *out = calloc(n * count + 1, sizeof *out), *in = calloc(n * count + 1, sizeof *in);
    tutti_work **sends = calloc(n, sizeof(tutti_work *)),
               **receives = calloc(n, sizeof(tutti_work *)), *reduction;
    float x = 1;

    for (int to = 0; to < size; to++)
        for (int tag = 0; tag < N_TAGS; tag++, k++) {
            for (size_t i = 0; i < count; i++)
                out[k * count + i] = value(rank, to, tag, i);
            CHECK(tutti_send(group, tutti_buf_const(ints(out + k * count, count)), to, tag,
                             &sends[k]) == TUTTI_OK);
        }
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &reduction) == TUTTI_OK);
    k = 0;
    for (int from = size - 1; from >= 0; from--)
        for (int tag = N_TAGS - 1; tag >= 0; tag--, k++)
            CHECK(tutti_recv(group, ints(in + k * count, count), from, tag, &receives[k]) ==
                  TUTTI_OK);
    k = 0;
    for (int from = size - 1; from >= 0; from--)
        for (int tag = N_TAGS - 1; tag >= 0; tag--, k++) {
            CHECK(tutti_work_source(receives[k]) == from);
            CHECK(tutti_work_wait(receives[k]) == TUTTI_OK);
            for (size_t i = 0; i < count; i++)
                CHECK(in[k * count + i] == value(from, rank, tag, i));
        }
    for (k = 0; k < n; k++)
        CHECK(tutti_work_wait(sends[k]) == TUTTI_OK);
    CHECK(tutti_work_wait(reduction) == TUTTI_OK && x == (float)size);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    free(out);
    free(in);
    free(sends);
    free(receives);
    return 0;
}

static void everybody_sends_to_everybody(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 7};

    (void)state;
    for (size_t s = 0; s < N_SIZES; s++)
        assert_int_equal(
            tutti_run_ranks_as_processes(3, all_pairs, (void *)(uintptr_t)&SIZES[s],
                                         s % 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO),
            0);
    for (size_t i = 0; i < TUTTI__COUNT_OF(ranks); i++) {
        assert_int_equal(
            tutti_run_ranks_everywhere(ranks[i], all_pairs, (void *)(uintptr_t)&SIZES[3]), 0);
        assert_int_equal(
            tutti_run_ranks_as_threads(ranks[i], all_pairs, (void *)(uintptr_t)&SIZES[7]), 0);
    }
}

/* ---- Many, and in order ------------------------------------------------------------------------------------- */

/* Ten thousand small ones before the first receive: more than are buffered; all in order. */
static int many_small(tutti_group *group, void *arg)
{
    enum { N = 10000 };
    int rank = tutti_group_rank(group), next = (rank + 1) % tutti_group_size(group),
        before = (rank + tutti_group_size(group) - 1) % tutti_group_size(group);
    int32_t *values = calloc(N, sizeof *values), got;
    tutti_work **works = calloc(N, sizeof(tutti_work *));

    (void)arg;
    for (int i = 0; i < N; i++) {
        values[i] = value(rank, next, 0, (size_t)i);
        CHECK(tutti_send(group, tutti_buf_const(ints(&values[i], 1)), next, i % 2, &works[i]) ==
              TUTTI_OK);
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    for (int tag = 1; tag >= 0; tag--)
        for (int i = tag; i < N; i += 2) {
            CHECK(tutti_recv(group, ints(&got, 1), before, tag, NULL) == TUTTI_OK);
            CHECK(got == value(before, rank, 0, (size_t)i));
        }
    for (int i = 0; i < N; i++)
        CHECK(tutti_work_wait(works[i]) == TUTTI_OK);
    free(values);
    free(works);
    return 0;
}

static void ten_thousand_small_ones_keep_their_order(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, many_small, NULL), 0);
    assert_int_equal(tutti_run_ranks_as_threads(3, many_small, NULL), 0);
}

/* From any rank; each exactly once. */
static int from_anyone(tutti_group *group, void *arg)
{
    enum { EACH = 50 };
    int size = tutti_group_size(group), rank = tutti_group_rank(group),
        *next = calloc((size_t)size, sizeof *next);

    (void)arg;
    for (int i = 0; i < EACH && rank != 0; i++) {
        int32_t x[2] = {rank, i};

        CHECK(tutti_send(group, tutti_buf_const(ints(x, 2)), 0, 4, NULL) == TUTTI_OK);
    }
    for (int i = 0; i < EACH * (size - 1) && rank == 0; i++) {
        int32_t x[2];
        tutti_work *work;
        int source;

        CHECK(tutti_recv(group, ints(x, 2), TUTTI_ANY_RANK, 4, &work) == TUTTI_OK);
        source = tutti_work_source(work);
        CHECK(tutti_work_wait(work) == TUTTI_OK);
        CHECK(source == x[0] && x[1] == next[source]);
        next[source]++;
    }
    free(next);
    return 0;
}

static void any_rank_may_be_received_from(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(4, from_anyone, NULL), 0);
}

/* ---- Large ones, beside others -------------------------------------------------------------------------------- */

/* 64 MiB in both directions, while small ones and collectives continue. */
static int large_beside_others(tutti_group *group, void *arg)
{
    enum { COUNT = 16 << 20, ROUNDS = 200 };
    int rank = tutti_group_rank(group), other = 1 - rank;
    int32_t *out = malloc(COUNT * sizeof *out), *in = calloc(COUNT, sizeof *in), small = 0;
    tutti_work *send, *receive;
    float x = 0;

    (void)arg;
    for (int i = 0; i < COUNT; i++)
        out[i] = value(rank, other, 9, (size_t)i);
    CHECK(tutti_send(group, tutti_buf_const(ints(out, COUNT)), other, 9, &send) == TUTTI_OK);
    /* It is not received yet, and blocks no other. */
    for (int i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS / 2)
            CHECK(tutti_recv(group, ints(in, COUNT), other, 9, &receive) == TUTTI_OK);
        CHECK(tutti_send(group, tutti_buf_const(ints(&i, 1)), other, 1, NULL) == TUTTI_OK);
        CHECK(tutti_recv(group, ints(&small, 1), other, 1, NULL) == TUTTI_OK && small == i);
        x = 1;
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(x == 2);
    }
    CHECK(tutti_work_wait(receive) == TUTTI_OK && tutti_work_wait(send) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == value(other, rank, 9, (size_t)i));
    free(out);
    free(in);
    return 0;
}

static void a_large_one_holds_nothing_up(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, large_beside_others, NULL), 0);
}

/* Messages of one size go by each of the ways between two processes, in turn at first. */
static int again_and_again(tutti_group *group, void *arg)
{
    enum { TIMES = 30, MOST = 100 << 10 };
    static const size_t counts[] = {4097, 20001, 65537, MOST};
    static _Thread_local int32_t out[MOST], in[MOST];
    int rank = tutti_group_rank(group);

    (void)arg;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int k = 0; k < TIMES; k++) {
            tutti_work *sent;

            for (size_t i = 0; i < counts[c]; i++)
                out[i] = value(rank, 1 - rank, k, i);
            CHECK(tutti_send(group, tutti_buf_const(ints(out, counts[c])), 1 - rank, 0, &sent) ==
                  TUTTI_OK);
            CHECK(tutti_recv(group, ints(in, counts[c]), 1 - rank, 0, NULL) == TUTTI_OK);
            for (size_t i = 0; i < counts[c]; i++)
                CHECK(in[i] == value(1 - rank, rank, k, i));
            CHECK(tutti_work_wait(sent) == TUTTI_OK);
        }
    return 0;
}

static void large_ones_of_one_size_arrive_each_time(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, again_and_again, NULL), 0);
}

/* ---- Leaving ------------------------------------------------------------------------------------------------------ */

/* The sender's, which it does not wait for before it leaves. */
static tutti_work *unwaited[2];

/* Messages sent before a rank left, or ended, arrive; leaving waits for a large one. */
static int sent_and_gone(tutti_group *group, void *arg)
{
    enum { COUNT = 1 << 20 };
    static _Thread_local int32_t out[COUNT];
    int rank = tutti_group_rank(group), way = *(const int *)arg;
    int32_t *in = calloc(COUNT, sizeof *in), x = 5;

    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (rank == 1) {
        for (int i = 0; i < COUNT; i++)
            out[i] = i;
        CHECK(tutti_send(group, tutti_buf_const(ints(&x, 1)), 0, 0, &unwaited[0]) == TUTTI_OK);
        if (way == 1)
            _exit(0);
        if (way == 2)
            CHECK(tutti_send(group, tutti_buf_const(ints(out, COUNT)), 0, 1, &unwaited[1]) ==
                  TUTTI_OK);
        free(in);
        return 0; /* frees the group */
    }
    if (way != 2)
        while (!atomic_load(&group->comm.peers[1].left) && !tutti__comm_failed(&group->comm))
            usleep(200);
    CHECK(tutti_recv(group, ints(in, 1), 1, 0, NULL) == TUTTI_OK && in[0] == 5);
    if (way == 2) {
        CHECK(tutti_recv(group, ints(in, COUNT), 1, 1, NULL) == TUTTI_OK);
        for (int i = 0; i < COUNT; i++)
            CHECK(in[i] == i);
    }
    CHECK(tutti_recv(group, ints(in, 1), 1, 0, NULL) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), way == 1 ? "was lost" : "has left the group") != NULL);
    CHECK(strstr(tutti_last_error(), "recv #") && strstr(tutti_last_error(), "from rank 1, tag 0"));
    free(in);
    return 0;
}

static void what_was_sent_before_leaving_arrives(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        if (way != 1) {
            assert_int_equal(tutti_run_ranks_as_threads(2, sent_and_gone, &way), 0);
            assert_int_equal(tutti_work_wait(unwaited[0]), TUTTI_OK); /* its group was freed */
        }
        if (way == 2)
            assert_int_equal(tutti_work_wait(unwaited[1]), TUTTI_OK);
        assert_int_equal(tutti_run_ranks_as_processes(2, sent_and_gone, &way, TUTTI_TRANSPORT_AUTO),
                         0);
        assert_int_equal(tutti_run_ranks_as_processes(2, sent_and_gone, &way, TUTTI_TRANSPORT_TCP),
                         0);
    }
}

/* ---- Failure --------------------------------------------------------------------------------------------------------- */

/* A killed peer, or an abort, ends all that is pending: not arrived, partly arrived, not received. */
static int pending_letters(tutti_group *group, void *arg)
{
    enum { COUNT = 8 << 20 };
    int rank = tutti_group_rank(group), way = *(const int *)arg;
    int32_t *p = calloc(COUNT, sizeof *p), *q = calloc(COUNT, sizeof *q), x = 0;
    tutti_work *works[4];
    tutti_status expected = way == 0 ? TUTTI_ERR_PEER : TUTTI_ERR_ABORTED;

    CHECK(tutti_send(group, tutti_buf_const(ints(p, COUNT)), (rank + 1) % 3, 1, &works[0]) ==
          TUTTI_OK);
    CHECK(tutti_recv(group, ints(q, COUNT), (rank + 2) % 3, 1, &works[1]) == TUTTI_OK);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "sent") == TUTTI_OK);
    if (rank == 1 && way == 0)
        raise(SIGKILL);
    if (rank == 1) {
        tutti_group_abort(group, "enough");
    } else {
        /* Its failure may be known already. */
        if (tutti_recv(group, ints(&x, 1), 1, 2, &works[2]) != TUTTI_OK)
            works[2] = NULL;
        if (tutti_send(group, tutti_buf_const(ints(p, COUNT)), 1, 3, &works[3]) != TUTTI_OK)
            works[3] = NULL;
        CHECK(works[2] && tutti_work_source(works[2]) == -1);
        CHECK(tutti_work_wait(works[2]) == expected);
        CHECK(strstr(tutti_last_error(), way == 0 ? "rank 1 (" : "said: enough") != NULL);
        CHECK(strstr(tutti_last_error(), "recv #3 (I32 x 1, from rank 1, tag 2)") ||
              strstr(tutti_last_error(), "recv #2 (I32 x 1, from rank 1, tag 2)"));
        CHECK(works[3] && tutti_work_wait(works[3]) == expected);
    }
    for (int i = 0; i < 2; i++) {
        tutti_status status = tutti_work_wait(works[i]);

        CHECK(status == TUTTI_OK || status == expected);
    }
    CHECK(tutti_send(group, tutti_buf_const(ints(&x, 1)), rank, 1, NULL) == expected);
    free(p);
    free(q);
    return 0;
}

static void failure_ends_what_is_pending(void **state)
{
    int results[3];

    (void)state;
    for (int way = 0; way < 2; way++)
        for (int tcp = 0; tcp < 2; tcp++) {
            const tutti_ranks_opts opts = {.processes = true,
                                           .transport =
                                               tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                           .results = results};

            tutti_run_ranks(3, pending_letters, &way, &opts);
            for (int r = 0; r < 3; r++)
                assert_int_equal(results[r], r == 1 && way == 0 ? -SIGKILL : 0);
        }
    assert_int_equal(tutti_run_ranks_as_threads(3, pending_letters, &(int){1}), 0);
}

static int they_differ(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), way = *(const int *)arg;
    size_t counts[] = {10, 70000};
    int32_t *p = calloc(70001, sizeof *p);
    size_t count = counts[way % 2];
    tutti_status status = TUTTI_OK;
    char sent[64];

    if (rank == 0 && way < 2)
        status = tutti_send(group, tutti_buf_const(ints(p, count)), 1, 6, NULL);
    else if (rank == 1)
        status = tutti_recv(group, way < 2 ? TUTTI_BUF(p, count, TUTTI_F32) : ints(p, count + 1), 0,
                            6, NULL);
    else if (rank == 0)
        status = tutti_send(group, tutti_buf_const(ints(p, count)), 1, 6, NULL);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_MISMATCH);
    snprintf(sent, sizeof sent, "rank 0 called send #0 (I32 x %zu, to rank 1, tag 6)", count);
    CHECK(strstr(tutti_last_error(), sent) != NULL);
    CHECK(strstr(tutti_last_error(), "but rank 1 called recv #0 (") != NULL);
    free(p);
    return 0;
}

static void what_differs_is_told_on_all_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++)
        assert_int_equal(tutti_run_ranks_everywhere(3, they_differ, &way), 0);
}

static int never_sent(tutti_group *group, void *arg)
{
    const bool *in_background = arg;
    int rank = tutti_group_rank(group);
    tutti_work *work;
    double begin;
    int32_t x;

    CHECK(tutti_group_set_timeout(group, 300) == TUTTI_OK);
    begin = tutti__now_ms();
    if (rank == 0) {
        if (*in_background) {
            CHECK(tutti_recv(group, ints(&x, 1), 1, 3, &work) == TUTTI_OK);
            CHECK(tutti_work_wait(work) == TUTTI_ERR_TIMEOUT);
        } else {
            CHECK(tutti_recv(group, ints(&x, 1), 1, 3, NULL) == TUTTI_ERR_TIMEOUT);
        }
        CHECK(tutti__now_ms() - begin >= 300);
        CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
        CHECK(strstr(tutti_last_error(), "timed out after 0.3 s waiting for rank 1 (") != NULL);
        CHECK(strstr(tutti_last_error(), "tag 3") && strstr(tutti_last_error(), "tutti_send"));
    } else {
        while (!tutti__comm_failed(&group->comm))
            usleep(500);
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_TIMEOUT);
    return 0;
}

static void what_never_comes_ends_at_the_time_limit(void **state)
{
    (void)state;
    for (int in_background = 0; in_background < 2; in_background++)
        assert_int_equal(tutti_run_ranks_everywhere(2, never_sent, &(bool){in_background == 1}), 0);
}

static int alone(tutti_group *group, void *arg)
{
    int32_t big[9000], got[9000], x = 3, y = 0;
    tutti_work *work;

    (void)arg;
    for (int i = 0; i < 9000; i++)
        big[i] = i;
    /* small: buffered */
    CHECK(tutti_send(group, tutti_buf_const(ints(&x, 1)), 0, 0, NULL) == TUTTI_OK);
    CHECK(tutti_send(group, tutti_buf_const(ints(big, 9000)), 0, 0, &work) == TUTTI_OK);
    CHECK(!tutti_work_done(work));
    CHECK(tutti_recv(group, ints(&y, 1), TUTTI_ANY_RANK, 0, NULL) == TUTTI_OK && y == 3);
    CHECK(tutti_recv(group, ints(got, 9000), 0, 0, NULL) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK && memcmp(big, got, sizeof big) == 0);
    CHECK(tutti_monitored_barrier(group, 0, true) == TUTTI_OK);
    CHECK(tutti_send(group, tutti_buf_const(ints(&x, 1)), 1, 0, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_send(group, tutti_buf_const(ints(&x, 1)), 0, -1, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_recv(group, ints(&x, 1), -2, 0, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_recv(group, ints(NULL, 1), 0, 0, NULL) == TUTTI_ERR_ARG);
    return 0;
}

static void a_rank_alone_sends_to_itself(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(1, alone, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_sends_to_everybody),
        cmocka_unit_test(ten_thousand_small_ones_keep_their_order),
        cmocka_unit_test(any_rank_may_be_received_from),
        cmocka_unit_test(a_large_one_holds_nothing_up),
        cmocka_unit_test(large_ones_of_one_size_arrive_each_time),
        cmocka_unit_test(what_was_sent_before_leaving_arrives),
        cmocka_unit_test(failure_ends_what_is_pending),
        cmocka_unit_test(what_differs_is_told_on_all_ranks),
        cmocka_unit_test(what_never_comes_ends_at_the_time_limit),
        cmocka_unit_test(a_rank_alone_sends_to_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
