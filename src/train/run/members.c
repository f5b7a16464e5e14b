/* members.c -- how a process becomes a member of a run by shards, and follows changes of the group.
 * SPDX-License-Identifier: MIT */
#include "train/run/members.h"

#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include "comm/bootstrap/environment.h"
#include "train/session/agree.h"
#include "train/session/amp.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* for a killed rank 0 to end; a member has released the folder before */
    SUCCESSION_MS = 2000
};

/* ---- Local ---------------------------------------------------------------------------------------------------- */

/* The number of ranks that share this process's cores, by the launcher's environment: there is no group to ask. Ranks bound to
 * their own cores by mpirun or srun share none. */
static tutti_status share_cores(tutti__run *run)
{
    tutti__env_group env;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);

    TUTTI_TRY(tutti__env_group_read_ranks(&env));
    run->local_rank = env.local_rank;
    run->cores = (tutti__core_share){.index = env.local_rank,
                                     .n = env.local_world_size > 0 ? env.local_world_size : 1};
    if (run->cores.index >= run->cores.n)
        run->cores.index %= run->cores.n;
    if (tutti__env_by_mpi_launcher() && tutti__cores() < online)
        run->cores = (tutti__core_share){.index = 0, .n = 1};
    return TUTTI_OK;
}

static tutti_status open_alone(tutti__run *run)
{
    TUTTI_TRY(share_cores(run));
    TUTTI_TRY(tutti__run_open_alone(run));
    TUTTI_TRY(tutti__ledger_open(&run->ledger, 1, (uint64_t)run->config->log_every));
    TUTTI_TRY(tutti__run_open_trace(run));
    return *tutti__env_text(TUTTI__ENV_AGENT_FD) ? tutti__warm_up(run) : TUTTI_OK;
}

static tutti_status regroup(void *self, tutti_group *group);
static tutti_status move_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg);
static tutti_status take_state(void *self);
static tutti_status gather(void *self);

/* In the order in which parts move into a group: the run itself first, because it may fail. */
static tutti_status keep_all(tutti__run *run)
{
    const tutti_elastic_part part = {.name = "run",
                                     .regroup = regroup,
                                     .state = move_state,
                                     .loaded = take_state,
                                     .gather = gather,
                                     .self = run};
    tutti_ddp_opts opts = tutti__run_ddp_opts(run);

    TUTTI_TRY(tutti_elastic_keep(run->elastic, &part));
    if (run->members->alone != TUTTI_OK)
        return TUTTI_OK;
    opts.n_counters = TUTTI__N_COUNTERS;
    TUTTI_TRY(tutti_elastic_keep_module(run->elastic, run->module, &opts, &run->ddp));
    if (run->config->zero)
        TUTTI_TRY(tutti_zero_new(&run->zero, run->ddp));
    TUTTI_TRY(tutti__run_open_optimizer(run));
    return tutti_elastic_keep_optim(run->elastic, run->optim);
}

static tutti_status join(tutti__run *run)
{
    const tutti_elastic_opts opts = {.shards = run->shards, .group = tutti__run_group_opts(run)};

    run->members = tutti__alloc(sizeof *run->members);
    if (!run->members)
        return TUTTI_ERR_MEMORY;
    run->members->alone = open_alone(run);
    if (run->members->alone != TUTTI_OK)
        snprintf(run->members->why, sizeof run->members->why, "%s", tutti_last_error());
    /* Of this process alone: others continue without it, as the launcher sees by its exit code. */
    if (*tutti__env_text(TUTTI__ENV_AGENT_FD) &&
        (run->members->alone == TUTTI_ERR_MEMORY || run->members->alone == TUTTI_ERR_DEVICE))
        return run->members->alone;
    TUTTI_TRY(tutti_elastic_new(&run->elastic, &opts));
    TUTTI_TRY(keep_all(run));
    return tutti_elastic_join(run->elastic);
}

tutti_status tutti__members_open(tutti__run *run)
{
    const tutti_status status = join(run);

    if (status == TUTTI_OK || (run->elastic && tutti_elastic_left(run->elastic)))
        return TUTTI_OK;
    if (!run->told)
        tutti__members_say(run, status);
    return status;
}

