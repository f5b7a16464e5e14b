/* regroup.c -- how a process joins a run by shards, and follows changes of the group.
 * SPDX-License-Identifier: MIT */
#include "train/run/regroup.h"

#include "comm/bootstrap/launcher_environment.h"
#include "elastic/settings.h"
#include "train/config/agreement.h"
#include "train/session/warm_up.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Local ---------------------------------------------------------------------------------------------------- */

/* The number of ranks that share this process's cores, by the launcher's environment: there is no group to ask. Ranks bound to
 * their own cores by mpirun or srun share none. */
static tutti_status share_cores(tutti__session *s)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    tutti__env_group env;
    int n;

    TUTTI_TRY(tutti__env_group_read_ranks(&env));
    n = env.local_world_size > 0 ? env.local_world_size : 1;
    s->local_rank = env.local_rank;
    s->cores = (tutti__core_share){
        .index = env.local_rank >= n ? env.local_rank % n : env.local_rank, .n = n};
    if (tutti__env_by_mpi_launcher() && tutti__cores() < online)
        s->cores = (tutti__core_share){.index = 0, .n = 1};
    return TUTTI_OK;
}

static tutti_status open_alone(tutti__train_run *run)
{
    TUTTI_TRY(share_cores(&run->session));
    TUTTI_TRY(tutti__run_open_alone(run));
    return *tutti__env_text(TUTTI__ENV_AGENT_FD) ? tutti__warm_up(&run->session) : TUTTI_OK;
}

static tutti_status regroup(void *self, tutti_group *group);
static tutti_status move_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg);
static tutti_status take_state(void *self);
static tutti_status gather(void *self);

/* In the order in which parts move into a group: the run itself first, because it may fail. */
static tutti_status keep_all(tutti__train_run *run)
{
    const tutti_elastic_part part = {.name = "run",
                                     .regroup = regroup,
                                     .state = move_state,
                                     .loaded = take_state,
                                     .gather = gather,
                                     .differs = true, /* its times */
                                     .self = run};
    tutti__session *s = &run->session;
    tutti_ddp_opts opts = tutti__session_ddp_opts(s);

    TUTTI_TRY(tutti_elastic_keep(s->elastic, &part));
    if (run->worker->alone != TUTTI_OK)
        return TUTTI_OK;
    opts.n_counters = TUTTI__N_COUNTERS;
    TUTTI_TRY(tutti_elastic_keep_module(s->elastic, s->module, &opts, &s->ddp));
    s->zero = tutti_ddp_zero(s->ddp);
    TUTTI_TRY(tutti__session_open_optimizer(s, run->plan.schedule.warmup_steps));
    TUTTI_TRY(tutti_elastic_keep_optim(s->elastic, s->optim));
    return s->ema ? tutti_elastic_keep_ema(s->elastic, s->ema) : TUTTI_OK;
}

static tutti_status tell_settings(tutti__train_run *run)
{
    char *settings = tutti__config_settings(run->session.config);

    if (!settings)
        return TUTTI_ERR_MEMORY;
    tutti__elastic_set_settings(run->session.elastic, settings);
    free(settings);
    return TUTTI_OK;
}

static tutti_status join(tutti__train_run *run)
{
    const tutti_elastic_opts opts = {.shards = run->session.shards,
                                     .group = tutti__session_group_opts(&run->session)};
    tutti__elastic_worker *w = run->worker = tutti__alloc(sizeof *w);

    if (!w)
        return TUTTI_ERR_MEMORY;
    w->alone = open_alone(run);
    if (w->alone != TUTTI_OK)
        tutti__worker_note_failure(run);
    /* Of this process alone: others continue without it, as the launcher sees by its exit code. */
    if (*tutti__env_text(TUTTI__ENV_AGENT_FD) &&
        (w->alone == TUTTI_ERR_MEMORY || w->alone == TUTTI_ERR_DEVICE))
        return w->alone;
    TUTTI_TRY(tutti_elastic_new(&run->session.elastic, &opts));
    TUTTI_TRY(tell_settings(run));
    TUTTI_TRY(keep_all(run));
    return tutti_elastic_join(run->session.elastic);
}

