/* launch: which workers form a generation, rule by rule, in expected and unexpected orders.   SPDX-License-Identifier: MIT */
#include "launch_generations.h"

static void the_first_waits_for_all_and_is_fresh(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 3);
    ready(&f, "a2 a0", -1);
    expect(&f, "");
    ended(&f, "a1", 0, 9);
    expect(&f, "replace a1");
    ready(&f, "a1", -1); /* the dead one's message, late */
    expect(&f, "");
    ready(&f, "a1'", -1);
    expect(&f, "G1 a0:0/3 a1':1/3 a2:2/3");
    assert_true(f.fresh && !f.committed);
    tutti__generations_free(&f.g);
}

/* The store of a process has names of the generations that an earlier coordinator in it has formed, also of those that no worker
 * lives to tell of. */
static void numbers_of_an_earlier_coordinator_are_not_given_again(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 2);
    f.g.opts.after = 2;
    ready(&f, "a0 a1", -1);
    expect(&f, "G3 a0:0/2 a1:1/2");
    committed(&f, "a0", 1);
    committed(&f, "a1", 1);
    ended(&f, "a1", 0, 9);
    expect(&f, "replace a1 regroup a0");
    ready(&f, "a0", 1);
    expect(&f, "G4 a0:0/1");
    tutti__generations_free(&f.g);
}

static void the_first_does_not_wait_for_ever(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 2);
    ready(&f, "a1", -1);
    assert_int_equal(tutti__generations_deadline(&f.g), 61000);
    pass(&f, 59999);
    expect(&f, "");
    pass(&f, 1);
    expect(&f, "G1 a1:0/1");
    assert_int_equal(tutti__generations_deadline(&f.g), UINT64_MAX);
    committed(&f, "a1", 1);
    ready(&f, "a0", -1);
    expect(&f, "regroup a1");
    tutti__generations_free(&f.g);
}

static void survivors_go_on_at_once_and_the_replacement_joins_after_a_commit(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    ended(&f, "a1", 0, 9);
    expect(&f, "replace a1 regroup a0 regroup b0 regroup b1");
    ready(&f, "b1", 1);
    ready(&f, "b0", 2);
    expect(&f, "");
    ready(&f, "a0", 1);
    expect(&f, "G2 b0:0/3 b1:1/3 a0:2/3"); /* most state first, then the rest of its node */
    assert_false(f.fresh);
    ready(&f, "a1'", -1);
    expect(&f, ""); /* who is forming is not disturbed */
    committed(&f, "b1", 3);
    expect(&f, "regroup a0 regroup b0 regroup b1");
    committed(&f, "b0", 3);
    ready(&f, "b0 b1 a0", 3);
    expect(&f, "G3 b0:0/4 b1:1/4 a0:2/4 a1':3/4");
    tutti__generations_free(&f.g);
}

static void newcomers_are_gathered_for_a_moment(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 1);
    *f.text = '\0';
    assert_int_equal(tutti__generations_node_came(&f.g, 1, 2), TUTTI_OK);
    ready(&f, "b1", -1);
    assert_int_equal(tutti__generations_deadline(&f.g), f.now + 100);
    expect(&f, "");
    ready(&f, "b0", -1);
    expect(&f, "regroup a0 regroup a1");
    ready(&f, "a0 a1", 2);
    expect(&f, "G2 a0:0/4 a1:1/4 b0:2/4 b1:3/4");
    committed(&f, "a0", 3);
    assert_int_equal(tutti__generations_node_came(&f.g, 2, 1), TUTTI_OK);
    ready(&f, "c0", -1);
    pass(&f, 1000);
    expect(&f, ""); /* four shards, four members: it waits, and steps in */
    ended(&f, "b0", 0, 11);
    expect(&f, "replace b0 regroup a0 regroup a1 regroup b1");
    ready(&f, "a0 a1 b1", 3);
    expect(&f, "G3 a0:0/4 a1:1/4 b1:2/4 c0:3/4");
    assert_int_equal(f.g.joined, 3);
    tutti__generations_free(&f.g);
}