void tutti__members_say(tutti__run *run, tutti_status status)
{
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    tutti__error_file_write(!tutti__is_lost(status), message);
    tutti__fail_again(status, message);
    if (status != TUTTI_ERR_MISMATCH || run->rank == 0) /* the same message on all ranks */
        tutti__say_error(run->rank, status == TUTTI_ERR_MISMATCH ? 1 : run->size);
    run->told = true;
}

tutti_status tutti__members_agree(tutti__run *run, tutti_status status)
{
    status = tutti__fail_together_or_lose(run->group, status);
    run->told = status != TUTTI_OK && !tutti__is_lost(status);
    return status;
}

/* ---- The run's position ----------------------------------------------------------------------------------------- */

/* Stores changing values in run->kept, so that other ranks can continue from them. */
static void pack(tutti__run *run)
{
    tutti__kept *k = &run->kept;

    k->scaler = tutti_scaler_state_get(run->scaler);
    k->seconds = tutti__run_seconds(run);
    k->traffic = tutti__run_traffic(run);
    memcpy(k->time, run->ledger.total, sizeof k->time);
}

/* Takes `traffic` as the run's total so far; this process's own earlier traffic is included in it, or was not of this run. */
static void count_traffic_from(tutti__run *run, tutti_traffic traffic)
{
    tutti_traffic own;

    run->traffic_before = (tutti_traffic){0};
    own = tutti__run_traffic(run);
    run->traffic_before =
        (tutti_traffic){.gradient_bytes = traffic.gradient_bytes - own.gradient_bytes,
                        .wire_bytes = traffic.wire_bytes - own.wire_bytes};
}

static tutti_status unpack(tutti__run *run)
{
    const tutti__position at = {.step = run->at.step,
                                .epoch = run->at.epoch,
                                .start = run->at.start,
                                .batch = run->at.batch};
    const tutti__kept *k = &run->kept;

    strcpy(run->config->run_dir, k->run_dir);
    strcpy(run->token, k->token);
    run->signalled = k->signalled;
    run->stopping = k->signalled != 0;
    run->start_ns = tutti__now_ns();
    run->seconds_before = k->seconds;
    count_traffic_from(run, k->traffic);
    memcpy(run->ledger.total, k->time, sizeof k->time);
    tutti_ctx_set_step(run->cx, k->forwards);
    tutti__plan(run, &at);
    return run->scaler ? tutti_scaler_state_set(run->scaler, &k->scaler) : TUTTI_OK;
}

/* How far a member is. What is done between two steps (a line, an evaluation, the end) may be done for some members and, after
 * a death, not for others: then it counts as done. */
typedef struct reach {
    int64_t member, step, epoch, line, eval, ended;
    int64_t counts, since; /* tutti__kept's and tutti__members' */
} reach;
enum { REACH = sizeof(reach) / sizeof(int64_t), COMPARED = REACH - 2 };

