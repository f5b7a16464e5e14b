/* train: ranks divide the cores that they share, and only those.   SPDX-License-Identifier: MIT */
#include "train/machine/cores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* Cores first..last of a machine. */
static tutti__core_set set(uint64_t machine, int first, int last)
{
    tutti__core_set s = {.machine = machine};

    for (int i = first; i <= last; i++)
        CPU_SET((size_t)i, &s.cpus);
    return s;
}

static void is(tutti__core_share share, int index, int n)
{
    assert_int_equal(share.index, index);
    assert_int_equal(share.n, n);
}

static void what_is_shared_is_divided(void **state)
{
    /* Two machines of 8 cores, two ranks each: all cores to all (tutti run). */
    const tutti__core_set all[] = {set(1, 0, 7), set(1, 0, 7), set(2, 0, 7), set(2, 0, 7)};
    /* Bound to a half each (mpirun, srun). */
    const tutti__core_set own[] = {set(1, 0, 3), set(1, 4, 7), set(2, 0, 3), set(2, 4, 7)};
    /* Bound to a socket, two ranks a socket, in turn. */
    const tutti__core_set sockets[] = {set(1, 0, 3), set(1, 4, 7), set(1, 0, 3), set(1, 4, 7)};

    (void)state;
    for (size_t rank = 0; rank < 4; rank++) {
        is(tutti__core_share_of(all, 4, rank), (int)rank % 2, 2);
        is(tutti__core_share_of(own, 4, rank), 0, 1);
        is(tutti__core_share_of(sockets, 4, rank), (int)rank / 2, 2);
    }
    is(tutti__core_share_of(all, 1, 0), 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_shared_is_divided)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