static void who_is_late_goes_if_blamed_stopped_or_too_late(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    say(&f, "a0", TUTTI__WORKER_READY, 1, "3");
    expect(&f, "regroup a1 regroup b0 regroup b1");
    ready(&f, "b0", 1);
    expect(&f, "");
    ready(&f, "a1", 1); /* all others wait now, and one has blamed b1 */
    expect(&f, "kill b1 G2 a0:0/3 a1:1/3 b0:2/3");
    ended(&f, "b1", 0, 9);
    expect(&f, "replace b1");
    committed(&f, "a0", 2);

    tutti__generations_stopped(&f.g, f.now, who("a1"), true);
    expect(&f, ""); /* a debugger: fine as long as none waits for it */
    ready(&f, "b0", 2);
    expect(&f, "regroup a0 regroup a1 kill a1");
    ended(&f, "a1", 0, 9);
    ready(&f, "a0", 2);
    expect(&f, "replace a1 G3 a0:0/2 b0:1/2");
    committed(&f, "a0", 3);

    ready(&f, "b0", 3);
    expect(&f, "regroup a0");
    assert_int_equal(tutti__generations_deadline(&f.g), f.now + 60000);
    pass(&f, 60000);
    expect(&f, "kill a0 G4 b0:0/1");
    tutti__generations_free(&f.g);
}

/* With it, whether the two nodes reach each other is no question any more. */
static void who_was_blamed_by_a_lost_node_is_not_excluded(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 3, 1);
    ready(&f, "a0 b0 c0", -1);
    expect(&f, "G1 a0:0/3 b0:1/3 c0:2/3");
    say(&f, "c0", TUTTI__WORKER_READY, -1, "1");
    ready(&f, "a0", -1);
    expect(&f, "regroup a0 regroup b0 kill b0 G2 a0:0/2 c0:1/2");
    committed(&f, "a0", 1);
    ended(&f, "b0", 0, 9);
    ready(&f, "b0'", -1);
    ready(&f, "a0 c0", 1);
    expect(&f, "replace b0 regroup a0 regroup c0 G3 a0:0/3 b0':1/3 c0:2/3");
    say(&f, "c0", TUTTI__WORKER_READY, 1, "1");
    tutti__generations_node_lost(&f.g, f.now, 2);
    ready(&f, "a0", 1);
    expect(&f, "regroup a0 regroup b0'");
    pass(&f, 60000);
    expect(&f, "kill b0' G4 a0:0/1");
    tutti__generations_free(&f.g);
}

/* It cannot be ended, or the state is lost: the node that does not reach it goes. */
static void the_only_one_with_the_state_stays_and_who_cannot_reach_it_is_excluded(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 3, 1);
    ready(&f, "a0 b0", -1);
    ready(&f, "c0", 1);
    expect(&f, "G1 c0:0/3 a0:1/3 b0:2/3");
    say(&f, "b0", TUTTI__WORKER_READY, -1, "0");
    ready(&f, "a0", -1);
    ready(&f, "c0", 1);
    expect(&f, "regroup a0 regroup c0 G2 c0:0/3 a0:1/3 b0:2/3");
    say(&f, "b0", TUTTI__WORKER_READY, -1, "0");
    ready(&f, "a0", -1);
    ready(&f, "c0", 1);
    expect(&f, "regroup a0 regroup c0 G3 c0:0/3 a0:1/3 b0:2/3");
    say(&f, "b0", TUTTI__WORKER_READY, -1, "0");
    ready(&f, "a0", -1);
    ready(&f, "c0", 1);
    expect(&f, "regroup a0 regroup c0 exclude b0");
    tutti__generations_node_lost(&f.g, f.now, 1);
    expect(&f, "G4 c0:0/2 a0:1/2");
    tutti__generations_free(&f.g);
}

/* Until they have formed the group, the others miss no heartbeat. */
static void who_is_stopped_while_forming_goes_after_a_heartbeat(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 3);
    f.g.opts.stopped_ms = 5000;
    ready(&f, "a0 a1", -1);
    tutti__generations_stopped(&f.g, f.now, who("a1"), true);
    pass(&f, 7000);
    ready(&f, "a2", -1);
    expect(&f, "G1 a0:0/3 a1:1/3 a2:2/3");
    assert_int_equal(tutti__generations_deadline(&f.g), f.now + 5000);
    pass(&f, 4999);
    expect(&f, "");
    pass(&f, 1);
    expect(&f, "kill a1 regroup a0 regroup a2");
    ready(&f, "a0 a2", -1);
    expect(&f, "G2 a0:0/2 a2:1/2");
    tutti__generations_stopped(&f.g, f.now, who("a0"), true);
    pass(&f, 4000);
    tutti__generations_stopped(&f.g, f.now, who("a0"), false);
    pass(&f, 4000);
    tutti__generations_stopped(&f.g, f.now, who("a0"), true);
    tutti__generations_stopped(&f.g, f.now, who("a2"), true); /* the whole job pauses */
    pass(&f, 100000);
    expect(&f, "");
    tutti__generations_stopped(&f.g, f.now, who("a0"), false);
    tutti__generations_stopped(&f.g, f.now, who("a2"), false);
    committed(&f, "a0", 1);
    tutti__generations_stopped(&f.g, f.now, who("a2"), true);
    pass(&f, 100000); /* a0 will miss its heartbeat, and say so */
    expect(&f, "");
    tutti__generations_free(&f.g);
}