static int compare(const reach *a, const reach *b)
{
    const int64_t *x = &a->member, *y = &b->member;

    for (int i = 0; i < COMPARED; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* left: those of the ranks that have gone that were told to leave. A rank that was counted is counted, even if that group
 * was lost before it had the state. counts: of the furthest member, whose numbers these are. */
static void count_members(tutti__run *run, const reach *all, int64_t counts, int64_t left)
{
    tutti__kept *k = &run->kept;
    int64_t stayed = 0, gone;

    for (int r = 0; r < run->size; r++)
        stayed += all[r].since > 0 && all[r].since <= counts;
    k->counts = counts + 1;
    gone = k->members > stayed ? k->members - stayed : 0;
    left = left < gone ? left : gone;
    k->left += left;
    k->lost += gone - left;
    k->joined += run->size - stayed;
    k->members = run->size;
}

/* All members at the same step as the furthest one adopt its position: completely or, if it dies meanwhile, not at all. Members
 * that are behind, or new, get it with the rest of the state. */
static tutti_status take_place(tutti__run *run, const reach *all, int furthest)
{
    const reach *mine = &all[run->rank];
    const bool behind = !mine->member || mine->step < all[furthest].step;
    struct place {
        tutti__standing at;
        tutti__kept kept;
    } *place = tutti__alloc(sizeof *place);
    tutti_status status;

    if (!place)
        return TUTTI_ERR_MEMORY;
    place->at = run->at;
    place->kept = run->kept;
    status = tutti_broadcast(run->group, TUTTI_BUF(place, sizeof *place, TUTTI_U8), furthest, NULL);
    if (status == TUTTI_OK && !behind) {
        run->at = place->at;
        run->kept = place->kept;
        status = unpack(run);
    }
    free(place);
    return status;
}

static tutti_status agree_on_place(tutti__run *run)
{
    tutti__members *m = run->members;
    const uint64_t seen = tutti_elastic_get_stats(run->elastic).left_ranks;
    const reach mine = {.member = m->is_member,
                        .step = (int64_t)run->at.step,
                        .epoch = run->at.epoch,
                        .line = run->kept.line.step,
                        .eval = run->kept.eval.step,
                        .ended = run->kept.ended,
                        .counts = run->kept.counts,
                        .since = m->since};
    reach *all = tutti__alloc((size_t)run->size * sizeof *all);
    int64_t left = m->is_member ? (int64_t)(seen - m->left_before) : 0;
    int furthest = 0;
    tutti_status status;

    if (!all)
        return TUTTI_ERR_MEMORY;
    pack(run);
    status = tutti_all_gather(run->group, TUTTI_CONST_BUF(&mine, REACH, TUTTI_I64),
                              TUTTI_BUF(all, REACH * (size_t)run->size, TUTTI_I64), NULL);
    for (int r = 1; r < run->size && status == TUTTI_OK; r++)
        if (compare(&all[r], &all[furthest]) > 0)
            furthest = r;
    if (status == TUTTI_OK && (m->since == 0 || m->since > all[furthest].counts))
        m->since = all[furthest].counts + 1; /* even if only others get to count it */
    if (status == TUTTI_OK)
        status = tutti_all_reduce(run->group, TUTTI_BUF(&left, 1, TUTTI_I64), TUTTI_MAX, NULL);
    if (status == TUTTI_OK)
        status = take_place(run, all, furthest);
    if (status == TUTTI_OK) {
        count_members(run, all, all[furthest].counts, left);
        m->left_before = seen;
    }
    free(all);
    return status;
}

static tutti_status move_state(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg)
{
    tutti__run *run = self;

    TUTTI_TRY(move(arg, TUTTI_BUF(&run->at, sizeof run->at, TUTTI_U8)));
    return move(arg, TUTTI_BUF(&run->kept, sizeof run->kept, TUTTI_U8));
}

static tutti_status take_state(void *self)
{
    tutti__run *run = self;

    run->members->is_member = true;
    return unpack(run);
}

/* ---- The run folder --------------------------------------------------------------------------------------------- */

static void say_taken_over(tutti__run *run)
{
    tutti__progress_say(&run->progress,
                        "the rank that wrote %s is gone: this rank takes over after step %llu",
                        run->folder.path, (unsigned long long)run->at.step);
}

void tutti__members_write_lines(tutti__run *run)
{
    const tutti__kept *k = &run->kept;
    tutti__members *m = run->members;

    if (!tutti__run_lock_is_held(&run->folder.lock, run->folder.path))
        return;
    if (k->line.step > m->line) {
        tutti__logs_step(&run->logs, &k->line);
        tutti__run_tell_step(run, &k->line);
        m->line = k->line.step;
    }
    if (k->eval.step > m->eval) {
        tutti__logs_eval(&run->logs, &k->eval);
        tutti__run_tell_eval(run, &k->eval);
        m->eval = k->eval.step;
    }
}

static uint64_t later(int64_t step, uint64_t than)
{
    return (uint64_t)step > than ? (uint64_t)step : than;
}

/* A host that was disconnected must not undo a run that the others have finished meanwhile. */
static bool is_finished_by_others(const tutti__run *run)
{
    char path[TUTTI__CONFIG_TEXT + 16];
    const char *status;
    json_t *summary;
    bool finished;

    snprintf(path, sizeof path, "%s/summary.json", run->folder.path);
    summary = tutti__json_read(path, 0, NULL);
    status = json_string_value(json_object_get(summary, "status"));
    finished = status && strcmp(status, "completed") == 0 &&
               json_integer_value(json_object_get(summary, "steps")) > (json_int_t)run->at.step;
    json_decref(summary);
    return finished;
}

/* Continues the run folder: its last checkpoint, and lines that the previous rank 0 did not write. */
static tutti_status continue_folder(tutti__run *run)
{
    const tutti__kept *k = &run->kept;
    tutti__logged logged = {.step = later(k->line.step, k->begun_at),
                            .eval = later(k->eval.step, k->begun_at),
                            .system = run->at.step};
    char dir[4096];
    uint64_t *steps;
    size_t n;

    TUTTI_TRY(tutti__run_folder_take_over(&run->folder, run->at.step, &logged));
    TUTTI_TRY(tutti__run_folder_checkpoints(&run->folder, dir));
    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    run->saved_step = n > 0 ? steps[0] : 0;
    free(steps);
    tutti__logs_begin(&run->logs, &run->folder, run->config, run->parts->title, &run->gpus,
                      run->at.step);
    run->members->line = (int64_t)logged.step;
    run->members->eval = (int64_t)logged.eval;
    tutti__members_write_lines(run);
    return TUTTI_OK;
}

/* Another process is rank 0, now or was in between. */
static void hand_over(tutti__run *run)
{
    if (run->folder.lock.fd < 0)
        return;
    tutti__run_checkpoint_close(run);
    tutti__logs_leave(&run->logs, tutti__run_lock_is_held(&run->folder.lock, run->folder.path));
    tutti__run_folder_close(&run->folder);
    tutti__progress_clear(&run->progress);
    tutti__progress_init(&run->progress, NULL, run->config->progress);
    run->members->saved_epoch = 0;
}

/* A process that still has the lock is no member of this group: it is ending, frozen or disconnected. */
static bool take_lock(tutti__run *run)
{
    tutti__run_lock *lock = &run->folder.lock;
    const char *path = run->folder.path;

    return tutti__run_lock_inherit(lock, path, run->token, &run->job, SUCCESSION_MS) ||
           tutti__run_lock_seize(lock, path, run->token, &run->job);
}

static tutti_status take_over(tutti__run *run)
{
    /* All results are written: continuing the folder would remove its summary. */
    if (run->kept.ended || run->kept.complete)
        return TUTTI_OK;
    if (tutti__run_lock_is_held(&run->folder.lock, run->folder.path)) {
        tutti__members_write_lines(run);
        return TUTTI_OK;
    }
    hand_over(run);
    strcpy(run->folder.path, run->config->run_dir);
    if (!take_lock(run))
        return tutti__fail(TUTTI_ERR_STATE,
                           "rank 0 is gone, and the new rank 0 cannot lock the run folder %s: put "
                           "the folder on a file system that all hosts share, at the same path",
                           run->folder.path);
    tutti__progress_init(&run->progress, stdout, run->config->progress);
    if (is_finished_by_others(run)) {
        tutti__progress_say(&run->progress,
                            "the run was completed by others, while this worker was cut off after "
                            "step %llu",
                            (unsigned long long)run->at.step);
        run->kept.complete = true;
        return TUTTI_OK;
    }
    TUTTI_TRY(continue_folder(run));
    say_taken_over(run);
    return TUTTI_OK;
}

/* This process has trained, and its state is lost: resets everything. */
static void begin_again(tutti__run *run)
{
    tutti__kept *k = &run->kept;

    hand_over(run);
    tutti__resume_free(&run->resume);
    run->resume = (tutti__resume){0};
    *k = (tutti__kept){0};
    run->at =
        (tutti__standing){.epoch = 1, .val_loss = NAN, .val_accuracy = NAN, .shown_loss = NAN};
    run->saved_step = 0;
    run->members->line = run->members->eval = 0;
    run->stopping = false;
    run->signalled = 0;
    run->seconds_before = 0;
    run->start_ns = tutti__now_ns();
}

/* Rank 0's initial state, from which all ranks begin. *torn_p: it has none. */
static tutti_status open_beginning(tutti__run *run, bool *torn_p)
{
    const bool torn = tutti_elastic_is_torn(run->elastic);
    tutti__kept *k = &run->kept;

    if (torn)
        begin_again(run);
    if (run->folder.lock.fd >= 0) /* done before, in a group that failed */
        return TUTTI_OK;
    tutti__progress_init(&run->progress, stdout, run->config->progress);
    if (torn || tutti_elastic_has_lost_all(run->elastic)) /* as after a restart by the launcher */
        run->job.restarted = true;
    TUTTI_TRY(tutti__run_open_files(run));
    *torn_p = torn && !run->resume.found;
    if (*torn_p)
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_load_init(run));
    TUTTI_TRY(tutti__resume_apply_alone(run));
    k->begun_at = run->at.step;
    strcpy(k->run_dir, run->config->run_dir);
    strcpy(k->token, run->token);
    if (!run->resume.found)
        k->from = (tutti__position){.epoch = 1};
    count_traffic_from(run, run->traffic_before);
    tutti_elastic_set_step(run->elastic, run->at.step);
    if (torn)
        tutti__progress_say(&run->progress,
                            "a worker was lost, and with it its share of the optimizer's state: "
                            "resumed from %s",
                            run->resume.path);
    if (run->resume.complete)
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_begin_folder(run));
    tutti__logs_begin(&run->logs, &run->folder, run->config, run->parts->title, &run->gpus,
                      run->at.step);
    return TUTTI_OK;
}

