/* elastic_chaos.h -- elastic jobs in which workers are killed, frozen, added and sent away at random moments, by a seed; shared by
 * the short and the long test.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_ELASTIC_CHAOS_H
#define TUTTI_TESTS_ELASTIC_CHAOS_H

#include "harness/elastic_coordinator.h"
#include "harness/elastic_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* Probability of each event, in 1/1000 per tick of the coordinator, of which there is about one per millisecond. */
typedef struct chaos {
    int kill, kill_most, freeze, join, leave;
    int most; /* total of all events */
    int least_workers;
} chaos;

static elastic_job chaos_job;
static chaos chaos_now;
static uint64_t chaos_seed;
static uint32_t chaos_looks;
static int chaos_done, chaos_joins, chaos_leaves, chaos_frozen;

static elastic_worker *chaos_pick(elastic_job *job, uint32_t dice)
{
    elastic_worker *alive[ELASTIC_MAX_WORKERS];
    uint32_t n = 0;

    for (int i = 0; i < job->n_workers; i++)
        if (job->workers[i].state < ELASTIC_ENDING)
            alive[n++] = &job->workers[i];
    return n > 0 ? alive[dice % n] : NULL;
}

static int chaos_alive(const elastic_job *job)
{
    int n = 0;

    for (int i = 0; i < job->n_workers; i++)
        n += job->workers[i].state < ELASTIC_ENDING && !job->workers[i].sent_away;
    return n;
}

/* Whether another living worker runs: a job whose workers are all stopped waits to be continued. */
static bool chaos_can_freeze(const elastic_job *job, const elastic_worker *w)
{
    for (int i = 0; i < job->n_workers; i++)
        if (&job->workers[i] != w && job->workers[i].state < ELASTIC_ENDING &&
            !job->workers[i].frozen)
            return w->state == ELASTIC_IN;
    return false;
}

/* Kills all but one, which has the state if any worker has. */
static void chaos_kill_most(elastic_job *job)
{
    const elastic_worker *spared = NULL;

    for (int i = 0; i < job->n_workers; i++) {
        const elastic_worker *w = &job->workers[i];

        if (w->state < ELASTIC_ENDING && (!spared || w->step > spared->step))
            spared = w;
    }
    for (int i = 0; i < job->n_workers; i++)
        if (job->workers[i].state < ELASTIC_ENDING && &job->workers[i] != spared)
            kill(job->workers[i].pid, SIGKILL);
}

static void chaos_tick(elastic_job *job, void *arg)
{
    const chaos *c = &chaos_now;
    model_plan *plan = arg;
    elastic_worker *w;
    uint32_t dice[4];
    int at;

    tutti__philox(chaos_seed, (tutti__philox_counter){{chaos_looks++, 0, 0, 7}}, dice);
    at = (int)(dice[0] % 1000);
    w = chaos_pick(job, dice[1]);
    if (chaos_done >= c->most || job->finished || !w ||
        at >= c->kill + c->kill_most + c->freeze + c->join + c->leave)
        return;
    chaos_done++;
    if ((at -= c->kill) < 0) {
        atomic_store(&plan->died_ns, tutti__now_ns());
        kill(w->pid, SIGKILL);
    } else if ((at -= c->kill_most) < 0) {
        atomic_store(&plan->died_ns, tutti__now_ns());
        chaos_kill_most(job);
    } else if ((at -= c->freeze) < 0) {
        if (chaos_can_freeze(job, w)) { /* the others wait for it */
            chaos_frozen += !w->frozen;
            w->frozen = true;
            kill(w->pid, SIGSTOP);
        }
    } else if ((at -= c->join) < 0) {
        chaos_joins++;
        elastic_start(job);
    } else if (at < c->leave && chaos_alive(job) > c->least_workers) {
        chaos_leaves++;
        elastic_tell_leave(w);
    }
}

/* One job; the state at the end is the undisturbed one. */
static void chaos_run(const char *what, const chaos *c, model_plan *plan, int n, uint64_t seed)
{
    const uint64_t expected = model_expect(plan);
    int wrong;

    chaos_now = *c;
    chaos_seed = seed;
    chaos_looks = 0;
    chaos_done = chaos_joins = chaos_leaves = chaos_frozen = 0;
    wrong = elastic_run(&chaos_job, &(elastic_job_opts){.n = n,
                                                        .shards = plan->shards,
                                                        .body = model_train,
                                                        .arg = plan,
                                                        .timeout_ms = 40000,
                                                        .tick = chaos_tick});
    print_message(
        "%s, seed %llu: %d workers, %d killed (%d frozen), %d joined, %d left, %u generations "
        "of at most %d, %.0f ms, pause at most %.1f ms\n",
        what, (unsigned long long)seed, chaos_job.n_workers, chaos_job.killed, chaos_frozen,
        chaos_joins, chaos_job.left, chaos_job.generation, chaos_job.longest,
        tutti__now_ms() - chaos_job.begin_ms, (double)atomic_load(&plan->pause_ns) * 1e-6);
    assert_int_equal(wrong, 0);
    assert_true(atomic_load(&plan->n_digests) >= 1);
    for (int i = 0; i < atomic_load(&plan->n_digests); i++)
        assert_int_equal(plan->digests[i], expected);
    munmap(plan, sizeof *plan);
}

static model_plan *chaos_plan(uint64_t steps, size_t numbers, long shard_us)
{
    model_plan *plan = model_plan_new();

    plan->shards = 8;
    plan->steps = steps;
    plan->numbers = numbers;
    plan->shard_us = shard_us;
    return plan;
}

#endif
