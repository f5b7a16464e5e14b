/* What a run does next: pure functions of plan and position.   SPDX-License-Identifier: MIT */
#include "train/plan/plan.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ACTS = 1000 };

/* 10 samples in batches of 2, one rank: 5 batches an epoch. */
static tutti__train_config config_of(int64_t epochs)
{
    return (tutti__train_config){.epochs = epochs,
                                 .batch_size = 2,
                                 .grad_accumulation = 1,
                                 .log_every = 100,
                                 .eval_every = 1,
                                 .schedule = "constant",
                                 .guard = 0,
                                 .lr = 1};
}

static tutti__train_plan plan_at(const tutti__train_config *config, const tutti__position *p)
{
    return tutti__plan_of(config, 10, 1, config->eval_every > 0, &p->at);
}

/* Does what is next, as a run would, and returns its letter: steps are 's', or with more than one batch their number; a line,
 * an evaluation, a checkpoint after an epoch or at the end (C) or elsewhere (c), the results, the end. */
static char act(const tutti__train_plan *plan, tutti__position *p)
{
    size_t n;
    char c;

    switch (tutti__plan_next(plan, p)) {
    case TUTTI__DO_STEP:
        tutti__plan_begin_step(plan, p);
        n = tutti__plan_step_batches(plan, &p->at);
        tutti__plan_end_step(plan, p, n);
        return n == 1 ? 's' : (char)('0' + n);
    case TUTTI__DO_GUARD:
        p->guarded = p->at.step;
        p->guard_at = p->at.step + (plan->config->guard > 0 ? (uint64_t)plan->config->guard : 4);
        return 'g';
    case TUTTI__DO_AGREE:
        p->agree_due = false;
        return 'a';
    case TUTTI__DO_LINE:
        p->line.step = (int64_t)p->at.step;
        return 'l';
    case TUTTI__DO_EVALUATE:
        p->evaluated = p->at.step;
        return 'e';
    case TUTTI__DO_SAVE:
        c = tutti__plan_saves_epoch(plan, p) ? 'C' : 'c';
        tutti__plan_saved(plan, p);
        return c;
    case TUTTI__DO_FINISH:
        p->ended = true;
        return 'f';
    case TUTTI__DO_END:
        break;
    }
    return '.';
}

/* All that is done from there to the end; `stop` (0: never): the step in which a signal comes. */
static const char *acts(const tutti__train_plan *plan, tutti__position *p, uint64_t stop)
{
    static char text[ACTS];
    size_t n = 0;

    do {
        assert_true(n < sizeof text - 1);
        if (stop > 0 && p->at.step + 1 == stop && tutti__plan_next(plan, p) == TUTTI__DO_STEP)
            p->stop = SIGTERM; /* known before the step ends: it has a line */
        if (p->stop && p->at.step + 1 == stop) {
            tutti__plan_begin_step(plan, p);
            tutti__plan_end_step(plan, p, tutti__plan_step_batches(plan, &p->at));
            text[n++] = 's';
        } else
            text[n++] = act(plan, p);
    } while (text[n - 1] != '.');
    text[n] = '\0';
    return text;
}

static const char *whole(const tutti__train_config *config)
{
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(config, &p);

    return acts(&plan, &p, 0);
}

static void test_epochs(void **unused)
{
    tutti__train_config c = config_of(2);

    (void)unused;
    /* Without checkpoint_every each epoch is saved, after its evaluation; the last step has a line. */
    assert_string_equal(whole(&c), "ssssseCsssssleCf.");
    c.eval_every = 2;
    assert_string_equal(whole(&c), "sssssCsssssleCf.");
    c.eval_every = 0;
    assert_string_equal(whole(&c), "sssssCssssslCf.");
    c.log_every = 3;
    assert_string_equal(whole(&c), "ssslssCslssslslCf.");
}

static void test_guard(void **unused)
{
    tutti__train_config c = config_of(2);

    (void)unused;
    /* After so many steps, before all else, and before each checkpoint. */
    c.guard = 3;
    assert_string_equal(whole(&c), "sssgssegCsssgsslegCf.");
    /* By default after two steps, and then after as many as it takes; here 4. */
    c.guard = -1;
    assert_string_equal(whole(&c), "ssgsssegCssssgslegCf.");
    c.checkpoint_every = 3;
    assert_string_equal(whole(&c), "ssgsgcssesgcsssgcslegCf.");
    c.checkpoint_every = 0;
    c.lr_find = true; /* which saves nothing */
    assert_string_equal(whole(&c), "ssgsssesgssssglef.");
}

