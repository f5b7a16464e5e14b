/* launch: --chaos: a plan or an error that names the key, and the same events for the same seed.
 * SPDX-License-Identifier: MIT */
#include "launch/chaos/chaos.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static tutti__chaos_plan plan_of(const char *spec)
{
    tutti__chaos_plan plan;

    if (tutti__chaos_read(spec, &plan) != TUTTI_OK)
        fail_msg("%s: %s", spec, tutti_last_error());
    return plan;
}

static void refused(const char *spec, const char *word)
{
    tutti__chaos_plan plan;

    assert_int_equal(tutti__chaos_read(spec, &plan), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), word))
        fail_msg("%s: no \"%s\" in \"%s\"", spec, word, tutti_last_error());
    assert_non_null(strstr(tutti_last_error(), "--chaos"));
}

static void a_spec_is_read(void **state)
{
    tutti__chaos_plan plan = plan_of("kill=0.5");
    char text[512];

    (void)state;
    assert_true(plan.rate[TUTTI__CHAOS_KILL] == 0.5);
    assert_true(plan.rate[TUTTI__CHAOS_STOP] == 0 && plan.rate[TUTTI__CHAOS_CUT] == 0 &&
                plan.rate[TUTTI__CHAOS_SLOW] == 0);
    assert_int_equal(plan.burst, 1);
    assert_int_equal(plan.keep, -1);
    assert_int_equal(plan.seed, 0);
    assert_true(plan.after_s == 0 && isinf(plan.until_s));

    plan = plan_of("stop=2,kill=0");
    assert_true(plan.rate[TUTTI__CHAOS_STOP] == 2 && plan.stop_s == 1);
    plan = plan_of("slow=1:3");
    assert_true(plan.slow_factor == 3 && plan.slow_s == 10);

    plan = plan_of("seed=9007199254740991,kill=1,stop=0.25:2.5,cut=1e-3,slow=2:3:4,burst=3,keep=0,"
                   "after=5,until=6.5");
    assert_true(plan.rate[TUTTI__CHAOS_STOP] == 0.25 && plan.stop_s == 2.5);
    assert_true(plan.rate[TUTTI__CHAOS_CUT] == 1e-3);
    assert_true(plan.rate[TUTTI__CHAOS_SLOW] == 2 && plan.slow_factor == 3 && plan.slow_s == 4);
    assert_int_equal(plan.burst, 3);
    assert_int_equal(plan.keep, 0);
    assert_true(plan.after_s == 5 && plan.until_s == 6.5);
    assert_true(plan.seed == 9007199254740991u);
    tutti__chaos_describe(&plan, text, sizeof text);
    assert_string_equal(text, "kill 1/s, stop 0.25/s for 2.5 s, cut 0.001/s, slow 2/s to 1/3 for 4 "
                              "s, up to 3 at once, after 5 s, until 6.5 s, seed 9007199254740991");
    tutti__chaos_describe(&plan, text, 20); /* a short one is cut */
    assert_string_equal(text, "kill 1/s, stop 0.25");
}

static void flips_are_for_the_workers(void **state)
{
    tutti__chaos_plan plan = plan_of("kill=1");
    char text[128];

    (void)state;
    assert_false(tutti__chaos_flips(&plan, 3, text, sizeof text));
    plan = plan_of("flip=0.25");
    assert_true(tutti__chaos_flips(&plan, 3, text, sizeof text));
    assert_string_equal(text, "0.25:any:1:0");
    assert_true(tutti__chaos_flips(&plan, 1, text, sizeof text));
    assert_string_equal(text, "0.25:any:0:0");
    plan = plan_of("flip=1e-3:state,keep=2,seed=7");
    assert_true(tutti__chaos_flips(&plan, 3, text, sizeof text));
    assert_string_equal(text, "0.001:state:2:7");
    tutti__chaos_describe(&plan, text, sizeof text);
    assert_string_equal(text, "flip 0.001 a step of state, seed 7");
    refused("flip=1.5", "flip is \"1.5\"");
    refused("flip=0.1:weights", "flip is \"weights\" behind a colon");
    refused("flip=0.1:state:2", "flip is \"2\"");
    refused("flip=0.1,after=3", "after is for kill");
    refused("flip=0.1,burst=3", "burst is for kill");
    (void)plan_of("flip=0.1,kill=1,after=3");
}

static void a_bad_spec_is_refused_by_its_key(void **state)
{
    (void)state;
    refused("", "KEY=VALUE");
    refused("kill", "\"kill\", expected KEY=VALUE");
    refused("kill=1,", "KEY=VALUE");
    refused("kil=1", "do you mean kill?");
    refused("KILL=1", "no key \"KILL\"");
    refused("kill=", "kill is \"\"");
    refused("kill=often", "kill is \"often\"");
    refused("kill=-1", "kill is \"-1\"");
    refused("kill=nan", "kill is \"nan\"");
    refused("kill=1001", "0 to 1000");
    refused("kill=1:2", "kill is \"2\" behind a colon");
    refused("kill=1,kill=2", "kill is given twice");
    refused("stop=1:0", "stop is \"0\" behind a colon");
    refused("stop=1:2:3", "stop is \"3\"");
    refused("slow=1", "FACTOR");
    refused("slow=1:1", "slow is \"1\"");
    refused("slow=1:3:", "slow is \"\"");
    refused("kill=1,burst=0", "burst is \"0\"");
    refused("kill=1,burst=1.5", "burst is \"1.5\"");
    refused("kill=1,keep=-1", "keep is \"-1\"");
    refused("kill=1,seed=1.5", "seed is \"1.5\"");
    refused("kill=1,after=5,until=5", "until is 5");
    refused("seed=5", "disturbs nobody");
    refused("kill=0,stop=0", "disturbs nobody");
}

