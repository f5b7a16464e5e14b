/* comm: the tree over ranks, for every size: parents and children agree, subtrees are consecutive, neighbours are mutual and few, and
 * whichever rank ends the others stay connected.   SPDX-License-Identifier: MIT */
#include "comm/core/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MOST = 1100 };

static void check_children(int size)
{
    static int below[MOST], counted[MOST];

    for (int r = 0; r < size; r++)
        below[r] = 1, counted[r] = 0;
    for (int r = size - 1; r > 0; r--) {
        const int parent = tutti__tree_parent(r);

        assert_in_range(parent, 0, r - 1);
        below[parent] += below[r];
        counted[parent]++;
    }
    for (int r = 0; r < size; r++) {
        int n = 0, last = r;

        for (int c = r; (c = tutti__tree_next_child(r, c, size)) >= 0; last = c, n++) {
            assert_true(c > last);
            assert_int_equal(tutti__tree_parent(c), r);
            assert_true(c + tutti__tree_subtree(c, size) <= r + tutti__tree_subtree(r, size));
        }
        assert_int_equal(n, counted[r]);
        assert_int_equal(tutti__tree_subtree(r, size), below[r]);
    }
}

static void check_neighbours(int size)
{
    for (int r = 0; r < size; r++) {
        int near[TUTTI__NEIGHBOURS], n = tutti__tree_neighbours(r, size, near), all = 0;

        for (int i = 0; i < n; i++)
            assert_true(tutti__tree_near(r, near[i], size) && tutti__tree_near(near[i], r, size));
        for (int other = 0; other < size; other++)
            all += tutti__tree_near(r, other, size);
        assert_int_equal(n, all);
        assert_true(n <= 24);
    }
}

static void every_size(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size += size < 100 ? 1 : 37) {
        check_children(size);
        check_neighbours(size);
    }
}

static void the_largest_size(void **state)
{
    int near[TUTTI__NEIGHBOURS], n = tutti__tree_neighbours(0, INT32_MAX, near);

    (void)state;
    assert_int_equal(n, 72);
    assert_int_equal(tutti__tree_parent(INT32_MAX - 1), INT32_MAX - 7);
    assert_int_equal(tutti__tree_depth(INT32_MAX - 1), 11);
}

/* How many are reached from `from` if `gone` is not there. */
static int reach(int from, int gone, int size)
{
    static int queue[MOST];
    static int seen[MOST];
    int first = 0, last = 0;

    for (int r = 0; r < size; r++)
        seen[r] = 0;
    seen[queue[last++] = from] = 1;
    while (first < last) {
        int near[TUTTI__NEIGHBOURS], n = tutti__tree_neighbours(queue[first++], size, near);

        for (int i = 0; i < n; i++)
            if (near[i] != gone && !seen[near[i]])
                seen[queue[last++] = near[i]] = 1;
    }
    return last;
}

static void any_one_may_end(void **state)
{
    (void)state;
    for (int size = 2; size <= 600; size += 1 + size / 2)
        for (int gone = 0; gone < size; gone++)
            assert_int_equal(reach((gone + 1) % size, gone, size), size - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_size),
                                       cmocka_unit_test(the_largest_size),
                                       cmocka_unit_test(any_one_may_end)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
