/* launch: who is replaced, how often, and when the work is done or has failed.   SPDX-License-Identifier: MIT */
#include "launch_generations.h"

static void all_dead_begin_again_together(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    for (const char *const *w = (const char *const[]){"a0", "a1", "b0", "b1", NULL}; *w; w++)
        ended(&f, *w, 0, 9);
    *f.text = '\0';
    ready(&f, "b1' a0' a1'", -1);
    expect(&f, "");
    ready(&f, "b0'", -1);
    expect(&f, "G2 a0':0/4 a1':1/4 b0':2/4 b1':3/4");
    assert_true(f.fresh && f.committed);
    assert_int_equal(f.g.deaths, 4);
    assert_int_equal(f.g.replaced, 4);
    tutti__generations_free(&f.g);
}

static void a_worker_that_goes_on_dying_is_replaced_ever_more_seldom(void **state)
{
    fixture f;
    char worker[32] = "a1";

    (void)state;
    begin(&f, 1, 2);
    ready(&f, "a0 a1", -1);
    committed(&f, "a1", 1);
    *f.text = '\0';
    ended(&f, "a1", 3, 0);
    ready(&f, "a0", 1);
    ended(&f, "a1'", 4, 0);
    committed(&f, "a0", 2); /* progress of others does not count for this local rank */
    ended(&f, "a1''", 0, 6);
    expect(&f, "replace a1 regroup a0 G2 a0:0/1 replace a1' rest a1''");
    assert_string_equal(
        f.why,
        "3 with its local rank have died without a new step: no other is started for 1 step");
    committed(&f, "a0", 3);
    expect(&f, "replace a1''");
    ended(&f, "a1'''", 0, 6);
    expect(&f, "rest a1'''");
    committed(&f, "a0", 4);
    expect(&f, "");
    committed(&f, "a0", 5);
    expect(&f, "replace a1'''");
    ready(&f, "a1''''", -1);
    ready(&f, "a0", 5);
    expect(&f, "regroup a0 G3 a0:0/2 a1'''':1/2");
    committed(&f, "a1''''", 6); /* forgiven */
    snprintf(worker, sizeof worker, "a1''''");
    ended(&f, worker, 0, 6);
    expect(&f, "replace a1'''' regroup a0");
    tutti__generations_free(&f.g);
}

static void the_last_worker_is_the_failure(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 2);
    ready(&f, "a0", -1);
    for (int i = 0; i < 3; i++)
        ended(&f, (const char *const[]){"a1", "a1'", "a1''"}[i], 4, 0);
    expect(&f, "replace a1 replace a1' rest a1'' G1 a0:0/1");
    for (int i = 0; i < 3; i++)
        ended(&f, (const char *const[]){"a0", "a0'", "a0''"}[i], 0, 9);
    expect(&f, "replace a0 replace a0' fail a0''");
    assert_string_equal(f.why, "3 with its local rank have died without a new step");
    tutti__generations_free(&f.g);
}

static void replacements_are_tried_where_nobody_is_left(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 2, 1);
    ready(&f, "a0", -1);
    for (int i = 0; i < 3; i++)
        ended(&f, (const char *const[]){"b0", "b0'", "b0''"}[i], 4, 0);
    committed(&f, "a0", 0);
    *f.text = '\0';
    tutti__generations_node_lost(&f.g, f.now, 0);
    expect(&f, "replace b0''");
    tutti__generations_free(&f.g);

    begin(&f, 2, 1);
    ready(&f, "a0", -1);
    for (int i = 0; i < 3; i++)
        ended(&f, (const char *const[]){"b0", "b0'", "b0''"}[i], 4, 0);
    *f.text = '\0';
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    expect(&f, "let_go b0''");
    tutti__generations_free(&f.g);
}

static void own_failures_end_the_round(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    ended(&f, "b0", 1, 0);
    expect(&f, "fail b0 regroup a0 regroup a1 regroup b1");
    ready(&f, "a0 a1 b1", 1);
    /* nothing is begun any more that they could wait for */
    expect(&f, "leave a0 leave a1 leave b1");
    tutti__generations_free(&f.g);

    begin_four(&f); /* and who waits already */
    ready(&f, "a0", 1);
    *f.text = '\0';
    ended(&f, "b0", 1, 0);
    expect(&f, "fail b0 leave a0");
    tutti__generations_free(&f.g);

    begin_four(&f); /* a full disk: an exit code of which others are replaced */
    say(&f, "b0", TUTTI__WORKER_FAILS, 1, "");
    ended(&f, "b0", 4, 0);
    expect(&f, "fail b0 regroup a0 regroup a1 regroup b1");
    tutti__generations_free(&f.g);
}

