/* comm: many ranks of a host, which wait for each other by a tree: every operation, with the bits of sums in rank order; messages; and
 * that a missing rank, one that left, and one that makes another call, are named.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "bodies.h"
#include "harness/resources.h"

#include <unistd.h>

enum { MANY = 33, MORE = 64, MOST = 10000, PERIOD = 127 };

/* Sums of these depend on their order. */
static float value(int from, int to, size_t i)
{
    return 1.0f / (float)(1 + from + (int)((7 * (size_t)to + i) % PERIOD));
}

static float total(int size, int to, size_t i)
{
    float sum = value(0, to, i);

    for (int r = 1; r < size; r++)
        sum += value(r, to, i);
    return sum;
}

typedef struct job {
    tutti_group *group;
    int size, rank, root;
    size_t count; /* of a piece */
    float *src, *dst;
} job;

/* src: pieces for `pieces` ranks. */
static void fill(const job *j, size_t pieces)
{
    for (size_t to = 0; to < pieces; to++)
        for (size_t i = 0; i < j->count; i++)
            j->src[to * j->count + i] = value(j->rank, (int)to, i);
    memset(j->dst, 0x5a, (size_t)j->size * j->count * sizeof *j->dst);
}

static bool holds(const job *j, const float *p, int from, int to)
{
    for (size_t i = 0; i < j->count; i++)
        if (p[i] != value(from, to, i))
            return false;
    return true;
}

static bool holds_total(const job *j, int to)
{
    /* one of several, since a total takes as many steps as there are ranks; the last in any case */
    for (size_t i = 0; i < j->count; i += i + PERIOD < j->count ? 5 : 1)
        if (j->dst[i] != total(j->size, to, i))
            return false;
    return true;
}

static tutti_buf dst(const job *j, size_t pieces)
{
    return TUTTI_BUF(j->dst, pieces * j->count, TUTTI_F32);
}

static tutti_const_buf src(const job *j, size_t pieces)
{
    return TUTTI_CONST_BUF(j->src, pieces * j->count, TUTTI_F32);
}

static int reductions(const job *j)
{
    const size_t n = (size_t)j->size;

    fill(j, 1);
    CHECK_OK(tutti_all_reduce_from(j->group, src(j, 1), dst(j, 1), TUTTI_SUM, NULL));
    CHECK(holds_total(j, 0));
    fill(j, 1);
    CHECK_OK(tutti_all_reduce(j->group, TUTTI_BUF(j->src, j->count, TUTTI_F32), TUTTI_MAX, NULL));
    for (size_t i = 0; i < j->count; i++)
        CHECK(j->src[i] == value(0, 0, i));
    fill(j, 1);
    CHECK_OK(tutti_reduce_from(j->group, src(j, 1), j->rank == j->root ? dst(j, 1) : (tutti_buf){0},
                               TUTTI_SUM, j->root, NULL));
    CHECK(j->rank != j->root || holds_total(j, 0));
    CHECK(holds(j, j->src, j->rank, 0));
    fill(j, n);
    CHECK_OK(tutti_reduce_scatter(j->group, src(j, n), dst(j, 1), TUTTI_SUM, NULL));
    CHECK(holds_total(j, j->rank));
    return 0;
}

static int moves(const job *j)
{
    const size_t n = (size_t)j->size;
    const bool is_root = j->rank == j->root;

    fill(j, 1);
    CHECK_OK(tutti_broadcast(j->group, TUTTI_BUF(is_root ? j->src : j->dst, j->count, TUTTI_F32),
                             j->root, NULL));
    CHECK(holds(j, is_root ? j->src : j->dst, j->root, 0));
    fill(j, n);
    CHECK_OK(tutti_scatter(j->group, is_root ? src(j, n) : (tutti_const_buf){0}, dst(j, 1), j->root,
                           NULL));
    CHECK(holds(j, j->dst, j->root, j->rank));
    fill(j, 1);
    CHECK_OK(
        tutti_gather(j->group, src(j, 1), is_root ? dst(j, n) : (tutti_buf){0}, j->root, NULL));
    for (int r = 0; r < j->size && is_root; r++)
        CHECK(holds(j, j->dst + (size_t)r * j->count, r, 0));
    fill(j, 1);
    CHECK_OK(tutti_all_gather(j->group, src(j, 1), dst(j, n), NULL));
    for (int r = 0; r < j->size; r++)
        CHECK(holds(j, j->dst + (size_t)r * j->count, r, 0));
    fill(j, n);
    CHECK_OK(tutti_all_to_all(j->group, src(j, n), dst(j, n), NULL));
    for (int r = 0; r < j->size; r++)
        CHECK(holds(j, j->dst + (size_t)r * j->count, r, j->rank));
    return 0;
}

