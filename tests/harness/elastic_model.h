/* elastic_model.h -- the smallest model for elastic training: integers that each step changes by sums over shards.
 * SPDX-License-Identifier: MIT
 *
 * Whichever workers die, the final state has the bits of model_expect. A worker can be made to die at each of these places. */
#ifndef TUTTI_TESTS_ELASTIC_MODEL_H
#define TUTTI_TESTS_ELASTIC_MODEL_H

#include "base/base.h"
#include "comm/engine/device_buffers.h"
#include "comm/group.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <tutti/elastic.h>

typedef enum model_place {
    MODEL_REGROUP, /* the group has been formed */
    MODEL_STATE,   /* half of the state is sent, or received */
    MODEL_BEGIN,
    MODEL_SHARD,
    MODEL_REDUCE, /* REDUCE: all shards are computed; REDUCED: and reduced, but this worker has not reported it */
    MODEL_REDUCED,
    MODEL_UPDATE, /* half of the state is changed */
    MODEL_COMMITTED,
    MODEL_END,
    MODEL_OVER,
    MODEL_PLACES
} model_place;

enum { MODEL_DEATHS = 16, MODEL_WORKERS = 256 };

/* The first worker at this place and step raises the signal, once. worker -1: any of the job's workers. */
typedef struct model_death {
    model_place place;
    int worker, signal;
    uint64_t step;
    _Atomic int happened;
} model_death;

/* Of a step's shards a slow worker may get none, and one that has replaced another may come too late for the end: any worker dies
 * there. */
static inline int model_worker_for(model_place place, int worker)
{
    return place == MODEL_SHARD || place >= MODEL_END ? -1 : worker;
}

typedef struct model_plan {
    int shards;
    uint64_t steps;
    size_t numbers;   /* of the state */
    long shard_us;    /* sleep per shard */
    int heartbeat_ms; /* of groups; 0: default */
    tutti_transport transport;
    model_death deaths[MODEL_DEATHS];
    int failing_worker; /* 1 + the one that fails once on its own, at failing_step, with `failure`; 0: none */
    uint64_t failing_step;
    tutti_status failure;
    bool fails_in_call; /* of memory or device, as a collective reports it */
    _Atomic int failed;
    int cut_worker; /* 1 + the one that once lacks the means of cut_step, though others have them; 0: none */
    uint64_t cut_step;
    _Atomic int cut;
    bool meets;              /* the loop ends with a barrier, in empty attempts too */
    _Atomic uint64_t newest; /* the highest committed step */
    _Atomic int restarts;    /* from the beginning, after that */
    _Atomic int n_digests;
    uint64_t digests[MODEL_WORKERS];        /* of workers that reached the end */
    _Atomic uint64_t committed_ns, died_ns; /* the last commit; the last death */
    _Atomic uint64_t pause_ns;              /* the longest time from a death to a commit */
    _Atomic int forms;
    _Atomic uint64_t forming_ns; /* total time in join */
} model_plan;

typedef struct model_worker {
    model_plan *plan;
    int place;
    tutti_elastic *e;
    tutti_group *group;
    uint64_t *x;
    int64_t *sums; /* of each number, and of shards */
} model_worker;

static inline model_plan *model_plan_new(void)
{
    model_plan *plan =
        mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (plan == MAP_FAILED)
        abort();
    return plan;
}

static inline uint64_t model_mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    return (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
}

static inline void model_begin(uint64_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = model_mix(i + 1);
}

static inline void model_shard(const uint64_t *x, size_t n, uint64_t step, int shard, int64_t *sums)
{
    const uint64_t key = model_mix(step * 5000 + (uint64_t)shard + 1);

    for (size_t i = 0; i < n; i++)
        sums[i] = (int64_t)((uint64_t)sums[i] + model_mix(x[i] ^ key));
}

