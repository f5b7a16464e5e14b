/* comm: a rank killed at a random moment, 200 times: 200 clear errors that name it, and no leftovers.
 * SPDX-License-Identifier: MIT
 * tier: long   timeout: 300 */
#include "comm_kills.h"

static void two_hundred(void **state)
{
    (void)state;
    run_kills(200, 20240902);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_hundred)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