static void test_checkpoint_every(void **unused)
{
    tutti__train_config c = config_of(2);

    (void)unused;
    c.checkpoint_every = 2;
    assert_string_equal(whole(&c), "sscsscsescsscssleCf."); /* none at step 5; at 10 the last one */
    c.checkpoint_every = 5;
    assert_string_equal(whole(&c), "ssssseCsssssleCf.");
    c.checkpoint_every = 100;
    assert_string_equal(whole(&c), "sssssesssssleCf.");
}

static void test_max_steps(void **unused)
{
    tutti__train_config c = config_of(3);

    (void)unused;
    c.max_steps = 7;
    assert_string_equal(whole(&c), "ssssseCssleCf.");
    c.max_steps = 5;
    assert_string_equal(whole(&c), "sssssleCf.");
    c.eval_every = 2; /* the end is evaluated in any epoch */
    assert_string_equal(whole(&c), "sssssleCf.");
    c.max_steps = 100;
    c.epochs = 1;
    assert_string_equal(whole(&c), "sssssleCf.");
}

static void test_grad_accumulation(void **unused)
{
    tutti__train_config c = config_of(2);

    (void)unused;
    c.grad_accumulation = 3;
    assert_string_equal(whole(&c), "32eC32leCf."); /* an epoch's last step has the rest */
    c.grad_accumulation = 8;
    assert_string_equal(whole(&c), "5eC5leCf.");
}

static void test_position(void **unused)
{
    tutti__train_config c = config_of(2);
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);
    tutti__run_cursor at;

    (void)unused;
    p.epoch_loss.n = 1;
    for (int i = 0; i < 5; i++)
        assert_int_equal(act(&plan, &p), 's');
    assert_true(p.epoch_loss.n == 0);
    p.epoch_loss.n = 10;
    assert_int_equal(p.at.epoch,
                     1); /* until the next one begins, its results belong to the epoch */
    assert_int_equal(p.at.batch, 5);
    assert_int_equal(p.epochs_done, 1);
    assert_int_equal(act(&plan, &p), 'e');
    at = tutti__plan_saves_at(&plan, &p);
    assert_true(at.step == 5 && at.epoch == 2 && at.start == 0 && at.batch == 0);
    assert_int_equal(act(&plan, &p), 'C');
    assert_true(p.epoch_loss.n == 10);
    assert_int_equal(act(&plan, &p), 's');
    assert_true(p.epoch_loss.n == 0);
    assert_true(p.at.epoch == 2 && p.at.batch == 1);
    at = tutti__plan_saves_at(&plan, &p);
    assert_memory_equal(&at, &p.at, sizeof at);
}

static void test_signal(void **unused)
{
    tutti__train_config c = config_of(2);
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);

    (void)unused;
    assert_string_equal(acts(&plan, &p, 3), "ssslcf.");
    p = tutti__position_begin();
    assert_string_equal(acts(&plan, &p, 5),
                        "ssssslcf."); /* at the epoch's end, too: no evaluation */
    assert_true(tutti__plan_saves_at(&plan, &p).batch == 5);
    c.checkpoint_every = 3;
    p = tutti__position_begin();
    for (int i = 0; i < 4; i++)
        act(&plan, &p);
    p.stop = SIGTERM; /* as if it came in an evaluation: that step is saved already */
    assert_string_equal(acts(&plan, &p, 0), "f.");
    p = tutti__position_begin();
    act(&plan, &p);
    p.stop = TUTTI__UNSAVED; /* what could not be saved ends the run */
    assert_string_equal(acts(&plan, &p, 0), "f.");
}

static tutti__eval_metrics eval_of(uint64_t step, double loss, double accuracy)
{
    return (tutti__eval_metrics){.step = (int64_t)step, .val_loss = loss, .val_accuracy = accuracy};
}

/* Each choice of checkpoint_best can be monitored, and is a figure of evaluations. */
static void test_monitors(void **unused)
{
    tutti__train_config c = config_of(1);
    const char *choices = tutti__key_table[TUTTI__KEY_OF_checkpoint_best].limits;
    char list[256] = "off";

    (void)unused;
    for (size_t i = 0; tutti__monitor_at(i).name; i++) {
        const char *name = tutti__monitor_at(i).name;
        bool found = false;

        snprintf(list + strlen(list), sizeof list - strlen(list), " %s", name);
        for (size_t k = 0; k < tutti__eval_table.n; k++)
            found = found || strcmp(tutti__eval_table.rows[k].name, name) == 0;
        assert_true(found);
        snprintf(c.checkpoint_best, sizeof c.checkpoint_best, "%s", name);
        assert_string_equal(tutti__monitor_of(&c).name, name);
        assert_true(tutti__best_is_kept(&c));
    }
    assert_string_equal(list, choices);
    strcpy(c.checkpoint_best, "off");
    assert_string_equal(tutti__monitor_of(&c).name, "val_loss");
    assert_false(tutti__best_is_kept(&c));
}