static inline void model_update(uint64_t *x, size_t first, size_t end, const int64_t *sums)
{
    for (size_t i = first; i < end; i++)
        x[i] = model_mix(x[i]) + (uint64_t)sums[i];
}

static inline uint64_t model_expect(const model_plan *plan)
{
    uint64_t *x = calloc(plan->numbers, sizeof *x), digest;
    int64_t *sums = calloc(plan->numbers, sizeof *sums);

    if (!x || !sums)
        abort();
    model_begin(x, plan->numbers);
    for (uint64_t step = 0; step < plan->steps; step++) {
        memset(sums, 0, plan->numbers * sizeof *sums);
        for (int v = 0; v < plan->shards; v++)
            model_shard(x, plan->numbers, step, v, sums);
        model_update(x, 0, plan->numbers, sums);
    }
    digest = tutti__hash64(x, plan->numbers * sizeof *x);
    free(x);
    free(sums);
    return digest;
}

static inline void model_pass(model_worker *w, model_place place)
{
    const uint64_t step = tutti_elastic_step(w->e);

    for (int i = 0; i < MODEL_DEATHS; i++) {
        model_death *d = &w->plan->deaths[i];

        if (d->signal == 0 || d->place != place || (d->worker >= 0 && d->worker != w->place) ||
            d->step > step || atomic_exchange(&d->happened, 1))
            continue;
        atomic_store(&w->plan->died_ns, tutti__now_ns());
        raise(d->signal);
    }
}

static inline tutti_status model_regroup(void *self, tutti_group *group)
{
    model_worker *w = self;

    w->group = group;
    if (!group)
        return TUTTI_OK;
    if (tutti_elastic_is_fresh(w->e) && atomic_load(&w->plan->newest) > 0)
        atomic_fetch_add(&w->plan->restarts, 1);
    model_pass(w, MODEL_REGROUP);
    return TUTTI_OK;
}

static inline tutti_status model_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                                       void *arg)
{
    model_worker *w = self;
    const size_t half = w->plan->numbers / 2;

    TUTTI_TRY(move(arg, TUTTI_BUF(w->x, half * 8, TUTTI_U8)));
    model_pass(w, MODEL_STATE);
    return move(arg, TUTTI_BUF(w->x + half, (w->plan->numbers - half) * 8, TUTTI_U8));
}

static inline tutti_status model_begin_step(void *self)
{
    model_worker *w = self;

    memset(w->sums, 0, (w->plan->numbers + 1) * sizeof *w->sums);
    model_pass(w, MODEL_BEGIN);
    return TUTTI_OK;
}

static inline tutti_status model_finish(void *self, bool *again_p)
{
    model_worker *w = self;

    (void)again_p;
    model_pass(w, MODEL_REDUCE);
    TUTTI_TRY(tutti_all_reduce(w->group, TUTTI_BUF(w->sums, w->plan->numbers + 1, TUTTI_I64),
                               TUTTI_SUM, NULL));
    model_pass(w, MODEL_REDUCED);
    if (w->plan->cut_worker == w->place + 1 && w->plan->cut_step == tutti_elastic_step(w->e) &&
        !atomic_exchange(&w->plan->cut, 1))
        return tutti_fail(TUTTI_ERR_PEER, "cut off, for a test");
    if (w->sums[w->plan->numbers] != w->plan->shards)
        return tutti_fail(TUTTI_ERR_STATE, "%lld of %d shards were computed",
                          (long long)w->sums[w->plan->numbers], w->plan->shards);
    return TUTTI_OK;
}

/* The program's own failure. */
static inline tutti_status model_fail(model_worker *w)
{
    model_plan *plan = w->plan;

    if (plan->failing_worker != w->place + 1 || plan->failing_step != tutti_elastic_step(w->e) ||
        atomic_exchange(&plan->failed, 1))
        return TUTTI_OK;
    (void)tutti_fail(plan->failure, "of its own, for a test");
    return plan->fails_in_call ? tutti__devices_fail(&w->group->comm) : plan->failure;
}