static int unequal_moves(const job *j)
{
    size_t out[MORE], in[MORE], sent = 0, received = 0, at = 0;

    for (int r = 0; r < j->size; r++) {
        out[r] = j->count * (size_t)((j->rank + r) % 3) / 2;
        in[r] = out[r]; /* the rule is symmetric */
        sent += out[r];
        received += in[r];
    }
    for (int r = 0; r < j->size; r++)
        for (size_t i = 0; i < out[r]; i++)
            j->src[at++] = value(j->rank, r, i);
    CHECK_OK(tutti_all_to_all_v(j->group, TUTTI_CONST_BUF(j->src, sent, TUTTI_F32), out,
                                TUTTI_BUF(j->dst, received, TUTTI_F32), in, NULL));
    at = 0;
    for (int r = 0; r < j->size; r++)
        for (size_t i = 0; i < in[r]; i++)
            CHECK(j->dst[at++] == value(r, j->rank, i));
    return 0;
}

static int every_operation(tutti_group *group, void *arg)
{
    static const size_t COUNTS[] = {0, 1, 500, 700, 9000};
    job j = {.group = group,
             .size = tutti_group_size(group),
             .rank = tutti_group_rank(group),
             .src = malloc(MORE * MOST * sizeof(float))};
    void *shared;

    (void)arg;
    CHECK(j.src);
    CHECK_OK(tutti_group_alloc(group, (size_t)j.size * MOST * sizeof(float), &shared));
    j.dst = shared; /* one side plain, the other readable by all */
    for (size_t c = 0; c < TUTTI__COUNT_OF(COUNTS); c++) {
        j.count = COUNTS[c];
        j.root = (int)(c * 11) % j.size;
        CHECK_0(reductions(&j));
        CHECK_0(moves(&j));
        CHECK_0(unequal_moves(&j));
        CHECK_OK(tutti_barrier(group, NULL));
        if (c % 2) {
            float *swapped = j.src;

            j.src = j.dst;
            j.dst = swapped;
        }
    }
    free(j.dst == shared ? j.src : j.dst);
    return 0;
}

static void all_operations(void **state)
{
    const tutti_ranks_opts *opts = *state;

    assert_int_equal(tutti_run_ranks(opts->processes ? MANY : 7, every_operation, NULL, opts), 0);
}

static void all_operations_of_more(void **state)
{
    assert_int_equal(tutti_run_ranks(MORE, every_operation, NULL, *state), 0);
}

/* ---- Messages ---------------------------------------------------------------------------------------------- */

/* Small and large ones to neighbours, near and far, without a ring for each pair. */
static int messages(tutti_group *group, void *arg)
{
    static const int STEPS[] = {1, 7, 16};
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float *out = malloc(MOST * sizeof *out), *in = malloc(MOST * sizeof *in);

    (void)arg;
    CHECK(out && in);
    for (size_t s = 0; s < TUTTI__COUNT_OF(STEPS); s++)
        for (size_t count = 1; count <= MOST; count = count * 20) {
            const int to = (rank + STEPS[s]) % size, from = (rank + size - STEPS[s]) % size;
            tutti_work *work;

            for (size_t i = 0; i < count; i++)
                out[i] = value(rank, to, i);
            CHECK_OK(tutti_send(group, TUTTI_CONST_BUF(out, count, TUTTI_F32), to, 3, &work));
            CHECK_OK(tutti_recv(group, TUTTI_BUF(in, count, TUTTI_F32), from, 3, NULL));
            CHECK_OK(tutti_work_wait(work));
            for (size_t i = 0; i < count; i++)
                CHECK(in[i] == value(from, rank, i));
        }
    CHECK(count_descriptors() <= 64);
    CHECK_OK(tutti_barrier(group, NULL));
    free(out);
    free(in);
    return 0;
}

static void messages_between_many(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(MORE + 6, messages, NULL, TUTTI_TRANSPORT_AUTO),
                     0);
}