static void test_best(void **unused)
{
    static const double losses[] = {3, 2, 2, 1.95, NAN, 1.8};
    static const uint64_t steps[] = {1, 2, 2, 2, 2, 6};
    static const int64_t since[] = {0, 0, 1, 2, 3, 0};
    tutti__train_config c = config_of(1);
    tutti__best best = {0};

    (void)unused;
    c.min_delta = 0.1;
    c.early_stopping = 3;
    for (uint64_t i = 0; i < TUTTI__COUNT_OF(losses); i++) {
        const tutti__eval_metrics eval = eval_of(i + 1, losses[i], 0);

        tutti__best_note(&c, &best, &eval);
        assert_int_equal(best.step, steps[i]);
        assert_int_equal(best.since, since[i]);
        assert_int_equal(tutti__best_is_exhausted(&c, &best), since[i] == 3);
    }
    strcpy(c.checkpoint_best, "val_accuracy");
    c.min_delta = 0;
    best = (tutti__best){0};
    for (uint64_t i = 1; i <= 3; i++) {
        const tutti__eval_metrics eval = eval_of(i, 0, i == 2 ? 0.5 : 0.25);

        tutti__best_note(&c, &best, &eval);
    }
    assert_int_equal(best.step, 2);
    assert_int_equal(best.since, 1);
    assert_true(best.value == 0.5);
}

/* With checkpoint_every a checkpoint after an epoch only for the best; the run ends after the evaluation that makes it too many. */
static void test_early_end(void **unused)
{
    static const double losses[] = {3, 4, 2, 2, 2};
    tutti__train_config c = config_of(9);
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);
    char text[ACTS], why[TUTTI__PLAN_WHY];
    size_t n = 0, evals = 0;

    (void)unused;
    c.checkpoint_every = 1000;
    c.early_stopping = 2;
    strcpy(c.checkpoint_best, "val_loss");
    do {
        text[n] = act(&plan, &p);
        if (text[n] == 'e') {
            const tutti__eval_metrics eval = eval_of(p.at.step, losses[evals++], 0);

            tutti__best_note(&c, &p.best, &eval);
        }
    } while (text[n++] != '.');
    text[n] = '\0';
    assert_string_equal(text, "ssssseCssssse"
                              "ssssseCssssse"
                              "ssssseCf.");
    tutti__plan_why(&c, &p.best, p.stopped, p.stop_why, why);
    assert_string_equal(why, "early_stopping: 2 evaluations in a row did not improve val_loss, "
                             "whose best was 2 after step 15");
    c.min_delta = 0.25;
    tutti__plan_why(&c, &p.best, p.stopped, p.stop_why, why);
    assert_string_equal(why, "early_stopping: 2 evaluations in a row did not improve val_loss by "
                             "more than 0.25 (min_delta), whose best was 2 after step 15");
}

/* The program ends it: what follows a last step is done. */
static void test_program_end(void **unused)
{
    tutti__train_config c = config_of(9);
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);
    char why[TUTTI__PLAN_WHY];

    (void)unused;
    for (int i = 0; i < 7; i++)
        act(&plan, &p); /* the first epoch */
    act(&plan, &p);
    p.agree_due = true;
    assert_int_equal(act(&plan, &p), 'a');
    p.stopped = true;
    strcpy(p.stop_why, "enough");
    assert_string_equal(acts(&plan, &p, 0), "eCf.");
    assert_int_equal(p.at.step, 6);
    tutti__plan_why(&c, &p.best, p.stopped, p.stop_why, why);
    assert_string_equal(why, "ended by the program: enough");
}

/* By steps, in place of epochs; at the end in any case; before the checkpoint of the same step. */
static void test_evaluations_by_steps(void **unused)
{
    tutti__train_config c = config_of(2);

    (void)unused;
    c.eval_steps = 3;
    assert_string_equal(whole(&c), "sssessCsesssesleCf.");
    c.checkpoint_every = 3;
    assert_string_equal(whole(&c), "sssecsssecsssecsleCf.");
}