/* Prints the thread's failure as this process's, once. */
static void report(tutti__session *s, tutti_status status)
{
    char message[2048];

    if (s->reported)
        return;
    snprintf(message, sizeof message, "%s", tutti_last_error());
    tutti__error_file_write(!tutti__is_lost(status), message);
    tutti__fail_again(status, message);
    if (status != TUTTI_ERR_MISMATCH || s->rank == 0) /* the same message on all ranks */
        tutti__report_error(s->rank, status == TUTTI_ERR_MISMATCH ? 1 : s->size);
    s->reported = true;
}

tutti_status tutti__worker_open(tutti__train_run *run)
{
    const tutti_status status = join(run);

    if (status == TUTTI_OK || (run->session.elastic && tutti_elastic_left(run->session.elastic)))
        return TUTTI_OK;
    report(&run->session, status);
    return status;
}

tutti_status tutti__worker_work(tutti__train_run *run)
{
    tutti_elastic *e = run->session.elastic;
    tutti_status status = tutti__run_loop(run);

    if (status == TUTTI_OK)
        status = tutti_elastic_end(e);
    tutti__progress_clear(&run->progress);
    if (status != TUTTI_OK)
        report(&run->session, status);
    else if (tutti_elastic_left(e))
        tutti_log(TUTTI_LOG_INFO, "train", "left the run after step %llu, as requested",
                  (unsigned long long)run->position.at.step);
    return status;
}

void tutti__worker_note_failure(tutti__train_run *run)
{
    snprintf(run->worker->why, sizeof run->worker->why, "%s", tutti_last_error());
}

tutti_status tutti__worker_agree(tutti__train_run *run, tutti_status status)
{
    status = tutti__fail_together_or_lose(run->session.group, status);
    run->session.reported = status != TUTTI_OK && !tutti__is_lost(status);
    return status;
}

/* ---- The run's position ----------------------------------------------------------------------------------------- */

/* This process's values, into the position; and the position's into this process. */
static void pack(tutti__train_run *run)
{
    tutti__shared_position *p = &run->position.shared;

    p->scaler = tutti_scaler_state_get(run->session.scaler);
    p->seconds = tutti__totals_seconds(&run->totals);
    p->traffic = tutti__totals_traffic(&run->totals, run->session.ddp);
    memcpy(p->time, run->totals.ledger.total, sizeof p->time);
}

static tutti_status unpack(tutti__train_run *run)
{
    const tutti__shared_position *p = &run->position.shared;
    tutti__session *s = &run->session;

    strcpy(s->config->run_dir, p->run_dir);
    strcpy(run->token, p->token);
    s->stop.signal = run->position.stop;
    s->stop.stopping = run->position.stop != 0;
    run->totals.start_ns = tutti__now_ns();
    run->totals.seconds_before = p->seconds;
    tutti__totals_set_traffic(&run->totals, p->traffic, s->ddp);
    memcpy(run->totals.ledger.total, p->time, sizeof p->time);
    tutti_ctx_set_step(s->cx, p->forwards);
    run->plan = tutti__plan_of(s->config, run->plan.count, s->shards, run->plan.evaluates,
                               &run->position.at);
    return s->scaler ? tutti_scaler_state_set(s->scaler, &p->scaler) : TUTTI_OK;
}

/* How far a worker is. What is done between two steps (a line, an evaluation, the end) may be done for some and, after a
 * death, not for others: then it counts as done. */
typedef struct reach {
    int64_t has_state, step, epoch, line, eval, stopped, ended;
    int64_t counts, since; /* shared.counts, and the worker's */
} reach;
enum { REACH = sizeof(reach) / sizeof(int64_t), COMPARED = REACH - 2 };

