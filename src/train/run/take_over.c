/* take_over.c -- the run folder of a run by shards: who begins it, and who writes it next.   SPDX-License-Identifier: MIT */
#include "train/run/regroup.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* for a killed rank 0 to end; a worker that leaves has released the folder before */
    SUCCESSION_MS = 2000
};

static uint64_t later(int64_t step, uint64_t than)
{
    return (uint64_t)step > than ? (uint64_t)step : than;
}

/* A host that was disconnected must not undo a run that the others have finished meanwhile. */
static bool is_finished_by_others(const tutti__train_run *run)
{
    char path[TUTTI__CONFIG_TEXT + 16];
    const char *status;
    json_t *summary;
    bool finished;

    snprintf(path, sizeof path, "%s/summary.json", run->folder.path);
    summary = tutti__json_read(path, 0, NULL);
    status = json_string_value(json_object_get(summary, "status"));
    finished =
        status && strcmp(status, "completed") == 0 &&
        (uint64_t)json_integer_value(json_object_get(summary, "steps")) > run->position.at.step;
    json_decref(summary);
    return finished;
}

/* Continues the run folder: its last checkpoint, and lines that the previous rank 0 did not write. */
static tutti_status continue_folder(tutti__train_run *run)
{
    const tutti__position *p = &run->position;
    char dir[4096];
    uint64_t *steps;
    size_t n;

    run->logged = (tutti__logged){.step = later(p->line.step, p->begun_at),
                                  .eval = later(p->eval.step, p->begun_at),
                                  .system = p->at.step};
    TUTTI_TRY(tutti__run_folder_take_over(&run->folder, p->at.step, &run->logged));
    TUTTI_TRY(tutti__run_point_best(run));
    TUTTI_TRY(tutti__run_folder_checkpoints(&run->folder, dir));
    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    run->worker->saved_step = n > 0 ? steps[0] : 0;
    free(steps);
    tutti__run_begin_logs(run, p->at.step);
    tutti__run_write_lines(run);
    return TUTTI_OK;
}

void tutti__worker_hand_over(tutti__train_run *run)
{
    if (run->folder.lock.fd < 0)
        return;
    tutti__saving_close(&run->saving);
    tutti__logs_leave(&run->logs, tutti__run_lock_is_held(&run->folder.lock, run->folder.path));
    tutti__run_folder_close(&run->folder);
    tutti__progress_clear(&run->progress);
    tutti__progress_init(&run->progress, NULL, run->session.config->progress);
    run->worker->saved_epoch = 0;
}

/* A process that still has the lock is no worker of this group: it is ending, frozen or disconnected; or this group is, and a later
 * one has the folder. Then this one is lost: it must not go on without writing. */
static tutti_status take_lock(tutti__train_run *run)
{
    tutti__run_lock *lock = &run->folder.lock;
    const char *path = run->folder.path;

    for (int tries = 0; tries < 3; tries++) {
        if (tutti__run_lock_inherit(lock, path, run->token, &run->job, SUCCESSION_MS) ||
            tutti__run_lock_seize(lock, path, run->token, &run->job))
            return TUTTI_OK;
        if (tutti__run_lock_has_later(path, run->token, &run->job))
            return tutti__fail(TUTTI_ERR_PEER,
                               "another group of this run, which is not earlier than generation "
                               "%u, has the run folder %s",
                               run->job.generation, path);
    }
    return tutti__fail(TUTTI_ERR_STATE,
                       "rank 0 is gone, and the new rank 0 cannot lock the run folder %s: put "
                       "the folder on a file system that all hosts share, at the same path",
                       path);
}

tutti_status tutti__worker_take_over(tutti__train_run *run)
{
    tutti__position *p = &run->position;

    /* All results are written: continuing the folder would remove its summary. */
    if (p->ended || p->complete)
        return TUTTI_OK;
    if (tutti__run_lock_is_held(&run->folder.lock, run->folder.path)) {
        tutti__run_lock_renew(&run->folder.lock, run->folder.path, &run->job);
        tutti__run_write_lines(run);
        return TUTTI_OK;
    }
    tutti__worker_hand_over(run);
    strcpy(run->folder.path, run->session.config->run_dir);
    TUTTI_TRY(take_lock(run));
    tutti__progress_init(&run->progress, stdout, run->session.config->progress);
    if (is_finished_by_others(run)) {
        tutti__progress_say(&run->progress,
                            "the run was completed by others, while this worker was cut off after "
                            "step %llu",
                            (unsigned long long)p->at.step);
        p->complete = true;
        return TUTTI_OK;
    }
    TUTTI_TRY(continue_folder(run));
    tutti__progress_say(&run->progress,
                        "the rank that wrote %s is gone: this rank takes over after step %llu",
                        run->folder.path, (unsigned long long)p->at.step);
    return TUTTI_OK;
}

void tutti__worker_begin_again(tutti__train_run *run)
{
    tutti__worker_hand_over(run);
    tutti__resume_free(&run->resume);
    run->resume.found = run->resume.finished = run->resume.complete = run->resume.here = false;
    run->position = tutti__position_begin();
    run->logged = (tutti__logged){0};
    run->worker->saved_step = 0;
    run->session.stop.stopping = false;
    run->session.stop.signal = 0;
    run->totals.seconds_before = 0;
    run->totals.start_ns = tutti__now_ns();
}

tutti_status tutti__worker_begin_run(tutti__train_run *run, bool *torn_p)
{
    tutti_elastic *e = run->session.elastic;
    const bool torn = tutti_elastic_is_torn(e), copies = run->session.config->shard_copies > 1;
    tutti__position *p = &run->position;

    if (torn)
        tutti__worker_begin_again(run);
    if (run->folder.lock.fd >= 0) { /* done before, in a group that failed */
        tutti__run_lock_renew(&run->folder.lock, run->folder.path, &run->job);
        return TUTTI_OK;
    }
    tutti__progress_init(&run->progress, stdout, run->session.config->progress);
    if (torn || tutti_elastic_has_lost_all(e)) /* as after a restart by the launcher */
        run->job.restarted = true;
    TUTTI_TRY(tutti__run_open_files(run));
    *torn_p = torn && !run->resume.found;
    if (*torn_p)
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_load_init(run));
    TUTTI_TRY(tutti__resume_apply_alone(&run->resume));
    run->worker->saved_step = p->at.step;
    p->begun_at = p->at.step;
    strcpy(p->shared.run_dir, run->session.config->run_dir);
    strcpy(p->shared.token, run->token);
    if (!run->resume.found)
        p->shared.from = (tutti__run_cursor){.epoch = 1};
    tutti__totals_set_traffic(&run->totals, run->totals.before, run->session.ddp);
    tutti_elastic_set_step(e, p->at.step);
    if (torn)
        tutti__progress_say(&run->progress, "%s of %sthe optimizer's state%s: resumed from %s",
                            copies ? "workers were lost, and with them a share"
                                   : "a worker was lost, and with it its share",
                            run->session.config->zero == 3 ? "the weights and " : "",
                            copies ? " and its copy" : "", run->resume.path);
    return run->resume.complete ? TUTTI_OK : tutti__run_begin_folder(run);
}
