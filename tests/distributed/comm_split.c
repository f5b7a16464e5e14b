/* comm: groups by colour and key, and splits with an error on one rank.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void run_everywhere(int n, tutti_rank_body *body, void *arg)
{
    assert_int_equal(tutti_run_ranks_everywhere(n, body, arg), 0);
}

/* Ranks 1 and 4 have no colour; the others' keys reverse their order, except for equal ones. */
static int split_by_colour(tutti_group *group, void *arg)
{
    static const int colours[] = {7, -1, 0, 7, INT_MIN, 7, 0}, keys[] = {5, 0, 1, -2, 0, 5, 1},
                     places[] = {1, -1, 0, 0, -1, 2, 1}, sizes[] = {3, 0, 2, 3, 0, 3, 2};
    int rank = tutti_group_rank(group), colour = colours[rank];
    int32_t sum = rank, others[8];
    char name[16];
    tutti_group *sub, *inner;

    (void)arg;
    CHECK(tutti_group_split_by(group, colour, keys[rank], "team", &sub) == TUTTI_OK);
    CHECK((sub == NULL) == (colour < 0));
    if (sub) {
        snprintf(name, sizeof name, "team-%d", colour);
        CHECK(strcmp(tutti_group_name(sub), name) == 0);
        CHECK(tutti_group_rank(sub) == places[rank] && tutti_group_size(sub) == sizes[rank]);
        CHECK(tutti_group_global_rank(sub, tutti_group_rank(sub)) == rank);
        CHECK(tutti_all_reduce(sub, TUTTI_BUF(&sum, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(sum == (colour == 7 ? 0 + 3 + 5 : 2 + 6));
        CHECK(tutti_all_gather(sub, TUTTI_CONST_BUF(&rank, 1, TUTTI_I32),
                               TUTTI_BUF(others, (size_t)tutti_group_size(sub), TUTTI_I32),
                               NULL) == TUTTI_OK);
        CHECK(others[places[rank]] == rank);
        CHECK(tutti_group_split_by(sub, 1, -rank, NULL, &inner) == TUTTI_OK);
        CHECK(strcmp(tutti_group_name(inner), "sub-1") == 0);
        CHECK(tutti_group_rank_of(inner, rank) == tutti_group_rank(inner));
        tutti_group_free(inner);
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK); /* the group still works, with all */
    tutti_group_free(sub);
    CHECK(tutti_group_split_by(group, -1, 0, NULL, &sub) == TUTTI_OK && sub == NULL);
    return 0;
}

static void ranks_of_one_colour_form_a_group(void **state)
{
    (void)state;
    run_everywhere(7, split_by_colour, NULL);
}

static int split_alone(tutti_group *group, void *arg)
{
    tutti_group *sub;

    (void)arg;
    CHECK(tutti_group_split_by(group, 3, 9, "me", &sub) == TUTTI_OK);
    CHECK(tutti_group_size(sub) == 1 && strcmp(tutti_group_name(sub), "me-3") == 0);
    tutti_group_free(sub);
    return 0;
}

static void a_group_of_one_splits(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, split_alone, NULL), 0);
}

/* All return one rank's error at once, long before the time limit. */
static int one_is_wrong(tutti_group *group, void *arg)
{
    char longest[80], expected[32];
    int size = tutti_group_size(group), odd = *(const int *)arg;
    bool wrong = tutti_group_rank(group) == odd;
    double begin = tutti__now_ms();
    tutti_group *sub;

    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    snprintf(expected, sizeof expected, "rank %d: split of group", odd);
    CHECK(tutti_group_split(group, (int[]){0, wrong ? size : 1}, 2, NULL, &sub) == TUTTI_ERR_ARG);
    CHECK(sub == NULL && strstr(tutti_last_error(), expected) == tutti_last_error());
    CHECK(tutti_group_split(group, (int[]){0}, wrong ? 0 : 1, NULL, &sub) == TUTTI_ERR_ARG);
    CHECK(tutti_group_split(group, (int[]){0}, 1, wrong ? "" : "one", &sub) == TUTTI_ERR_ARG);
    CHECK(tutti_group_split_by(group, 1, 1, wrong ? longest : "one", &sub) == TUTTI_ERR_ARG);
    CHECK(tutti_group_split_parts(group, wrong ? -1 : 1, NULL, &sub) == TUTTI_ERR_ARG);
    CHECK(sub == NULL && strstr(tutti_last_error(), expected) == tutti_last_error());
    CHECK(tutti__now_ms() - begin < 10000);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK); /* the group lives */
    CHECK(tutti_group_split_parts(group, wrong ? size : 1, NULL, &sub) == TUTTI_ERR_MISMATCH);
    return 0;
}

static void what_one_rank_is_refused_for_all_return(void **state)
{
    (void)state;
    run_everywhere(3, one_is_wrong, &(int){0});
    run_everywhere(3, one_is_wrong, &(int){2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_colour_form_a_group),
        cmocka_unit_test(a_group_of_one_splits),
        cmocka_unit_test(what_one_rank_is_refused_for_all_return),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