static int compare(const reach *a, const reach *b)
{
    const int64_t *x = &a->has_state, *y = &b->has_state;

    for (int i = 0; i < COMPARED; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* left: those of the ranks that have gone that were told to leave. A rank that was counted is counted, even if that group
 * was lost before it had the state. counts: of the furthest worker, whose numbers these are. */
static void count_workers(tutti__train_run *run, const reach *all, int64_t counts, int64_t left)
{
    tutti__shared_position *p = &run->position.shared;
    const int size = run->session.size;
    int64_t stayed = 0, gone;

    for (int r = 0; r < size; r++)
        stayed += all[r].since > 0 && all[r].since <= counts;
    p->counts = counts + 1;
    gone = p->workers > stayed ? p->workers - stayed : 0;
    left = left < gone ? left : gone;
    p->left += left;
    p->lost += gone - left;
    p->joined += size - stayed;
    p->workers = size;
}

/* All workers at the same step as the furthest one adopt its position: completely or, if it dies meanwhile, not at all. Those
 * that are behind, or new, get it with the rest of the state. */
static tutti_status adopt_position(tutti__train_run *run, const reach *all, int furthest)
{
    const reach *mine = &all[run->session.rank];
    const bool behind = !mine->has_state || mine->step < all[furthest].step;
    tutti__position *position = tutti__alloc(sizeof *position);
    tutti_status status;

    if (!position)
        return TUTTI_ERR_MEMORY;
    *position = run->position;
    status = tutti_broadcast(run->session.group, TUTTI_BUF(position, sizeof *position, TUTTI_U8),
                             furthest, NULL);
    if (status == TUTTI_OK && !behind) {
        run->position = *position;
        status = unpack(run);
    }
    free(position);
    return status;
}

static tutti_status agree_on_position(tutti__train_run *run)
{
    const uint64_t seen = tutti_elastic_get_stats(run->session.elastic).left_ranks;
    tutti__elastic_worker *w = run->worker;
    tutti__position *p = &run->position;
    tutti_group *group = run->session.group;
    const reach mine = {.has_state = w->has_state,
                        .step = (int64_t)p->at.step,
                        .epoch = p->at.epoch,
                        .line = p->line.step,
                        .eval = p->eval.step,
                        .stopped = p->stopped,
                        .ended = p->ended,
                        .counts = p->shared.counts,
                        .since = w->since};
    const size_t size = (size_t)run->session.size;
    reach *all = tutti__alloc(size * sizeof *all);
    int64_t left = w->has_state ? (int64_t)(seen - w->left_before) : 0;
    int furthest = 0;
    tutti_status status;

    if (!all)
        return TUTTI_ERR_MEMORY;
    pack(run);
    status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, REACH, TUTTI_I64),
                              TUTTI_BUF(all, REACH * size, TUTTI_I64), NULL);
    for (int r = 1; r < (int)size && status == TUTTI_OK; r++)
        if (compare(&all[r], &all[furthest]) > 0)
            furthest = r;
    if (status == TUTTI_OK && (w->since == 0 || w->since > all[furthest].counts))
        w->since = all[furthest].counts + 1; /* even if only others get to count it */
    if (status == TUTTI_OK)
        status = tutti_all_reduce(group, TUTTI_BUF(&left, 1, TUTTI_I64), TUTTI_MAX, NULL);
    if (status == TUTTI_OK)
        status = adopt_position(run, all, furthest);
    if (status == TUTTI_OK) {
        count_workers(run, all, all[furthest].counts, left);
        w->left_before = seen;
        /* rank 0 looks again whether it is there: another may have been writing it */
        p->saved_step = 0;
        p->saved_epoch = 0;
    }
    free(all);
    return status;
}

static tutti_status move_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg)
{
    tutti__train_run *run = self;

    return move(arg, TUTTI_BUF(&run->position, sizeof run->position, TUTTI_U8));
}

static tutti_status take_state(void *self)
{
    tutti__train_run *run = self;

    run->worker->has_state = true;
    return unpack(run);
}

/* ---- A new group, or none ------------------------------------------------------------------------------------------ */

/* A process that has trained no longer has the initial state; the others wait for its replacement. */
static tutti_status fail_torn(tutti__train_run *run)
{
    tutti__worker_hand_over(run);
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "no worker has the complete state any more (%s), and there is no checkpoint "
                       "yet: this worker ends too, and the run starts again (--checkpoint-every N "
                       "writes some)",
                       run->session.config->shard_copies > 1
                           ? "of a share that has died with its worker the copy has, too"
                           : "with zero, a death loses a share; shard_copies=2 keeps a copy");
}