static void so_is_what_leaves_nobody_to_hit(void **state)
{
    tutti__chaos_plan plan = plan_of("kill=1,keep=2");

    (void)state;
    assert_int_equal(tutti__chaos_check(&plan, 3), TUTTI_OK);
    assert_int_equal(tutti__chaos_check(&plan, 2), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "keep is 2, expected less than this node's 2"));
    plan = plan_of("kill=1");
    assert_int_equal(tutti__chaos_check(&plan, 1), TUTTI_OK);
}

enum { N = 4000 };

static void take(tutti__chaos_event events[N], const tutti__chaos_plan *plan, int node)
{
    tutti__chaos_schedule schedule;

    tutti__chaos_schedule_begin(&schedule, plan, node);
    for (int i = 0; i < N; i++)
        events[i] = tutti__chaos_schedule_take(&schedule);
}

static bool alike(const tutti__chaos_event a[N], const tutti__chaos_event b[N])
{
    for (int i = 0; i < N; i++)
        if (a[i].at_s != b[i].at_s || a[i].kind != b[i].kind || a[i].number != b[i].number ||
            a[i].n != b[i].n)
            return false;
    return true;
}

static void a_seed_is_one_sequence_of_events(void **state)
{
    static tutti__chaos_event one[N], two[N];
    tutti__chaos_plan plan = plan_of("kill=1,stop=2,burst=4,seed=5");

    (void)state;
    take(one, &plan, 0);
    take(two, &plan, 0);
    assert_true(alike(one, two));
    for (int i = 1; i < N; i++)
        assert_true(one[i].at_s > one[i - 1].at_s);
    take(two, &plan, 1); /* another node */
    assert_false(alike(one, two));
    plan.seed = 6;
    take(two, &plan, 0);
    assert_false(alike(one, two));
}

/* A kind's events do not depend on the others'. */
static void kinds_are_independent(void **state)
{
    static tutti__chaos_event both[N], alone[N];
    tutti__chaos_plan plan = plan_of("kill=1,stop=1,seed=5");
    int k = 0;

    (void)state;
    take(both, &plan, 0);
    plan.rate[TUTTI__CHAOS_STOP] = 0;
    take(alone, &plan, 0);
    for (int i = 0; i < N; i++)
        if (both[i].kind == TUTTI__CHAOS_KILL) {
            assert_true(both[i].at_s == alone[k].at_s);
            k++;
        }
    assert_in_range(k, N / 2 - 200, N / 2 + 200);
}

static void rates_bursts_and_choices_are_as_asked(void **state)
{
    static tutti__chaos_event events[N];
    tutti__chaos_plan plan = plan_of("kill=3,stop=1,burst=4,after=100,seed=2");
    tutti__chaos_schedule schedule;
    int n_kills = 0, sizes[5] = {0}, chosen[7] = {0};
    double squares = 0, last_s = 100;

    (void)state;
    take(events, &plan, 0);
    tutti__chaos_schedule_begin(&schedule, &plan, 0);
    for (int i = 0; i < N; i++) {
        n_kills += events[i].kind == TUTTI__CHAOS_KILL;
        assert_in_range(events[i].n, 1, 4);
        sizes[events[i].n]++;
        chosen[tutti__chaos_choice(&schedule, &events[i], 0, 7)]++;
        squares += (events[i].at_s - last_s) * (events[i].at_s - last_s);
        last_s = events[i].at_s;
    }
    assert_true(events[0].at_s >= 100);
    assert_true(fabs(last_s - 100 - N / 4.0) < 60); /* 4 a second; deviation 16 s */
    assert_in_range(n_kills, 3 * N / 4 - 140, 3 * N / 4 + 140);
    /* Gaps of a Poisson process: the mean square is twice the squared mean, 1/16. */
    assert_true(fabs(squares / N - 2 / 16.0) < 0.02);
    for (int n = 1; n <= 4; n++)
        assert_in_range(sizes[n], N / 4 - 140, N / 4 + 140);
    for (int i = 0; i < 7; i++)
        assert_in_range(chosen[i], N / 7 - 120, N / 7 + 120);
}

static void nothing_comes_outside_its_time(void **state)
{
    tutti__chaos_plan plan = plan_of("kill=10,cut=10,after=2,until=3");
    tutti__chaos_schedule schedule;
    tutti__chaos_event event;
    int n = 0;

    (void)state;
    tutti__chaos_schedule_begin(&schedule, &plan, 0);
    while ((event = tutti__chaos_schedule_take(&schedule)).at_s < INFINITY) {
        assert_true(event.at_s >= 2 && event.at_s <= 3);
        n++;
    }
    assert_in_range(n, 5, 40);
    assert_true(isinf(tutti__chaos_schedule_peek(&schedule)->at_s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_is_read),
        cmocka_unit_test(flips_are_for_the_workers),
        cmocka_unit_test(a_bad_spec_is_refused_by_its_key),
        cmocka_unit_test(so_is_what_leaves_nobody_to_hit),
        cmocka_unit_test(a_seed_is_one_sequence_of_events),
        cmocka_unit_test(kinds_are_independent),
        cmocka_unit_test(rates_bursts_and_choices_are_as_asked),
        cmocka_unit_test(nothing_comes_outside_its_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