/* ---- Parts ------------------------------------------------------------------------------------------------- */

/* Every second rank, backwards: neither its memory nor its tree is the parent's. */
static int parts(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    int ranks[MORE], n = 0;
    tutti_group *part;
    job j = {.count = 3000};

    (void)arg;
    for (int r = size - 1; r >= 0; r--)
        if (r % 2 == rank % 2)
            ranks[n++] = r;
    CHECK_OK(tutti_group_split_members(group, ranks, n, "half", &part));
    j.group = part;
    j.size = n;
    j.rank = tutti_group_rank(part);
    CHECK(ranks[j.rank] == rank);
    j.src = malloc((size_t)n * j.count * sizeof *j.src);
    CHECK(j.src);
    CHECK_OK(tutti_group_alloc(part, (size_t)n * j.count * sizeof *j.dst, (void **)&j.dst));
    CHECK_0(reductions(&j));
    CHECK_0(moves(&j));
    tutti_group_free(part);
    CHECK_OK(tutti_barrier(group, NULL));
    CHECK(count_descriptors() <= 64);
    free(j.src);
    return 0;
}

/* ---- Failures ---------------------------------------------------------------------------------------------- */

enum { ODD = 20 };

static int one_calls_something_else(tutti_group *group, void *arg)
{
    float x = 1;
    tutti_status status;

    (void)arg;
    CHECK_OK(tutti_barrier(group, NULL));
    if (tutti_group_rank(group) == ODD)
        status = tutti_barrier(group, NULL);
    else
        status = tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL);
    CHECK(status == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "rank 20 called barrier #");
    CHECK_TEXT(tutti_last_error(), "called all_reduce #");
    return 0;
}

static int one_is_missing(tutti_group *group, void *arg)
{
    float x = 1;

    (void)arg;
    CHECK_OK(tutti_barrier(group, NULL));
    if (tutti_group_rank(group) == ODD) {
        while (tutti_group_status(group) == TUTTI_OK)
            usleep(1000);
        return 0;
    }
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) ==
          TUTTI_ERR_TIMEOUT);
    CHECK_TEXT(tutti_last_error(), "waiting for rank 20 (");
    return 0;
}

static int one_leaves(tutti_group *group, void *arg)
{
    (void)arg;
    if (tutti_group_rank(group) == ODD)
        return 0;
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    CHECK_TEXT(tutti_last_error(), "rank 20 (");
    CHECK_TEXT(tutti_last_error(), "has left the group");
    return 0;
}

static int unequal_counts(tutti_group *group, void *arg)
{
    size_t out[MORE], in[MORE];
    float *p = calloc(2 * MORE, sizeof *p);
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);

    (void)arg;
    CHECK(p);
    for (int r = 0; r < size; r++)
        out[r] = in[r] = 1;
    if (rank == ODD)
        in[3] = 2;
    CHECK(tutti_all_to_all_v(group, TUTTI_CONST_BUF(p, (size_t)size, TUTTI_F32), out,
                             TUTTI_BUF(p + MORE, (size_t)size + (rank == ODD), TUTTI_F32), in,
                             NULL) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "rank 3 sends rank 20 1 elements, but rank 20 expects 2");
    free(p);
    return 0;
}

static void run_body(void **state)
{
    const tutti_ranks_opts opts = {
        .processes = true, .timeout_ms = (tutti_rank_body *)*state == one_is_missing ? 2000 : 0};

    assert_int_equal(tutti_run_ranks(MANY, (tutti_rank_body *)*state, NULL, &opts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(all_operations, processes, .processes = true),
        TEST_ON(all_operations, processes_staged, .processes = true, .tuning.stage_all = true),
        TEST_ON(all_operations, processes_in_a_deep_tree, .processes = true, .tuning.fan = 2),
        TEST_ON(all_operations, processes_without_a_tree, .processes = true, .tuning.fan = 1),
        TEST_ON(all_operations, threads_in_a_deep_tree, .tuning.fan = 2),
        TEST_ON(all_operations_of_more, more_processes, .processes = true),
        cmocka_unit_test(messages_between_many),
        TEST(run_body, parts),
        TEST(run_body, one_calls_something_else),
        TEST(run_body, one_is_missing),
        TEST(run_body, one_leaves),
        TEST(run_body, unequal_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
