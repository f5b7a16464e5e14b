/* ddp: which rank sends which share of the optimizer's state after deaths, for all sets of survivors of 1 to 5 ranks with copies.
 * SPDX-License-Identifier: MIT */
#include "ddp/zero_copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 5, GENERATION = 7, UPDATES = 3, STEP = 20 };

/* The ranks in `alive` of `size`, in order. Returns how many. */
static int survive(tutti__zero_holder *all, int size, unsigned alive)
{
    int n = 0;

    for (int r = 0; r < size; r++)
        if (alive >> r & 1)
            all[n++] = (tutti__zero_holder){
                .form = TUTTI__HAS_SHARES, .step = STEP, .tag = {GENERATION, size, r, UPDATES}};
    return n;
}

static bool has(const tutti__zero_holder *holder, int size, int share)
{
    return holder->tag.rank == share || holder->tag.rank == (share + 1) % size;
}

static void neighbours_alone_lose(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++)
        for (unsigned alive = 1; alive < 1u << size; alive++) {
            tutti__zero_holder all[MOST + 1];
            int source[MOST], n = survive(all, size, alive);
            bool lost = false;

            all[n++] =
                (tutti__zero_holder){.form = TUTTI__HAS_NOTHING, .step = -1}; /* a replacement */
            for (int r = 0; r < size; r++)
                lost = lost || (!(alive >> r & 1) && !(alive >> (r + 1) % size & 1));
            assert_int_equal(tutti__zero_find_shares(all, n, source),
                             lost ? TUTTI__SHARES_LOST : TUTTI__SHARES_FOUND);
            for (int j = 0; j < size && !lost; j++)
                assert_true(has(&all[source[j]], size, j));
        }
}

/* Rank 0 has ended an update; another has not, and is ready for it or is not. */
static void moments_do_not_mix(void **state)
{
    tutti__zero_holder all[3];
    int source[3];
    char missing[32];

    (void)state;
    assert_int_equal(survive(all, 3, 5), 2); /* ranks 0 and 2; 1 has died */
    all[0].tag.updates++;
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_LOST);
    tutti__zero_name_missing(all, 2, missing, sizeof missing);
    assert_string_equal(missing, "1, 2");
    all[1].ready = 1;
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_FOUND);
    assert_int_equal(source[1], 1);
    all[1].tag.generation--; /* shares of another group */
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_LOST);
    /* all have begun nothing: one that was ready stays where it was */
    survive(all, 3, 5);
    all[0].ready = all[1].ready = 1;
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_FOUND);
}

/* A rank that has all already, since the group before died while shares were brought together. */
static void all_of_it_is_better(void **state)
{
    tutti__zero_holder all[3];
    int source[3];

    (void)state;
    survive(all, 3, 1);
    all[1] = (tutti__zero_holder){.form = TUTTI__HAS_ALL, .step = STEP - 1};
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_LOST);
    all[1].step = STEP;
    assert_int_equal(tutti__zero_find_shares(all, 2, source), TUTTI__SHARES_FOUND);
    assert_int_equal(source[0], 1);
    all[2] = all[0];
    all[0] = all[1];
    assert_int_equal(tutti__zero_find_shares(all, 3, source), TUTTI__SHARES_UNUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(neighbours_alone_lose),
                                       cmocka_unit_test(moments_do_not_mix),
                                       cmocka_unit_test(all_of_it_is_better)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
