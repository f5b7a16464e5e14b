/* train_run.c -- one rank's run, from its start to its exit code.   SPDX-License-Identifier: MIT */
#include "train/run/run.h"
#include "train/config/agreement.h"
#include "train/session/digests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { XID_MS = 100 /* for the driver to report the cause */ };

static void withdraw(tutti__train_run *run)
{
    tutti__run_folder *folder = &run->folder;
    const bool moved = folder->aside[0];

    tutti__run_folder_withdraw(folder);
    if (moved && !folder->aside[0])
        tutti__progress_say(&run->progress, "the earlier run is in %s again", folder->path);
}

/* In its own steps: with as many ranks as now it might have been others. */
static unsigned long long steps_of_complete(const tutti__train_run *run)
{
    const json_t *step = json_object_get(run->resume.state, "step");

    return json_is_integer(step) ? (unsigned long long)json_integer_value(step)
                                 : (unsigned long long)run->plan.total_steps;
}

static tutti_status open_run(tutti__train_run *run)
{
    tutti__session *s = &run->session;

    run->totals.start_ns = tutti__now_ns();
    run->folder.metrics = run->folder.lock.fd = -1;
    run->position = tutti__position_begin();
    run->shown_images_per_s = NAN;
    run->file_size = s->config->world_size;
    tutti__train_job_read(&run->job);
    s->shards = (int)s->config->shards;
    run->kind = s->shards > 0 ? &tutti__shard_run : &tutti__rank_run;
    run->resume = (tutti__resume){.session = s,
                                  .plan = &run->plan,
                                  .position = &run->position,
                                  .totals = &run->totals,
                                  .folder = &run->folder};
    run->saving = (tutti__saving){.session = s,
                                  .plan = &run->plan,
                                  .position = &run->position,
                                  .totals = &run->totals,
                                  .folder = &run->folder,
                                  .checksums = &run->guard.checksums,
                                  .progress = &run->progress};
    return run->kind->open(run);
}

static void close_run(tutti__train_run *run)
{
    json_decref(run->confusion);
    tutti__run_sample_close(run);
    tutti__saving_close(&run->saving); /* it uses the folder and the module */
    tutti__run_folder_close(&run->folder);
    tutti__resume_free(&run->resume);
    tutti__ledger_close(&run->totals.ledger);
    tutti__gpus_close(&run->gpus);
    tutti__guard_close(run);
    tutti__digests_close(&run->session);
    tutti__session_close(&run->session);
    free(run->worker);
    tutti__run_trace_close(run);
}

static tutti_status train(tutti__train_run *run)
{
    tutti_status status;
    char reason[2048];
    bool was_complete;

    TUTTI_TRY(open_run(run));
    was_complete = run->position.complete;
    if (was_complete && run->resume.why[0])
        tutti__progress_say(&run->progress, "%s is complete after %llu steps: %s",
                            run->session.config->run_dir, steps_of_complete(run), run->resume.why);
    else if (was_complete)
        tutti__progress_say(&run->progress, "%s is complete: all %llu steps are done",
                            run->session.config->run_dir, steps_of_complete(run));
    status = run->kind->work(run);
    if (status != TUTTI_OK && !run->summarised && !was_complete) {
        snprintf(reason, sizeof reason, "%s", tutti_last_error());
        tutti__gpus_listen(&run->gpus, XID_MS);
        tutti__run_write_failure(run, status, reason);
    }
    return status;
}

static void fill_in(const tutti__train_run *run, tutti_status status, tutti_trainer_result *result)
{
    const tutti_module *module = run->session.module;
    const tutti__position *p = &run->position;

    result->steps = p->at.step;
    result->epochs = p->epochs_done;
    result->train_loss = p->epoch_loss.sum / p->epoch_loss.n;
    result->val_loss = p->scores.val_loss;
    result->val_accuracy = p->scores.val_accuracy;
    result->images_per_s = p->images / p->train_seconds;
    result->seconds = tutti__totals_seconds(&run->totals);
    if (module && tutti_module_status(module) == TUTTI_OK) {
        result->parameters = tutti__session_n_parameters(&run->session);
        if (status == TUTTI_OK && run->digests[0][0])
            strcpy(result->parameter_digest, run->digests[0]);
        else if (status == TUTTI_OK)
            tutti_module_digest(module, result->parameter_digest);
    }
}

tutti_status tutti__train(tutti__train_config *config, const tutti__parts *parts,
                          tutti_trainer_result *result)
{
    tutti__train_run *run = tutti__alloc(sizeof *run);
    char message[2048];
    tutti_status status;

    tutti__report_as(parts->title);
    if (!run)
        return tutti__report_no_memory();
    run->session.config = config;
    run->session.parts = parts;
    tutti__run_enter(run);
    status = train(run);
    tutti__run_enter(NULL);
    snprintf(message, sizeof message, "%s", tutti_last_error());
    fill_in(run, status, result);
    if (tutti__run_leaves_nothing(run, status))
        withdraw(run);
    close_run(run);
    tutti__session_outcome(&run->session, status, result); /* closing may have found a signal */
    free(run);
    tutti__report_as(NULL); /* the title belongs to the trainer */
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}
