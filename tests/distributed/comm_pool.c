/* comm: pools: pieces do not overlap, are joined again when they are given back, and collectives read them directly.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BYTES = 1 << 20, PIECES = 64 };

typedef struct piece {
    unsigned char *p;
    size_t bytes;
} piece;

static bool holds_only(const piece *x, unsigned char value)
{
    for (size_t i = 0; i < x->bytes; i++)
        if (x->p[i] != value)
            return false;
    return true;
}

/* Random pieces, each filled with its own value, taken and given back; at the end all is one piece again. */
static int pieces_do_not_overlap(tutti_group *group, void *arg)
{
    piece pieces[PIECES] = {0};
    unsigned seed = (unsigned)tutti_group_rank(group);
    tutti_pool *pool;
    void *whole;

    (void)arg;
    CHECK(tutti_pool_new(&pool, group, BYTES - 17) == TUTTI_OK);
    for (int turn = 0; turn < 4000; turn++) {
        const int i = rand_r(&seed) % PIECES;
        piece *x = &pieces[i];

        if (x->p) {
            CHECK(holds_only(x, (unsigned char)(i + 1)));
            tutti_pool_release(pool, x->p);
            *x = (piece){0};
            continue;
        }
        x->bytes = (size_t)(rand_r(&seed) % (turn % 2 ? 300 : 60000));
        x->p = tutti_pool_alloc(pool, x->bytes);
        if (!x->p)
            continue;
        CHECK((uintptr_t)x->p % 64 == 0);
        memset(x->p, i + 1, x->bytes);
    }
    CHECK(tutti_pool_alloc(pool, BYTES) == NULL && tutti_pool_alloc(pool, SIZE_MAX) == NULL);
    for (int i = 0; i < PIECES; i++)
        tutti_pool_release(pool, pieces[i].p);
    whole = tutti_pool_alloc(pool, BYTES);
    CHECK(whole && !tutti_pool_alloc(pool, 1));
    tutti_pool_release(pool, (char *)whole + 64); /* warns */
    tutti_pool_release(pool, whole);
    tutti_pool_release(pool, whole); /* warns */
    tutti_pool_free(pool);
    return 0;
}

/* Ranks use pieces at different places, and one of them ordinary memory. */
static int collectives_read_pieces(tutti_group *group, void *arg)
{
    enum { N = 30000 };
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_pool *pool;
    float *x, *own = malloc(N * sizeof *own);

    (void)arg;
    CHECK(own && tutti_pool_new(&pool, group, 8 * BYTES) == TUTTI_OK);
    CHECK(tutti_pool_alloc(pool, (size_t)rank * 5000 + 1) != NULL);
    x = rank == 1 ? own : tutti_pool_alloc(pool, N * sizeof *x);
    CHECK(x);
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(i % 100 + rank * round);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(x, N, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        for (int i = 0; i < N; i++)
            CHECK(x[i] == (float)(i % 100 * size + round * size * (size - 1) / 2));
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    tutti_pool_free(pool);
    free(own);
    return 0;
}

static void pieces(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, pieces_do_not_overlap, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, collectives_read_pieces, NULL), 0);
}

static void wrong_calls_are_refused(void **state)
{
    tutti_pool *pool;

    (void)state;
    assert_int_equal(tutti_pool_new(&pool, NULL, BYTES), TUTTI_ERR_ARG);
    assert_null(pool);
    assert_null(tutti_pool_alloc(NULL, 1));
    tutti_pool_release(NULL, NULL);
    tutti_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(wrong_calls_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
