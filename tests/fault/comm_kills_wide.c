/* comm: one of 64 ranks killed at a random moment: all others name it (comm_kills_wide_all.c: 256 ranks, 50 times).
 * SPDX-License-Identifier: MIT
 * timeout: 180 */
#include "comm_kills_wide.h"

static void on_one_host(void **state)
{
    (void)state;
    wide_kills(64, 4, false, 1);
}

static void on_several_hosts(void **state)
{
    (void)state;
    wide_kills(64, 4, false, WIDE_HOSTS);
}

static void over_tcp(void **state)
{
    (void)state;
    wide_kills(40, 3, true, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_one_host),
                                       cmocka_unit_test(on_several_hosts),
                                       cmocka_unit_test(over_tcp)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