/* A process that has trained no longer has the initial state; the others wait for its replacement. */
static tutti_status fail_torn(tutti__run *run)
{
    hand_over(run);
    return tutti__fail(
        TUTTI_ERR_MEMORY,
        "no worker has the complete state any more (with zero=1, a death loses a share), and there "
        "is no checkpoint yet: this worker ends too, and the run starts again "
        "(--checkpoint-every N writes some)");
}

static tutti_status begin_fresh(tutti__run *run)
{
    tutti__kept *k = &run->kept;
    int64_t stayed = run->members->is_member;
    bool torn = false;
    tutti_status status;

    TUTTI_TRY(tutti_all_reduce(run->group, TUTTI_BUF(&stayed, 1, TUTTI_I64), TUTTI_SUM, NULL));
    run->members->is_member = false; /* until it has the state */
    status = run->rank == 0 ? open_beginning(run, &torn) : TUTTI_OK;
    if (status != TUTTI_OK) { /* a retry starts from the beginning */
        snprintf(run->members->why, sizeof run->members->why, "%s", tutti_last_error());
        tutti__run_folder_withdraw(&run->folder);
        begin_again(run);
        status = tutti__fail_again(status, run->members->why);
    }
    if (torn)
        return fail_torn(run);
    TUTTI_TRY(tutti__members_agree(run, status));
    if (tutti_elastic_has_lost_all(run->elastic)) {
        stayed = stayed < k->members ? stayed : k->members;
        k->lost += k->members - stayed;
        k->joined += run->size - stayed;
    }
    k->members = run->size;
    k->counts = run->members->since = 1;
    if (run->rank == 0) {
        run->members->is_member = true;
        pack(run);
    }
    return TUTTI_OK;
}

