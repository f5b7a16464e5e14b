/* elastic: workers die at each point of their protocol, one and several, and the final state is that of an undisturbed run.
 * SPDX-License-Identifier: MIT
 * timeout: 180 */
#include "harness/elastic_coordinator.h"
#include "harness/elastic_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static elastic_job job;

static void run(const char *what, model_plan *plan, int n, int least_killed,
                void (*tick)(elastic_job *, void *))
{
    const uint64_t expected = model_expect(plan);
    int wrong = elastic_run(&job, &(elastic_job_opts){.n = n,
                                                      .shards = plan->shards,
                                                      .body = model_train,
                                                      .arg = plan,
                                                      .timeout_ms = 20000,
                                                      .tick = tick});

    print_message("%s: %d workers, %d killed, %u generations, %.0f ms; pause at most %.1f ms\n",
                  what, job.n_workers, job.killed, job.generation, tutti__now_ms() - job.begin_ms,
                  (double)atomic_load(&plan->pause_ns) * 1e-6);
    assert_int_equal(wrong, 0);
    assert_int_equal(atomic_load(&plan->restarts), 0); /* no committed step is lost */
    assert_true(job.killed >= least_killed);
    assert_true(atomic_load(&plan->n_digests) >= 1);
    for (int i = 0; i < atomic_load(&plan->n_digests); i++)
        assert_int_equal(plan->digests[i], expected);
    munmap(plan, sizeof *plan);
}

static model_plan *plan_of(uint64_t steps)
{
    model_plan *plan = model_plan_new();

    plan->shards = 8;
    plan->steps = steps;
    plan->numbers = 1000;
    plan->shard_us = 100;
    return plan;
}

static void nobody_dies(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n += n < 4 ? 1 : 2)
        run("undisturbed", plan_of(20), n, 0, NULL);
}

/* At each point, as rank 0 and as another rank; a second death follows a few steps later. */
static void one_in_each_place(void **state)
{
    static const char *const names[MODEL_PLACES] = {"forming", "state",   "begin",  "shard",
                                                    "reduce",  "reduced", "update", "committed",
                                                    "end",     "over"};

    (void)state;
    for (int place = 0; place < MODEL_PLACES; place++)
        for (int worker = 0; worker < 2; worker++) {
            model_plan *plan = plan_of(12);

            plan->deaths[0] =
                (model_death){.place = (model_place)place,
                              .worker = model_worker_for((model_place)place, worker),
                              .signal = SIGKILL,
                              .step = place == MODEL_REGROUP || place == MODEL_STATE ? 0
                                      : place >= MODEL_END                           ? 12
                                                                                     : 5};
            plan->deaths[1] = (model_death){MODEL_SHARD, -1, SIGKILL, 9, 0};
            run(names[place], plan, 3, 2, NULL);
        }
}

/* Worker 0 has committed one step more than worker 1, and dies while it sends the state: worker 1's own state is still intact. */
static void newest_dies_sending(void **state)
{
    (void)state;
    for (size_t numbers = 1000; numbers <= 100000; numbers *= 100) {
        model_plan *plan = plan_of(12);

        plan->numbers = numbers;
        plan->cut_worker = 2;
        plan->cut_step = 5;
        plan->deaths[0] = (model_death){MODEL_STATE, 0, SIGKILL, 6, 0};
        run("newest dies sending", plan, 2, 1, NULL);
    }
}

static void stop_when_ready(elastic_job *the_job, void *arg)
{
    static pid_t stopped;
    const elastic_worker *w = &the_job->workers[1];

    (void)arg;
    if (stopped == w->pid || (w->state != ELASTIC_WAITING && w->state != ELASTIC_IN))
        return;
    stopped = w->pid;
    kill(w->pid, SIGSTOP);
}

/* It sends no heartbeat in the group that it was about to form, so the others cannot miss one: the coordinator must end it. */
static void stopped_before_its_group(void **state)
{
    model_plan *plan = plan_of(12);

    (void)state;
    plan->heartbeat_ms = 200;
    run("stopped before its group", plan, 3, 1, stop_when_ready);
}

/* A failure local to one worker does not end the others. */
static void memory_of_one(void **state)
{
    (void)state;
    for (int in_call = 0; in_call < 2; in_call++) {
        model_plan *plan = plan_of(12);

        plan->failing_worker = 2;
        plan->failing_step = 5;
        plan->failure = in_call ? TUTTI_ERR_DEVICE : TUTTI_ERR_MEMORY;
        plan->fails_in_call = in_call;
        plan->transport = in_call ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO;
        run(in_call ? "no device" : "no memory", plan, 3, 0, NULL);
        for (int i = 0; i < job.n_workers; i++)
            assert_int_equal(job.workers[i].result, i == 1 ? 4 : 0);
    }
}

/* A failure of the program itself would recur: it ends the job on all workers, and they report it. */
static void own_failure(void **state)
{
    static const tutti_status failures[] = {TUTTI_ERR_FORMAT, TUTTI_ERR_MISMATCH};
    static const int codes[] = {1, 2};

    (void)state;
    for (size_t k = 0; k < TUTTI__COUNT_OF(failures); k++) {
        model_plan *plan = plan_of(12);
        int wrong;

        plan->failing_worker = 2;
        plan->failing_step = 5;
        plan->failure = failures[k];
        wrong = elastic_run(&job, &(elastic_job_opts){.n = 3,
                                                      .shards = plan->shards,
                                                      .body = model_train,
                                                      .arg = plan,
                                                      .timeout_ms = 10000,
                                                      .no_replacement = true,
                                                      .patient = true});
        assert_int_equal(wrong, 1);
        assert_int_equal(job.n_workers, 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(job.workers[i].result, i == 1 ? codes[k] : 3);
        assert_int_equal(atomic_load(&plan->n_digests), 0);
        munmap(plan, sizeof *plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_dies),         cmocka_unit_test(one_in_each_place),
        cmocka_unit_test(newest_dies_sending), cmocka_unit_test(stopped_before_its_group),
        cmocka_unit_test(memory_of_one),       cmocka_unit_test(own_failure)};

    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