static void who_is_stopped_while_forming_stays_if_only_it_has_the_state(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 5);
    f.g.opts.stopped_ms = 5000;
    ended(&f, "a1", 0, 9);
    ready(&f, "a1'", -1);
    ready(&f, "a0", 5);
    *f.text = '\0';
    tutti__generations_stopped(&f.g, f.now, who("a0"), true);
    pass(&f, 1000000);
    expect(&f, "");
    tutti__generations_stopped(&f.g, f.now, who("a0"), false);
    tutti__generations_stopped(&f.g, f.now, who("a1'"), true);
    pass(&f, 5000);
    expect(&f, "kill a1' regroup a0");
    tutti__generations_free(&f.g);
}

static void the_only_one_with_the_state_is_waited_for(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 5);
    ended(&f, "a1", 0, 9);
    ready(&f, "a1'", -1);
    *f.text = '\0';
    tutti__generations_stopped(&f.g, f.now, who("a0"), true);
    pass(&f, 1000000);
    expect(&f, "");
    tutti__generations_stopped(&f.g, f.now, who("a0"), false);
    ready(&f, "a0", 5);
    expect(&f, "G2 a0:0/2 a1':1/2");
    assert_false(f.fresh);
    tutti__generations_free(&f.g);
}

static void nobody_waits_for_a_share_of_a_lost_state(void **state)
{
    fixture f;

    (void)state;
    begin_two(&f, 5);
    *f.text = '\0';
    tutti__generations_stopped(&f.g, f.now, who("a0"), true);
    expect(&f, "");
    ready(&f, "a1", TUTTI__STATE_WAS_SHARED);
    expect(&f, "regroup a0 kill a0 G2 a1:0/1");
    assert_true(f.fresh && f.committed);
    tutti__generations_free(&f.g);
}

static void other_builds_are_refused(void **state)
{
    tutti__worker_message message = {.protocol = TUTTI__AGENT_PROTOCOL,
                                     .kind = TUTTI__WORKER_READY,
                                     .shards = 4,
                                     .step = -1,
                                     .build = "two"};
    fixture f;

    (void)state;
    begin(&f, 3, 1);
    ready(&f, "a0", -1);
    tutti__generations_said(&f.g, f.now, who("b0"), &message);
    expect(&f, "refuse b0");
    assert_non_null(strstr(f.why, "it is \"two\", the others are \"one\""));
    assert_non_null(strstr(f.why, "TUTTI_CPU_ISA"));
    snprintf(message.build, sizeof message.build, "one");
    message.shards = 8;
    tutti__generations_said(&f.g, f.now, who("c0"), &message);
    expect(&f, "refuse c0 G1 a0:0/1");
    assert_non_null(strstr(f.why, "its step has 8 shards, that of the others 4"));
    ended(&f, "b0", 2, 0);
    ended(&f, "c0", 0, 9);
    expect(&f, "let_go b0 let_go c0");
    tutti__generations_free(&f.g);

    /* A worker without kernels yet may report to the others why; kernels are compared as soon as one names them. */
    begin(&f, 3, 1);
    ready(&f, "a0", -1);
    message.shards = 4;
    snprintf(message.build, sizeof message.build, "one, fast");
    tutti__generations_said(&f.g, f.now, who("b0"), &message);
    expect(&f, "");
    snprintf(message.build, sizeof message.build, "one, slow");
    tutti__generations_said(&f.g, f.now, who("c0"), &message);
    expect(&f, "refuse c0 G1 a0:0/2 b0:1/2");
    tutti__generations_free(&f.g);

    begin(&f, 2, 1); /* a longer name, as long as can be */
    ready(&f, "a0", -1);
    memset(message.build, 'x', sizeof message.build - 1);
    memcpy(message.build, "one", 3);
    tutti__generations_said(&f.g, f.now, who("b0"), &message);
    expect(&f, "refuse b0 G1 a0:0/1");
    tutti__generations_free(&f.g);
}