/* An early exit(0), of all. */
static void who_ends_must_say_that_the_work_is_done(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 5);
    *f.text = '\0';
    ended(&f, "a1", 0, 0);
    ready(&f, "a0", 5);
    expect(&f, "let_go a1 regroup a0 G2 a0:0/1");
    ended(&f, "a0", 0, 0);
    expect(&f, "let_go a0 fail nobody");
    assert_int_equal(f.code, 1);
    assert_string_equal(f.why, "all workers have ended, and none said that the work was done "
                               "(tutti_elastic_end)");
    tutti__generations_free(&f.g);

    begin_two(&f, 5); /* a replacement of a dead one may report it */
    ended(&f, "a1", 0, 9);
    *f.text = '\0';
    ended(&f, "a0", 0, 0);
    expect(&f, "let_go a0");
    ready(&f, "a1'", -1);
    expect(&f, "G2 a1':0/1");
    say(&f, "a1'", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a1'", 0, 0);
    expect(&f, "let_go a1'");
    tutti__generations_free(&f.g);
}

/* A newcomer that the lost coordinator told to leave, because the job was done. */
static void a_new_coordinator_believes_those_who_say_that_the_work_is_done(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 2, 1);
    tutti__generations_resumed(&f.g, f.now, who("a0"), 2, 1, 9);
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a0", 0, 0);
    expect(&f, "regroup a0 let_go a0");
    tutti__generations_resumed(&f.g, f.now, who("b0"), 0, -1, -1);
    ended(&f, "b0", 0, 0);
    expect(&f, "let_go b0");
    tutti__generations_free(&f.g);

    begin(&f, 2, 1); /* but not that of rank 0, whose results are missing */
    tutti__generations_resumed(&f.g, f.now, who("a0"), 2, 1, 9);
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a0", 0, 0);
    expect(&f, "regroup a0 let_go a0");
    tutti__generations_resumed(&f.g, f.now, who("b0"), 2, 0, 9);
    *f.text = '\0';
    ended(&f, "b0", 0, 0);
    expect(&f, "let_go b0 fail nobody");
    tutti__generations_free(&f.g);
}

/* Newcomers alone, whom the lost coordinator told to leave: they do not know why. */
static void a_new_coordinator_does_not_blame_newcomers(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 1);
    f.g.hold_ms = f.now + 5000;
    tutti__generations_resumed(&f.g, f.now, who("a0"), 0, -1, -1);
    ended(&f, "a0", 0, 0);
    expect(&f, "let_go a0 fail nobody");
    assert_int_equal(f.code, 3);
    tutti__generations_free(&f.g);
}

static void who_leaves_is_not_waited_for(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    tutti__generations_node_leaves(&f.g, f.now, 0);
    tutti__generations_node_leaves(&f.g, f.now, 0);
    expect(&f, "leave a0 leave a1");
    assert_int_equal(tutti__generations_living(&f.g, -1), 2);
    say(&f, "a0", TUTTI__WORKER_LEAVES, 2, "");
    expect(&f, "regroup a1 regroup b0 regroup b1");
    ready(&f, "b0 b1", 2);
    expect(&f, "");
    say(&f, "a1", TUTTI__WORKER_LEAVES, 2, "");
    expect(&f, "G2 b0:0/2 b1:1/2");
    assert_int_equal(f.left, 2);
    ended(&f, "a1", 0, 0);
    ended(&f, "a0", 0, 9);
    expect(&f, "let_go a1 let_go a0");
    assert_int_equal(f.g.left, 2);
    assert_int_equal(f.g.lost_ms, 0);

    tutti__generations_node_leaves(&f.g, f.now, 1);
    expect(&f, "leave b0 leave b1");
    tutti__generations_free(&f.g);
}

static void who_starts_on_a_leaving_node_leaves_when_it_is_ready(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    ended(&f, "b1", 0, 9);
    tutti__generations_node_leaves(&f.g, f.now, 1);
    expect(&f, "replace b1 regroup a0 regroup a1 regroup b0 leave b0");
    ready(&f, "b1'", -1);
    expect(&f, "leave b1'");
    ready(&f, "b0", 1);
    expect(&f, "leave b0");
    ready(&f, "a0 a1", 1);
    expect(&f, "G2 a0:0/2 a1:1/2");
    tutti__generations_free(&f.g);
}