/* Resumed from each of its checkpoints, a run does what it had left. Returns how many there are. */
static int resume_each(const tutti__train_config *c, size_t count, int shares)
{
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = tutti__plan_of(c, count, shares, c->eval_every > 0, &p.at);
    char text[ACTS];
    int n = 0;

    while (tutti__plan_next(&plan, &p) != TUTTI__DO_END) {
        const bool saves = tutti__plan_next(&plan, &p) == TUTTI__DO_SAVE;
        tutti__position again = tutti__position_begin(), goes_on;
        tutti__train_plan other;

        again.at = tutti__plan_saves_at(&plan, &p);
        again.saved_step = again.at.step;
        again.evaluated = p.evaluated;
        again.finished = tutti__plan_finishes(&plan, &p);
        act(&plan, &p);
        if (!saves)
            continue;
        other = tutti__plan_of(c, count, shares, c->eval_every > 0, &again.at);
        assert_true(other.total_steps == plan.total_steps);
        assert_true(tutti__plan_lr(&other, &again.at) == tutti__plan_lr(&plan, &p.at));
        goes_on = p;
        strcpy(text, acts(&plan, &goes_on, 0));
        assert_string_equal(acts(&other, &again, 0), text);
        n++;
    }
    assert_true(p.at.step == plan.total_steps);
    return n;
}

static void test_resume(void **unused)
{
    tutti__train_config c = config_of(2);
    uint64_t random = 1;

    (void)unused;
    c.checkpoint_every = 2;
    assert_int_equal(resume_each(&c, 10, 1), 5);
    for (int i = 0; i < 500; i++) {
        int64_t *const keys[] = {&c.epochs,    &c.batch_size, &c.grad_accumulation,
                                 &c.log_every, &c.eval_every, &c.checkpoint_every,
                                 &c.max_steps, &c.eval_steps};

        for (size_t k = 0; k < TUTTI__COUNT_OF(keys); k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            *keys[k] = (int64_t)(random >> 33) % 4 + (k < 4);
        }
        c.max_steps *= 3;
        assert_true(resume_each(&c, 20 + random % 7, 1 + i % 3) > 0);
    }
}

/* What one rank has left of an epoch is divided among two; the rate is that of a run that always had two. */
static void test_other_ranks(void **unused)
{
    tutti__train_config c = config_of(1);
    tutti__position p = tutti__position_begin();
    const tutti__run_cursor middle = {.step = 2, .epoch = 1, .batch = 2};
    const tutti__train_plan one = plan_at(&c, &p);
    tutti__train_plan two;

    (void)unused;
    c.eval_every = 0;
    p.at =
        (tutti__run_cursor){.step = 2, .epoch = 1, .start = tutti__plan_samples(&one, &middle, 1)};
    assert_int_equal(p.at.start, 4);
    two = tutti__plan_of(&c, 10, 2, false, &p.at);
    assert_int_equal(two.total_steps, 4); /* 6 samples, 2 a rank and step: 2 steps */
    assert_int_equal(two.schedule.total_steps, 3);
    assert_string_equal(acts(&two, &p, 0), "sslCf.");
    p = tutti__position_begin();
    p.at = (tutti__run_cursor){.step = 5, .epoch = 1, .start = 10}; /* nothing is left of it */
    two = tutti__plan_of(&c, 10, 2, false, &p.at);
    assert_string_equal(acts(&two, &p, 0), "Cf.");
}

static tutti__train_config with_schedule(const char *schedule)
{
    tutti__train_config c = config_of(4); /* 20 steps on one rank, 12 on two */

    snprintf(c.schedule, sizeof c.schedule, "%s", schedule);
    c.pct_start = 0.25;
    c.div_factor = 10;
    c.restart_epochs = 1;
    c.restart_mult = 1;
    return c;
}

/* After half of the samples every schedule has the rate of its middle, whatever the ranks are. */
static void test_schedules_follow_the_samples(void **unused)
{
    static const char *const names[] = {"constant", "step",     "cosine",
                                        "linear",   "onecycle", "restarts"};

    (void)unused;
    for (size_t k = 0; k < TUTTI__COUNT_OF(names); k++) {
        const tutti__train_config c = with_schedule(names[k]);
        tutti__position p = tutti__position_begin();
        const tutti__train_plan always = tutti__plan_of(&c, 10, 2, false, &p.at);
        tutti__train_plan two;

        assert_int_equal(always.total_steps, 12);
        p.at = (tutti__run_cursor){.step = 10, .epoch = 3};
        two = tutti__plan_of(&c, 10, 2, false, &p.at);
        assert_int_equal(two.total_steps, 16);
        for (uint64_t i = 0; i < 6; i++)
            assert_true(tutti__plan_lr(&two, &(tutti__run_cursor){.step = 10 + i}) ==
                        tutti__plan_lr(&always, &(tutti__run_cursor){.step = 6 + i}));
    }
}