static inline void model_compute(model_worker *w, int shard)
{
    model_pass(w, MODEL_SHARD);
    if (w->plan->shard_us > 0)
        nanosleep(&(struct timespec){0, w->plan->shard_us * 1000}, NULL);
    model_shard(w->x, w->plan->numbers, tutti_elastic_step(w->e), shard, w->sums);
    w->sums[w->plan->numbers]++;
}

static inline void model_change(model_worker *w)
{
    const size_t half = w->plan->numbers / 2;
    uint64_t died, pause, longest;

    model_update(w->x, 0, half, w->sums);
    model_pass(w, MODEL_UPDATE);
    model_update(w->x, half, w->plan->numbers, w->sums);
    tutti_elastic_commit(w->e);
    longest = atomic_load(&w->plan->newest);
    while (tutti_elastic_step(w->e) > longest &&
           !atomic_compare_exchange_weak(&w->plan->newest, &longest, tutti_elastic_step(w->e)))
        ;
    died = atomic_exchange(&w->plan->died_ns, 0);
    pause = died ? tutti__now_ns() - died : 0;
    longest = atomic_load(&w->plan->pause_ns);
    while (pause > longest && !atomic_compare_exchange_weak(&w->plan->pause_ns, &longest, pause))
        ;
    model_pass(w, MODEL_COMMITTED);
}

/* The program's own collective between steps. */
static inline tutti_status model_meet(model_worker *w)
{
    return w->plan->meets && w->group ? tutti_barrier(w->group, NULL) : TUTTI_OK;
}

/* A worker's life: its exit code. */
static inline int model_train(int place, void *arg)
{
    model_plan *plan = arg;
    model_worker w = {.plan = plan,
                      .place = place,
                      .x = calloc(plan->numbers, sizeof *w.x),
                      .sums = calloc(plan->numbers + 1, sizeof *w.sums)};
    tutti_status status;
    int shard;

    if (!w.x || !w.sums ||
        tutti_elastic_new(&w.e, &(tutti_elastic_opts){.shards = plan->shards,
                                                      .group = {.heartbeat_ms = plan->heartbeat_ms,
                                                                .transport = plan->transport}}) !=
            TUTTI_OK ||
        tutti_elastic_keep(w.e, &(tutti_elastic_part){.name = "model",
                                                      .regroup = model_regroup,
                                                      .state = model_state,
                                                      .begin = model_begin_step,
                                                      .finish = model_finish,
                                                      .self = &w}) != TUTTI_OK) {
        fprintf(stderr, "place %d: %s\n", place, tutti_last_error());
        return 2;
    }
    model_begin(w.x, plan->numbers);
    while (tutti_elastic_step(w.e) < plan->steps && tutti_elastic_begin(w.e)) {
        while ((shard = tutti_elastic_shard(w.e)) >= 0)
            model_compute(&w, shard);
        status = model_fail(&w);
        if (status != TUTTI_OK && tutti_elastic_recover(w.e, status))
            return 99;
        if (tutti_elastic_finish(w.e))
            model_change(&w);
        status = model_meet(&w);
        if (status != TUTTI_OK && !tutti_elastic_recover(w.e, status))
            break;
    }
    model_pass(&w, MODEL_END);
    status = tutti_elastic_end(w.e);
    if (status != TUTTI_OK)
        fprintf(stderr, "place %d, step %llu: %s\n", place,
                (unsigned long long)tutti_elastic_step(w.e), tutti_last_error());
    else if (!tutti_elastic_left(w.e))
        plan->digests[atomic_fetch_add(&plan->n_digests, 1)] =
            tutti__hash64(w.x, plan->numbers * sizeof *w.x);
    model_pass(&w, MODEL_OVER);
    tutti_elastic_free(w.e);
    free(w.x);
    free(w.sums);
    return tutti_status_exit_code(status);
}

#endif
