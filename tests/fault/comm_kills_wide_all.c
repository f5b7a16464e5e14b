/* comm: one of 256 ranks killed at a random moment, 50 times: all others name it.   SPDX-License-Identifier: MIT
 * timeout: 900   tier: long   run: serial */
#include "comm_kills_wide.h"

static void on_one_host(void **state)
{
    (void)state;
    wide_kills(WIDE_MOST, 50, false, 1);
}

static void on_several_hosts(void **state)
{
    (void)state;
    wide_kills(WIDE_MOST, 10, false, WIDE_HOSTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_one_host),
                                       cmocka_unit_test(on_several_hosts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
