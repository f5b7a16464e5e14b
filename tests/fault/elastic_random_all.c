/* elastic: more than two hundred deaths in jobs of 2 to 4 workers, at random moments, with a seed that is printed or passed as the argument.
 * SPDX-License-Identifier: MIT
 * tier: long
 * timeout: 300 */
#include "harness/elastic_chaos.h"

#include <time.h>

enum { LEAST_KILLED = 200, ROUNDS = 100 };

static uint64_t first_seed;

static void many_kills(void **state)
{
    int killed = 0;

    (void)state;
    for (uint64_t i = 0; i < ROUNDS && killed < LEAST_KILLED; i++) {
        model_plan *plan = chaos_plan(40 + i % 3 * 40, i % 4 == 3 ? 300000 : 2000, 100);

        plan->transport = i % 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO;
        chaos_run(
            "kills",
            &(chaos){
                .kill = 30, .kill_most = 5, .join = 3, .leave = 3, .most = 15, .least_workers = 2},
            plan, 2 + (int)(i % 3), first_seed + i);
        killed += chaos_job.killed;
    }
    print_message("%d killed\n", killed);
    assert_true(killed >= LEAST_KILLED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_kills)};

    setvbuf(stdout, NULL, _IOLBF, 0);
    first_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL) * 1000;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
