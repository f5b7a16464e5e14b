/* open_ranks.c -- opens a run of fixed ranks.   SPDX-License-Identifier: MIT
 *
 * As in a session, local work comes first, followed by an agreement; what is collective comes after it. */
#include "checkpoint/verify_together.h"
#include "tensor/tensor.h"
#include "train/config/agreement.h"
#include "train/run/run.h"

/* Rank 0's part, in which the others verify what it finds. */
static tutti_status open_files(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    tutti_status status = s->rank == 0 ? tutti__run_open_files(run) : TUTTI_OK;

    if (tutti__session_is_divided(s))
        status = s->rank == 0 ? tutti__verify_end(s->group, status)
                              : tutti__verify_answer(s->group, s->module);
    return status == TUTTI_OK ? tutti__run_load_init(run) : status;
}

static tutti_status share(tutti__train_run *run)
{
    tutti__session *s = &run->session;
    char *run_dir = s->config->run_dir;

    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(run_dir, TUTTI__CONFIG_TEXT, TUTTI_U8), 0, NULL));
    TUTTI_TRY(
        tutti_broadcast(s->group, TUTTI_BUF(run->token, sizeof run->token, TUTTI_U8), 0, NULL));
    return tutti__resume_share(&run->resume);
}

/* What only the ranks of a pipeline do: together they may freeze all, and each reads its stages' weights. */
static tutti_status open_stages(tutti__train_run *run)
{
    const tutti__session *s = &run->session;

    if (s->config->freeze[0])
        TUTTI_TRY(tutti__fail_together(s->group, tutti__session_check_frozen(s)));
    return tutti__fail_together(s->group, tutti__run_load_stage(run));
}

/* If rank 0 cannot read, it ends the group, because the others wait for its state. */
static tutti_status resume(tutti__train_run *run)
{
    tutti_status status = tutti__resume_apply(&run->resume);

    return status == TUTTI_OK ? TUTTI_OK : tutti__session_fail_alone(&run->session, status);
}

/* A mismatch has the same message on all ranks. */
static void report(const tutti__session *s, tutti_status status)
{
    tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP, tutti_last_error());
    if (status != TUTTI_ERR_MISMATCH || s->rank == 0)
        tutti__report_error(s->rank, status == TUTTI_ERR_MISMATCH ? 1 : s->size);
}

tutti_status tutti__ranks_open(tutti__train_run *run)
{
    tutti__session *s = &run->session;
    tutti_status status;

    TUTTI_TRY(tutti__session_open_group(s));
    tutti__progress_init(&run->progress, s->rank == 0 ? stdout : NULL, s->config->progress);
    TUTTI_TRY(tutti__fail_together(s->group, tutti__same_config(s->group, s->config)));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__session_open_mesh(s)));
    TUTTI_TRY(tutti__core_share_find(s->group, &s->cores));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__run_open_alone(run)));
    TUTTI_TRY(tutti__fail_together(s->group, open_files(run)));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__session_same_data(s)));
    TUTTI_TRY(tutti__report_loss(s->group, tutti__gpus_open(&run->gpus, s->group, s->cx->device)));
    status = share(run);
    if (status != TUTTI_OK)
        report(s, status);
    if (status == TUTTI_OK && s->pipeline)
        status = open_stages(run);
    run->position.complete = run->resume.complete;
    if (status != TUTTI_OK || run->position.complete)
        return status;
    status = tutti__session_open_ddp(s);
    if (status != TUTTI_OK) {
        report(s, status);
        return status;
    }
    TUTTI_TRY(tutti__fail_together(s->group, tutti__run_load_pieces(run)));
    TUTTI_TRY(tutti__fail_together(
        s->group, tutti__session_open_optimizer(s, run->plan.schedule.warmup_steps)));
    TUTTI_TRY(resume(run));
    return tutti__fail_together(s->group, tutti__run_begin_folder(run));
}
