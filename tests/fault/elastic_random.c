/* elastic: workers are killed, frozen, added and removed at random moments; the trained weights do not change.
 * SPDX-License-Identifier: MIT
 * timeout: 180 */
#include "harness/elastic_chaos.h"

enum { ROUNDS = 6 };

static void kills(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        model_plan *plan = chaos_plan(60, 2000, 200);

        plan->transport = seed % 2 ? TUTTI_TRANSPORT_AUTO : TUTTI_TRANSPORT_TCP;
        chaos_run("kills", &(chaos){.kill = 60, .most = 12}, plan, 4, seed);
    }
}

/* Those that were about to begin a step, those whose attempt or whose own barrier failed, and newcomers: all meet in the new group. */
static void kills_between_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        model_plan *plan = chaos_plan(60, 2000, 100);

        plan->meets = true;
        chaos_run("kills between steps", &(chaos){.kill = 60, .most = 12}, plan, 4, seed);
    }
}

static void all_but_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        chaos_run("all but one", &(chaos){.kill = 20, .kill_most = 30, .most = 6},
                  chaos_plan(60, 2000, 200), 4, seed);
}

/* State of several MB, so that deaths happen during its transfer. */
static void large_states(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        chaos_run("large state", &(chaos){.kill = 100, .most = 12}, chaos_plan(8, 500000, 0), 3,
                  seed);
}

static void comings_and_goings(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        chaos_run("comings and goings",
                  &(chaos){.kill = 10, .join = 50, .leave = 50, .most = 20, .least_workers = 1},
                  chaos_plan(60, 2000, 200), 2, seed);
}

static void frozen(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        model_plan *plan = chaos_plan(40, 2000, 200);

        plan->heartbeat_ms = 200;
        chaos_run("frozen", &(chaos){.kill = 5, .freeze = 30, .most = 4}, plan, 3, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kills),
                                       cmocka_unit_test(kills_between_steps),
                                       cmocka_unit_test(all_but_one),
                                       cmocka_unit_test(large_states),
                                       cmocka_unit_test(comings_and_goings),
                                       cmocka_unit_test(frozen)};

    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
