/* reducer: buckets are PyTorch's, by the known answers of its own tests.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include <tutti/reducer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MAX 16
#define LIST(...)                                                                                  \
    (const size_t[]){__VA_ARGS__}, sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t)

static size_t sparse = SIZE_MAX; /* the element that is sparse */

/* Buckets as text: "[0,2][1,3]". */
static const char *assign(const size_t *bytes, size_t n, const tutti_dtype *dtypes,
                          const size_t *limits, size_t n_limits, bool by_first_index)
{
    static char text[256];
    tutti_bucket_item items[MAX];
    size_t bucket_of[MAX], at = 0, n_buckets;

    for (size_t i = 0; i < n; i++)
        items[i] = (tutti_bucket_item){bytes[i], dtypes ? dtypes[i] : TUTTI_F32, i == sparse};
    n_buckets = tutti_bucket_assignment(items, n, limits, n_limits, by_first_index, bucket_of);
    text[0] = 0;
    for (size_t b = 0; b < n_buckets; b++) {
        const char *separator = "[";

        for (size_t i = 0; i < n; i++)
            if (bucket_of[i] == b) {
                at += (size_t)snprintf(text + at, sizeof text - at, "%s%zu", separator, i);
                separator = ",";
            }
        at += (size_t)snprintf(text + at, sizeof text - at, "]");
    }
    return text;
}

static void one_limit_closes_with_the_tensor_that_reaches_it(void **state)
{
    (void)state;
    assert_string_equal(assign(LIST(400, 800, 400, 200), NULL, LIST(400), true), "[0][1][2][3]");
    assert_string_equal(assign(LIST(40, 40, 40, 40, 40), NULL, LIST(80), true), "[0,1][2,3][4]");
    assert_string_equal(assign(LIST(79, 1000, 1), NULL, LIST(80), true), "[0,1][2]");
}

static void limits_advance_a_bucket_and_the_last_repeats(void **state)
{
    (void)state;
    assert_string_equal(assign(LIST(40, 40, 40, 40), NULL, LIST(40, 80), true), "[0][1,2][3]");
    assert_string_equal(assign(LIST(40, 40, 40, 40, 40), NULL, LIST(40, 80), true),
                        "[0][1,2][3,4]");
}

static void each_dtype_has_its_own_buckets_and_its_own_place_in_the_limits(void **state)
{
    static const tutti_dtype mixed[] = {TUTTI_F32, TUTTI_F64, TUTTI_F32,
                                        TUTTI_F64, TUTTI_F32, TUTTI_F64};

    (void)state;
    /* 50 floats and 25 doubles, alternating */
    assert_string_equal(assign(LIST(200, 200, 200, 200, 200, 200), mixed, LIST(400), true),
                        "[0,2][1,3][4][5]");
    assert_string_equal(assign(LIST(200, 200, 200, 200, 200, 200), mixed, LIST(200, 400), true),
                        "[0][1][2,4][3,5]");
}

static void numbering_is_by_first_element_or_by_closing(void **state)
{
    static const tutti_dtype mixed[] = {TUTTI_F64, TUTTI_F32, TUTTI_F32, TUTTI_F64};

    (void)state;
    assert_string_equal(assign(LIST(10, 50, 50, 90), mixed, LIST(100), true), "[0,3][1,2]");
    assert_string_equal(assign(LIST(10, 50, 50, 90), mixed, LIST(100), false), "[1,2][0,3]");
    /* what stays open comes last, in the order of its first elements */
    assert_string_equal(assign(LIST(10, 10, 10, 90), mixed, LIST(100), false), "[0,3][1,2]");
    assert_string_equal(assign(LIST(10, 10, 90, 10), mixed, LIST(100), false), "[1,2][0,3]");
}

/* PyTorch's case with indices [3,2,1,0], limits 40 and 80: the caller permutes the sizes, as the reducer does. */
static void an_order_is_the_callers_permutation(void **state)
{
    (void)state;
    assert_string_equal(assign(LIST(40, 40, 40, 40), NULL, LIST(40, 80), false), "[0][1,2][3]");
}

static void a_sparse_gradient_is_a_bucket_of_its_own(void **state)
{
    (void)state;
    sparse = 1;
    assert_string_equal(assign(LIST(40, 40, 40, 40), NULL, LIST(80), true), "[0,2][1][3]");
    assert_string_equal(assign(LIST(40, 40, 40, 40), NULL, LIST(80), false), "[1][0,2][3]");
    sparse = SIZE_MAX;
}

static void edges(void **state)
{
    static const tutti_dtype unknown[] = {(tutti_dtype)99, TUTTI_F32};

    (void)state;
    assert_int_equal(tutti_bucket_assignment(NULL, 0, NULL, 0, false, NULL), 0);
    assert_string_equal(assign(LIST(1, 2, 3), NULL, NULL, 0, true), "[0,1,2]");
    assert_string_equal(assign(LIST(1, 2, 3), NULL, LIST(0), true), "[0][1][2]");
    assert_string_equal(assign(LIST(0, 0, 0), NULL, LIST(10), true), "[0,1,2]");
    assert_string_equal(assign(LIST(0, 0), unknown, LIST(10), true), "[0][1]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_limit_closes_with_the_tensor_that_reaches_it),
        cmocka_unit_test(limits_advance_a_bucket_and_the_last_repeats),
        cmocka_unit_test(each_dtype_has_its_own_buckets_and_its_own_place_in_the_limits),
        cmocka_unit_test(numbering_is_by_first_element_or_by_closing),
        cmocka_unit_test(an_order_is_the_callers_permutation),
        cmocka_unit_test(a_sparse_gradient_is_a_bucket_of_its_own),
        cmocka_unit_test(edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