static tutti_status begin_fresh(tutti__train_run *run)
{
    tutti__shared_position *p = &run->position.shared;
    tutti__elastic_worker *w = run->worker;
    tutti__session *s = &run->session;
    int64_t stayed = w->has_state;
    bool torn = false;
    tutti_status status;

    TUTTI_TRY(tutti_all_reduce(s->group, TUTTI_BUF(&stayed, 1, TUTTI_I64), TUTTI_SUM, NULL));
    w->has_state = false; /* until it has it */
    status = s->rank == 0 ? tutti__worker_begin_run(run, &torn) : TUTTI_OK;
    if (status != TUTTI_OK) { /* a retry starts from the beginning */
        tutti__worker_note_failure(run);
        tutti__run_folder_withdraw(&run->folder);
        tutti__worker_begin_again(run);
        status = tutti__fail_again(status, w->why);
    }
    if (torn)
        return fail_torn(run);
    TUTTI_TRY(tutti__worker_agree(run, status));
    if (tutti_elastic_has_lost_all(s->elastic) && p->workers > 0) { /* by the checkpoint */
        stayed = stayed < p->workers ? stayed : p->workers;
        p->lost += p->workers - stayed;
        p->joined += s->size - stayed;
    }
    p->workers = s->size;
    p->counts = w->since = 1;
    if (s->rank == 0) {
        w->has_state = true;
        pack(run);
    }
    return TUTTI_OK;
}

/* With ZeRO this changes the optimizer's state, which a checkpoint may be copying. */
static tutti_status gather(void *self)
{
    tutti__writer_wait_for_copy(((tutti__train_run *)self)->saving.writer);
    return TUTTI_OK;
}

static void leave(tutti__train_run *run)
{
    tutti__stop *stop = &run->session.stop;
    tutti_work *work = stop->work;

    /* Waits for it, because it writes to the session. */
    stop->work = NULL;
    if (work && tutti_work_wait(work) != TUTTI_OK)
        stop->signal = run->position.stop;
    run->session.group = NULL;
    tutti__guard_forget(run);
    if (!tutti__saving_leave(&run->saving)) { /* if this is still the step, it is saved again */
        run->worker->saved_step = 0;
        run->worker->saved_epoch = 0;
    }
    run->guard.begun = false; /* what the next group begins with */
}

static tutti_status regroup(void *self, tutti_group *group)
{
    tutti__train_run *run = self;
    tutti__session *s = &run->session;
    const tutti__elastic_worker *w = run->worker;

    if (!group) {
        leave(run);
        return TUTTI_OK;
    }
    s->group = group;
    s->rank = tutti_group_rank(group);
    s->size = tutti_group_size(group);
    s->config->world_size = s->size;
    run->job.generation = tutti__elastic_generation(s->elastic);
    if (s->rank != 0)
        tutti__worker_hand_over(run);
    TUTTI_TRY(tutti__worker_agree(run, w->alone == TUTTI_OK ? TUTTI_OK
                                                            : tutti__fail_again(w->alone, w->why)));
    TUTTI_TRY(tutti__worker_agree(run, tutti__same_config(group, s->config)));
    TUTTI_TRY(tutti__worker_agree(run, tutti__session_same_data(s)));
    tutti__gpus_close(&run->gpus);
    TUTTI_TRY(tutti__gpus_open(&run->gpus, group, tutti_ctx_device(s->cx)));
    TUTTI_TRY(tutti__worker_agree(run, tutti__ledger_resize(&run->totals.ledger, s->size)));
    run->sought.epoch = 0;
    if (tutti_elastic_is_fresh(s->elastic))
        return begin_fresh(run);
    TUTTI_TRY(agree_on_position(run));
    return tutti__worker_agree(run, s->rank == 0 ? tutti__worker_take_over(run) : TUTTI_OK);
}
