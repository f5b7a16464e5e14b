/* comm: sources that are only read: reductions that are not in place, from read-only memory.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { MOST = 150000 };

typedef struct memory {
    int64_t *read_only, *own; /* the program's */
    int64_t *src, *dst;       /* the group's */
} memory;

static int64_t value(int rank, size_t i)
{
    return (int64_t)i * 7 + rank * 1000;
}

static int memory_new(memory *m, tutti_group *group)
{
    size_t bytes = MOST * sizeof(int64_t);
    void *src, *dst;

    m->read_only = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m->own = malloc(bytes);
    CHECK(m->read_only != MAP_FAILED && m->own);
    CHECK(tutti_group_alloc(group, bytes, &src) == TUTTI_OK);
    CHECK(tutti_group_alloc(group, bytes, &dst) == TUTTI_OK);
    m->src = src;
    m->dst = dst;
    for (size_t i = 0; i < MOST; i++)
        m->read_only[i] = m->src[i] = value(tutti_group_rank(group), i);
    CHECK(mprotect(m->read_only, bytes, PROT_READ) == 0);
    return 0;
}

static void memory_free(memory *m)
{
    munmap(m->read_only, MOST * sizeof(int64_t));
    free(m->own);
}

/* Which memory is the source and which the destination, differently on each rank; 4: in place. */
static void choose(const memory *m, int way, size_t n, const int64_t **src_p, int64_t **dst_p)
{
    *src_p = way % 2 ? m->src : m->read_only;
    *dst_p = way / 2 % 2 ? m->dst : m->own;
    memset(*dst_p, 0x55, n * sizeof **dst_p);
    if (way == 4)
        *src_p = memcpy(*dst_p, m->read_only, n * sizeof **dst_p);
}

static int check_sum(const int64_t *p, size_t n, int size)
{
    for (size_t i = 0; i < n; i++)
        CHECK(p[i] == (int64_t)i * 7 * size + (int64_t)size * (size - 1) / 2 * 1000);
    return 0;
}

static int reduce_once(tutti_group *group, const memory *m, size_t n, int way, int root)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const int64_t *from;
    int64_t *to;
    tutti_const_buf src;
    tutti_buf dst;
    tutti_work *work;

    choose(m, way, n, &from, &to);
    src = TUTTI_CONST_BUF(from, n, TUTTI_I64);
    dst = TUTTI_BUF(to, n, TUTTI_I64);
    CHECK(tutti_all_reduce_from(group, src, dst, TUTTI_SUM, &work) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    if (check_sum(to, n, size) != 0)
        return 1;
    choose(m, way, n, &from, &to);
    CHECK(tutti_reduce_from(group, src, rank == root ? dst : (tutti_buf){0}, TUTTI_SUM, root,
                            NULL) == TUTTI_OK);
    for (size_t i = 0; rank != root && way != 4 && i < n; i++)
        CHECK(to[i] == 0x5555555555555555);
    if (rank == root && check_sum(to, n, size) != 0)
        return 1;
    for (size_t i = 0; i < n; i++) /* sources are unchanged */
        CHECK(m->src[i] == value(rank, i) && m->read_only[i] == m->src[i]);
    return 0;
}

static int reductions_leave_their_source_alone(tutti_group *group, void *arg)
{
    static const size_t counts[] = {0, 1, 2, 250, 1001, 20000, MOST};
    int rank = tutti_group_rank(group);
    memory m;

    (void)arg;
    if (memory_new(&m, group) != 0)
        return 1;
    for (size_t i = 0; i < TUTTI__COUNT_OF(counts); i++)
        for (int way = 0; way < 10; way++) /* the same on all ranks, then mixed */
            if (reduce_once(group, &m, counts[i], (way < 5 ? way : way + rank) % 5,
                            way % tutti_group_size(group)) != 0) {
                fprintf(stderr, "%zu elements, way %d\n", counts[i], way);
                return 1;
            }
    memory_free(&m);
    return 0;
}

static void sources_are_only_read(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, reductions_leave_their_source_alone, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, reductions_leave_their_source_alone, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, reductions_leave_their_source_alone, NULL), 0);
    assert_int_equal(
        tutti_run_ranks(3, reductions_leave_their_source_alone, NULL,
                        &(tutti_ranks_opts){.tuning = {.stage_all = true, .chunk_bytes = 4096}}),
        0);
}

/* An average of halves has the bits of the one in place. */
static int bits_are_those_of_in_place(tutti_group *group, void *arg)
{
    enum { N = 777 };
    uint16_t src[N], in_place[N], apart[N];

    (void)arg;
    for (int i = 0; i < N; i++)
        src[i] = in_place[i] = (uint16_t)(0x3f80 + (i * 31 + tutti_group_rank(group) * 17) % 100);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(in_place, N, TUTTI_BF16), TUTTI_AVG, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce_from(group, TUTTI_CONST_BUF(src, N, TUTTI_BF16),
                                TUTTI_BUF(apart, N, TUTTI_BF16), TUTTI_AVG, NULL) == TUTTI_OK);
    CHECK(memcmp(apart, in_place, sizeof apart) == 0);
    return 0;
}

static void bits_do_not_depend_on_where_the_source_is(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, bits_are_those_of_in_place, NULL), 0);
}

static int wrong_pairs(tutti_group *group, void *arg)
{
    float x[8] = {0}, y[8];
    const tutti_const_buf four = {x, 4, TUTTI_F32, NULL};
    const tutti_buf other = {y, 4, TUTTI_F32, NULL};
    int root = 0, rank = tutti_group_rank(group);

    (void)arg;
    CHECK(tutti_all_reduce_from(group, four, TUTTI_BUF(y, 3, TUTTI_F32), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(strstr(tutti_last_error(), "src has 4 elements but dst 3") != NULL);
    CHECK(tutti_all_reduce_from(group, four, TUTTI_BUF(y, 4, TUTTI_I32), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce_from(group, four, TUTTI_BUF(x, 4, TUTTI_I32), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce_from(group, four, TUTTI_BUF(x + 1, 4, TUTTI_F32), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(strstr(tutti_last_error(), "src overlaps dst") != NULL);
    CHECK(tutti_reduce_from(group, four, rank == root ? (tutti_buf){0} : other, TUTTI_SUM, root,
                            NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_reduce_from(group, four, other, TUTTI_SUM, 2, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    return 0;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, wrong_pairs, NULL), 0);
    assert_int_equal(
        tutti_all_reduce_from(NULL, (tutti_const_buf){0}, (tutti_buf){0}, TUTTI_SUM, NULL),
        TUTTI_ERR_ARG);
    assert_int_equal(
        tutti_reduce_from(NULL, (tutti_const_buf){0}, (tutti_buf){0}, TUTTI_SUM, 0, NULL),
        TUTTI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_are_only_read),
        cmocka_unit_test(bits_do_not_depend_on_where_the_source_is),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
