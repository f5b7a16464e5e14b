/* simulate: a step in virtual time: what is hidden, what is waited for, and what of costs is enlarged.   SPDX-License-Identifier: MIT */
#include "simulate/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MB = 1000000 };

/* One rank a host; a megabyte between two hosts takes a millisecond in an all_reduce of two, and half of that in an all_gather. */
static tutti__sim_links of_a_gigabyte(void)
{
    tutti__sim_links l;

    tutti__sim_links_default(&l);
    for (int i = 0; i < TUTTI__LEVELS; i++)
        l.level[i] = (tutti__level_costs){0, 1e6, 0};
    l.memory_gbps = l.reduce_gbps = 1e6;
    l.hosts_per_switch = 1e6;
    l.level[TUTTI__LEVEL_HOST].gbps = 1;
    return l;
}

/* Of calls at these FLOPs of 100, the last n_update after the gradients; 8 ms of gradients, 2 ms of the optimizer. */
static tutti__sim_step step_of(const tutti__planned_entry *calls, size_t n, size_t n_update,
                               const tutti__timeline *progress)
{
    tutti__sim_links links = of_a_gigabyte();
    tutti__sim_costs costs = {.links = &links, .most_steps = 1000000};
    tutti__planned_entry copy[8];
    tutti__timeline t = {.log = {.p = copy, .n = n}, .n_gradients = n - n_update, .flops = 100};
    const tutti__sim_compute compute = {
        .timeline = progress ? progress : &t, .flops = 100, .gradients_s = 8e-3, .update_s = 2e-3};
    const tutti__sim_step_ask ask = {
        .layout = {.ranks = 2, .local_ranks = 1, .pipeline = 1, .tensor = 1},
        .calls = &t,
        .compute = &compute};
    tutti__sim_step step;

    for (size_t i = 0; i < n; i++)
        copy[i] = calls[i];
    assert_int_equal(tutti__sim_step_find(&step, &ask, &costs), TUTTI_OK);
    tutti__sim_costs_free(&costs);
    return step;
}

static void near(double a, double b)
{
    if (fabs(a - b) > 0.01 * b + 1e-6)
        fail_msg("%g is not %g", a, b);
}

static void what_backward_hides(void **state)
{
    const tutti__planned_entry hidden[] = {{"all_reduce", TUTTI_F32, 0, 2 * MB, true, 50},
                                           {"all_reduce", TUTTI_F32, 0, 1 * MB, true, 100}},
                               late[] = {{"all_reduce", TUTTI_F32, 0, 20 * MB, true, 50},
                                         {"all_reduce", TUTTI_F32, 0, 1 * MB, true, 100}};
    tutti__sim_step s = step_of(hidden, 2, 0, NULL);

    (void)state;
    near(s.exposed_s, 1e-3); /* the last one's */
    near(s.wire_s, 3e-3);
    near(s.step_s, 11e-3);
    near(s.efficiency, 10.0 / 11);
    near(s.sent, 3 * MB);
    s = step_of(late, 2, 0, NULL);
    near(s.exposed_s, 4e-3 + 21e-3 - 8e-3);
}

static void what_is_waited_for(void **state)
{
    const tutti__planned_entry at_once[] = {{"all_reduce", TUTTI_F32, 0, 3 * MB, false, 10},
                                            {"all_gather", TUTTI_F32, 0, 2 * MB, true, 100}},
                               units[] = {{"all_gather", TUTTI_F32, 0, 2 * MB, true, 0},
                                          {"all_gather", TUTTI_F32, 0, 2 * MB, true, 0},
                                          {"all_gather", TUTTI_F32, 0, 16 * MB, true, 50},
                                          {"all_gather", TUTTI_F32, 0, 2 * MB, true, 75}};

    (void)state;
    near(step_of(at_once, 2, 1, NULL).exposed_s, 3e-3 + 1e-3);
    /* the first; of the third, 8 ms that begin at 4 of 8, what the fourth waits at 6; and nothing of the fourth */
    near(step_of(units, 4, 0, NULL).exposed_s, 1e-3 + 6e-3);
}

/* Half of the FLOPs take a quarter of the time: the first bucket is ready later. */
static void measured_progress(void **state)
{
    const tutti__timeline progress = {
        .left = {{0, 0}, {0.5, 0.25}, {1, 1}}, .n_left = 3, .flops = 100};
    const tutti__planned_entry calls[] = {{"all_reduce", TUTTI_F32, 0, 5 * MB, true, 50}};

    (void)state;
    near(tutti__timeline_left(&progress, 0.25), 0.125);
    near(tutti__timeline_left(&progress, 0.75), 0.625);
    near(step_of(calls, 1, 0, NULL).exposed_s, 1e-3);
    near(step_of(calls, 1, 0, &progress).exposed_s, 3e-3);
}

static void largest_of_several(void **state)
{
    (void)state;
    assert_true(tutti__largest_of_normal(1) == 0);
    near(tutti__largest_of_normal(2), 0.56419);
    near(tutti__largest_of_normal(3), 0.84628);
    near(tutti__largest_of_normal(1000), 3.24144);
}

/* What is simulated among fewer ranks takes about as long as all of them. */
static void enlarged(void **state)
{
    static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
    tutti__sim_links links;
    tutti__sim_costs whole = {.links = &links, .most_steps = 10000000},
                     few = {.links = &links, .most_steps = 8000};
    int n = 0;

    (void)state;
    tutti__sim_links_default(&links);
    links.hosts_per_switch = 1e6;
    for (size_t i = 0; i < TUTTI__COUNT_OF(ops); i++)
        for (uint64_t bytes = 65536; bytes <= 1048576; bytes *= 16) {
            const tutti__sim_cost wanted = {
                .op = ops[i], .dtype = TUTTI_F32, .bytes = bytes, .group = {512, 4, 1}};
            const tutti__sim_cost *a, *b;

            assert_int_equal(tutti__sim_cost_of(&whole, &wanted, &a), TUTTI_OK);
            assert_int_equal(tutti__sim_cost_of(&few, &wanted, &b), TUTTI_OK);
            assert_true(!a->scaled && a->sent == b->sent);
            n += b->scaled;
            if (b->us < a->us * 0.8 || b->us > a->us * 1.25)
                fail_msg("%s of %llu bytes by %s: %g us, enlarged %g", ops[i],
                         (unsigned long long)bytes, a->algorithm, a->us, b->us);
        }
    assert_true(n >= 4);
    tutti__sim_costs_free(&whole);
    tutti__sim_costs_free(&few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_backward_hides), cmocka_unit_test(what_is_waited_for),
        cmocka_unit_test(measured_progress), cmocka_unit_test(largest_of_several),
        cmocka_unit_test(enlarged)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