static void a_lost_node_is_gone_with_all_its_workers(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    ready(&f, "b0 b1 a1", 1);
    expect(&f, "regroup a0 regroup a1 regroup b1");
    tutti__generations_node_lost(&f.g, f.now, 0);
    expect(&f, "G2 b0:0/2 b1:1/2");
    ready(&f, "a0", 1); /* from an unknown worker */
    expect(&f, "");
    f.now += 500;
    committed(&f, "b0", 2);
    assert_int_equal(f.g.lost_ms, 500);
    tutti__generations_node_lost(&f.g, f.now, 1);
    expect(&f, "fail nobody");
    tutti__generations_free(&f.g);
}

static void after_the_end_nobody_is_replaced(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    ended(&f, "b1", 0, 9);
    *f.text = '\0';
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a1", 0, 9);
    expect(&f, "let_go a1");
    assert_string_equal(f.why, "the job's work was done");
    ready(&f, "b1'", -1);
    ready(&f, "b0", 8);
    expect(&f, "leave b1' leave b0");
    ended(&f, "a0", 0, 0);
    expect(&f, "let_go a0");
    ended(&f, "b0", 1, 0);
    ended(&f, "b1'", 0, 0);
    expect(&f, "let_go b0 let_go b1'");
    tutti__generations_free(&f.g);
}

/* Only rank 0's FINISHED is the job's, and only its normal end the end of the work. */
static void what_follows_the_last_step_counts(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 9);
    *f.text = '\0';
    say(&f, "a1", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a1", 0, 0);
    expect(&f, "let_go a1 regroup a0");
    assert_int_equal(f.g.left, 0);
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a0", 0, 9);
    expect(&f, "replace a0");
    ready(&f, "a0'", -1);
    expect(&f, "G2 a0':0/1");
    assert_true(f.fresh && f.committed);
    say(&f, "a0'", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a0'", 0, 0);
    expect(&f, "let_go a0'");
    tutti__generations_free(&f.g);

    begin_two(&f, 9); /* killed before it could say so; the other has met it */
    *f.text = '\0';
    ended(&f, "a0", 0, 9);
    say(&f, "a1", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "a1", 0, 0);
    expect(&f, "replace a0 regroup a1 let_go a1");
    ready(&f, "a0'", -1);
    expect(&f, "G2 a0':0/1");
    tutti__generations_free(&f.g);

    for (int code = 1; code <= 4; code++) { /* own failures, whoever's */
        begin_two(&f, 9);
        *f.text = '\0';
        say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
        say(&f, "a1", TUTTI__WORKER_FINISHED, 9, "");
        ended(&f, code % 2 ? "a0" : "a1", code, 0);
        expect(&f, code % 2 ? "fail a0" : "fail a1");
        tutti__generations_free(&f.g);
    }

    begin_four(&f); /* with its node */
    *f.text = '\0';
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    ended(&f, "b0", 0, 0);
    ended(&f, "b1", 0, 9);
    tutti__generations_node_lost(&f.g, f.now, 0);
    expect(&f, "let_go b0 let_go b1 fail nobody");
    assert_int_equal(f.code, 3);
    tutti__generations_free(&f.g);
}

/* It has ended, the others consider it dead, and their message arrives before its own. */
static void work_is_done_though_who_did_it_was_given_up(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    say(&f, "a1", TUTTI__WORKER_READY, 9, "0");
    say(&f, "b0", TUTTI__WORKER_READY, 9, "0");
    say(&f, "b1", TUTTI__WORKER_READY, 9, "0");
    assert_non_null(strstr(f.text, "kill a0 G2 a1:0/3 b0:1/3 b1:2/3"));
    *f.text = '\0';
    say(&f, "a0", TUTTI__WORKER_FINISHED, 9, "");
    expect(&f, "leave a1 leave b0 leave b1");
    ended(&f, "b1", 0, 9);
    expect(&f, "let_go b1");
    tutti__generations_free(&f.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_dead_begin_again_together),
        cmocka_unit_test(a_worker_that_goes_on_dying_is_replaced_ever_more_seldom),
        cmocka_unit_test(the_last_worker_is_the_failure),
        cmocka_unit_test(replacements_are_tried_where_nobody_is_left),
        cmocka_unit_test(own_failures_end_the_round),
        cmocka_unit_test(who_ends_must_say_that_the_work_is_done),
        cmocka_unit_test(a_new_coordinator_believes_those_who_say_that_the_work_is_done),
        cmocka_unit_test(a_new_coordinator_does_not_blame_newcomers),
        cmocka_unit_test(who_leaves_is_not_waited_for),
        cmocka_unit_test(who_starts_on_a_leaving_node_leaves_when_it_is_ready),
        cmocka_unit_test(a_lost_node_is_gone_with_all_its_workers),
        cmocka_unit_test(after_the_end_nobody_is_replaced),
        cmocka_unit_test(what_follows_the_last_step_counts),
        cmocka_unit_test(work_is_done_though_who_did_it_was_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