static const char *const three_more_then_without_b0[] = {
    "G2 a0:0/4 a1:1/4 b0:2/4 b1:3/4", "G3 a0:0/4 a1:1/4 b0:2/4 b1:3/4",
    "G4 a0:0/4 a1:1/4 b0:2/4 b1:3/4", "kill b0 G5 a0:0/3 a1:1/3 b1:2/3"};

static void who_cannot_be_reached_goes_after_three_generations(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    for (int i = 0; i < 4; i++) {
        say(&f, "a0", TUTTI__WORKER_READY, 1, "2");
        say(&f, "a1", TUTTI__WORKER_READY, 1, "2");
        say(&f, "b0", TUTTI__WORKER_READY, 1, "01");
        *f.text = '\0';
        ready(&f, "b1", 1);
        expect(&f, three_more_then_without_b0[i]);
    }
    tutti__generations_free(&f.g);
}

/* It can reach no other, and so blames none. */
static void who_gives_up_first_goes_after_three_generations(void **state)
{
    fixture f;

    (void)state;
    begin_four(&f);
    for (int i = 0; i < 4; i++) {
        ready(&f, "b0", 1);
        expect(&f, "regroup a0 regroup a1 regroup b1");
        ready(&f, "a0 a1 b1", 1);
        expect(&f, three_more_then_without_b0[i]);
    }
    for (int i = 0; i < 3; i++) { /* the others noticed its death before it was reported here */
        ready(&f, "a0 a1", 1);
        *f.text = '\0';
        tutti__generations_ended(&f.g, f.now, (tutti__worker_id){1, 1, i}, 0, 9);
        assert_null(strstr(f.text, "kill"));
        *f.text = '\0';
        tutti__generations_said(
            &f.g, f.now, (tutti__worker_id){1, 1, i + 1},
            &(tutti__worker_message){
                .protocol = TUTTI__AGENT_PROTOCOL, .shards = 4, .step = -1, .build = "one"});
    }
    tutti__generations_free(&f.g);
}

static void a_new_coordinator_learns_what_goes_on(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 2, 2);
    f.g.hold_ms = f.now + 5000;
    tutti__generations_resumed(&f.g, f.now, who("a0"), 7, 1, 20);
    tutti__generations_resumed(&f.g, f.now, who("a1''"), 7, 3, 20);
    expect(&f, "regroup a0 regroup a1''"); /* who else was in it is not known */
    f.generation[0][0] = f.generation[0][1] = 7;
    ready(&f, "a0", 21);
    expect(&f, "");
    ready(&f, "a1''", 20);
    expect(&f, "G8 a0:0/2 a1'':1/2");
    committed(&f, "a0", 22);
    tutti__generations_resumed(&f.g, f.now, who("b0"), 7, 2, 20);
    expect(&f, "regroup b0");
    ready(&f, "b0", 20);
    expect(&f, "");
    tutti__generations_resumed(&f.g, f.now, who("b1"), 0, 0, -1);
    pass(&f, 100);
    expect(&f, "regroup a0 regroup a1''");
    tutti__generations_free(&f.g);
}

static void a_new_coordinator_begins_nothing_without_the_state(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 1);
    f.g.hold_ms = f.now + 5000;
    ready(&f, "a0", -1); /* a replacement; those who have the state are on their way */
    expect(&f, "");
    assert_int_equal(tutti__generations_deadline(&f.g), f.now + 5000);
    assert_int_equal(tutti__generations_node_came(&f.g, 1, 1), TUTTI_OK);
    tutti__generations_resumed(&f.g, f.now, who("b0"), 3, 0, 9);
    ready(&f, "b0", 9);
    expect(&f, "regroup b0 G4 b0:0/2 a0:1/2");
    assert_false(f.fresh);
    tutti__generations_free(&f.g);
}