/* ---- A new group, or none ------------------------------------------------------------------------------------------ */

/* With ZeRO this changes the optimizer's state, which a checkpoint may be copying. */
static tutti_status gather(void *self)
{
    tutti__writer_wait_for_copy(((tutti__run *)self)->saving.writer);
    return TUTTI_OK;
}

static void leave(tutti__run *run)
{
    tutti_work *work = run->signal_work;

    /* Waits for it, because it writes to run. */
    run->signal_work = NULL;
    if (work && tutti_work_wait(work) != TUTTI_OK)
        run->signalled = run->kept.signalled;
    run->group = NULL;
    (void)!gather(run);
}

static tutti_status regroup(void *self, tutti_group *group)
{
    tutti__run *run = self;
    const tutti__members *m = run->members;

    if (!group) {
        leave(run);
        return TUTTI_OK;
    }
    run->group = group;
    run->rank = tutti_group_rank(group);
    run->size = tutti_group_size(group);
    run->config->world_size = run->size;
    if (run->rank != 0)
        hand_over(run);
    TUTTI_TRY(tutti__members_agree(
        run, m->alone == TUTTI_OK ? TUTTI_OK : tutti__fail_again(m->alone, m->why)));
    TUTTI_TRY(tutti__members_agree(run, tutti__same_config(group, run->config)));
    TUTTI_TRY(tutti__members_agree(run, tutti__run_same_data(run)));
    tutti__gpus_close(&run->gpus);
    TUTTI_TRY(tutti__gpus_open(&run->gpus, group, tutti_ctx_device(run->cx)));
    TUTTI_TRY(tutti__members_agree(run, tutti__ledger_resize(&run->ledger, run->size)));
    run->members->sought = false;
    if (tutti_elastic_is_fresh(run->elastic))
        return begin_fresh(run);
    TUTTI_TRY(agree_on_place(run));
    return tutti__members_agree(run, run->rank == 0 ? take_over(run) : TUTTI_OK);
}
