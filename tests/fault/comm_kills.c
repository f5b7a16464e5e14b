/* comm: a rank killed at a random moment, a dozen times (comm_kills_all.c: 200).   SPDX-License-Identifier: MIT */
#include "comm_kills.h"

static void a_dozen(void **state)
{
    (void)state;
    run_kills(12, 20240901);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_dozen)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