/* Others may be continuing: working members end after the current step, and nothing new begins. */
static void nothing_is_begun_while_it_is_paused(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 1, 2);
    ready(&f, "a0 a1", -1);
    expect(&f, "G1 a0:0/2 a1:1/2");
    tutti__generations_pause(&f.g, f.now, true);
    expect(&f, "regroup a0 regroup a1");
    ready(&f, "a0 a1", 5);
    expect(&f, "");
    assert_true(tutti__generations_deadline(&f.g) == UINT64_MAX);
    tutti__generations_pause(&f.g, f.now, false);
    expect(&f, "G2 a0:0/2 a1:1/2");
    tutti__generations_free(&f.g);
}

static void ready_with(fixture *f, const char *worker, const char *settings)
{
    tutti__worker_message message = {.protocol = TUTTI__AGENT_PROTOCOL,
                                     .kind = TUTTI__WORKER_READY,
                                     .shards = 4,
                                     .step = -1,
                                     .build = "one"};

    snprintf(message.settings, sizeof message.settings, "%s", settings);
    tutti__generations_said(&f->g, f->now, who(worker), &message);
}

/* A newcomer that differs does not end the generation of the others, which names the difference to it. */
static void other_settings_are_refused(void **state)
{
    static const char *const OTHERS[] = {"model: \"mlp\";lr: 0.2;momentum: 0;",
                                         "model: \"mlp\";lr: 0.1;", "seed: 1;", ";"};
    fixture f;

    (void)state;
    begin(&f, 2, 1);
    ready_with(&f, "a0", "model: \"mlp\";lr: 0.1;momentum: 0;");
    ready_with(&f, "b0", ""); /* it does not say */
    expect(&f, "G1 a0:0/2 b0:1/2");
    for (int i = 0; i < 4; i++) {
        const char worker[] = {(char)('c' + i), '0', '\0'};
        char actions[32];

        assert_int_equal(tutti__generations_node_came(&f.g, 2 + i, 1), TUTTI_OK);
        ready_with(&f, worker, OTHERS[i]);
        snprintf(actions, sizeof actions, "refuse %s", worker);
        expect(&f, actions);
        assert_true(i > 0 || strstr(f.why, "lr: it has 0.2, the others 0.1:"));
        ended(&f, worker, 2, 0);
        snprintf(actions, sizeof actions, "let_go %s", worker);
        expect(&f, actions);
    }
    tutti__generations_free(&f.g);
}

/* Before a group has formed, it is unknown which of them is meant. */
static void settings_that_differ_from_the_start_fail_the_job(void **state)
{
    fixture f;

    (void)state;
    begin(&f, 3, 1);
    ready_with(&f, "a0", "lr: 0.1;");
    ready_with(&f, "b0", "lr: 0.2;");
    expect(&f, "refuse b0 leave a0");
    ready_with(&f, "c0", "lr: 0.1;");
    expect(&f, "leave c0");
    ended(&f, "b0", 2, 0);
    expect(&f, "fail b0");
    tutti__generations_free(&f.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_waits_for_all_and_is_fresh),
        cmocka_unit_test(numbers_of_an_earlier_coordinator_are_not_given_again),
        cmocka_unit_test(the_first_does_not_wait_for_ever),
        cmocka_unit_test(survivors_go_on_at_once_and_the_replacement_joins_after_a_commit),
        cmocka_unit_test(newcomers_are_gathered_for_a_moment),
        cmocka_unit_test(who_is_late_goes_if_blamed_stopped_or_too_late),
        cmocka_unit_test(who_was_blamed_by_a_lost_node_is_not_excluded),
        cmocka_unit_test(the_only_one_with_the_state_stays_and_who_cannot_reach_it_is_excluded),
        cmocka_unit_test(who_is_stopped_while_forming_goes_after_a_heartbeat),
        cmocka_unit_test(who_is_stopped_while_forming_stays_if_only_it_has_the_state),
        cmocka_unit_test(the_only_one_with_the_state_is_waited_for),
        cmocka_unit_test(nobody_waits_for_a_share_of_a_lost_state),
        cmocka_unit_test(other_builds_are_refused),
        cmocka_unit_test(other_settings_are_refused),
        cmocka_unit_test(settings_that_differ_from_the_start_fail_the_job),
        cmocka_unit_test(who_cannot_be_reached_goes_after_three_generations),
        cmocka_unit_test(who_gives_up_first_goes_after_three_generations),
        cmocka_unit_test(a_new_coordinator_learns_what_goes_on),
        cmocka_unit_test(a_new_coordinator_begins_nothing_without_the_state),
        cmocka_unit_test(nothing_is_begun_while_it_is_paused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