static void test_restarts_are_of_epochs(void **unused)
{
    const tutti__train_config c = with_schedule("restarts");
    const tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);

    (void)unused;
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        assert_true(tutti__plan_lr(&plan, &(tutti__run_cursor){.step = 5 * epoch}) == 1);
        assert_true(tutti__plan_lr(&plan, &(tutti__run_cursor){.step = 5 * epoch + 4}) < 0.2f);
    }
}

/* Neither evaluations nor checkpoints; it ends early if the loss diverges. */
/* 5 batches an epoch: linear to 0 in 10 steps, and 0 from then on. */
static void test_shorter_schedules(void **unused)
{
    const tutti__train_config c = with_schedule("linear");
    tutti__run_cursor at = {.epoch = 1};
    const tutti__train_plan plan = tutti__plan_of(&c, 10, 1, false, &at);

    (void)unused;
    for (; at.step < plan.total_steps; at.step++) {
        const double expected = at.step < 10 ? 1 - (double)at.step / 10 : 0;

        assert_true(fabs((double)tutti__plan_lr_within(&plan, &at, 2) - expected) < 1e-6);
        assert_true(tutti__plan_lr_within(&plan, &at, (double)c.epochs) ==
                    tutti__plan_lr(&plan, &at));
    }
}

/* A run that is stopped earlier has the rates of the whole one until then. */
static void test_rates_of_stopped_runs(void **unused)
{
    tutti__train_config c = with_schedule("linear");
    tutti__run_cursor at = {.epoch = 1};
    const tutti__train_plan whole_plan = tutti__plan_of(&c, 10, 1, false, &at);
    tutti__train_plan plan;

    (void)unused;
    c.stop_after = 7;
    plan = tutti__plan_of(&c, 10, 1, false, &at);
    assert_int_equal(plan.total_steps, 7);
    for (; at.step < plan.total_steps; at.step++) {
        assert_true(tutti__plan_lr(&plan, &at) == tutti__plan_lr(&whole_plan, &at));
        assert_true(tutti__plan_lr_within(&plan, &at, 1) ==
                    tutti__plan_lr_within(&whole_plan, &at, 1));
    }
}

static void test_range_test(void **unused)
{
    tutti__train_config c = config_of(40); /* 200 steps */
    tutti__position p = tutti__position_begin();
    tutti__train_plan plan;

    (void)unused;
    c.lr_find = true;
    c.eval_every = 0;
    c.checkpoint_every = 3;
    plan = plan_at(&c, &p);
    assert_int_equal(plan.total_steps, TUTTI__LR_FIND_STEPS);
    assert_true(fabsf(tutti__plan_lr(&plan, &(tutti__run_cursor){.step = 0}) - 1e-7f) < 1e-12f);
    assert_true(fabsf(tutti__plan_lr(&plan, &(tutti__run_cursor){.step = 99}) - 10) < 1e-4f);
    assert_null(strpbrk(acts(&plan, &p, 0), "ecC"));
    assert_int_equal(p.at.step, 100);
    p = tutti__position_begin();
    assert_string_equal(acts(&plan, &p, 4), "sssslf.");
    p = tutti__position_begin();
    act(&plan, &p);
    p.finished = true;
    assert_string_equal(acts(&plan, &p, 0), "f.");
}

static void test_complete(void **unused)
{
    tutti__train_config c = config_of(1);
    tutti__position p = tutti__position_begin();
    const tutti__train_plan plan = plan_at(&c, &p);

    (void)unused;
    p.complete = true;
    assert_string_equal(acts(&plan, &p, 0), ".");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_epochs),
                                       cmocka_unit_test(test_guard),
                                       cmocka_unit_test(test_rates_of_stopped_runs),
                                       cmocka_unit_test(test_checkpoint_every),
                                       cmocka_unit_test(test_max_steps),
                                       cmocka_unit_test(test_grad_accumulation),
                                       cmocka_unit_test(test_position),
                                       cmocka_unit_test(test_signal),
                                       cmocka_unit_test(test_monitors),
                                       cmocka_unit_test(test_best),
                                       cmocka_unit_test(test_early_end),
                                       cmocka_unit_test(test_program_end),
                                       cmocka_unit_test(test_evaluations_by_steps),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_other_ranks),
                                       cmocka_unit_test(test_schedules_follow_the_samples),
                                       cmocka_unit_test(test_restarts_are_of_epochs),
                                       cmocka_unit_test(test_shorter_schedules),
                                       cmocka_unit_test(test_range_test),
                                       cmocka_unit_test(test_complete)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
