/* rank_step.c -- a run of fixed ranks: each takes its part of every step.   SPDX-License-Identifier: MIT */
#include "train/run/run.h"
#include "train/config/agreement.h"

/* Adds up all ranks' sums since the last exchange. */
static tutti_status exchange(tutti__train_run *run)
{
    tutti__session *s = &run->session;
    tutti__position *p = &run->position;
    double sums[3] = {s->step.loss.sum, s->step.loss.n, s->step.images};

    TUTTI_TRY(tutti__session_share_sums(s, sums, 3));
    TUTTI_TRY(tutti_all_reduce(tutti__session_data_group(s), TUTTI_BUF(sums, 3, TUTTI_F64),
                               TUTTI_SUM, NULL));
    s->step.loss = (tutti__mean){0, 0};
    s->step.images = 0;
    p->log_loss.sum += sums[0];
    p->log_loss.n += sums[1];
    p->epoch_loss.sum += sums[0];
    p->epoch_loss.n += sums[1];
    p->log_images += sums[2];
    p->images += sums[2];
    return tutti__ledger_exchange(&run->totals.ledger, s->group);
}

/* The step's gradients; for the program's hooks also its mean loss over all ranks. */
static tutti_status compute(tutti__session *s, tutti_batch *batch, uint64_t begin_ns)
{
    const tutti__mean before = s->step.loss;
    double sums[2];

    if (!tutti__session_hooks(s))
        return tutti__session_gradients(s, batch, begin_ns);
    s->step.loss = (tutti__mean){0, 0};
    TUTTI_TRY(tutti__session_gradients(s, batch, begin_ns));
    sums[0] = s->step.loss.sum;
    sums[1] = s->step.loss.n;
    s->step.loss.sum += before.sum;
    s->step.loss.n += before.n;
    TUTTI_TRY(tutti__session_share_sums(s, sums, 2));
    TUTTI_TRY(tutti_all_reduce(tutti__session_data_group(s), TUTTI_BUF(sums, 2, TUTTI_F64),
                               TUTTI_SUM, NULL));
    s->step.mean_loss = sums[0] / sums[1];
    return TUTTI_OK;
}

static tutti_status step(tutti__train_run *run, bool *over_p)
{
    tutti__session *s = &run->session;
    tutti__position *p = &run->position;
    tutti_batch batch;
    uint64_t begin_ns;

    (void)over_p;
    TUTTI_TRY(tutti__guard_begin(run));
    tutti__run_begin_step(run);
    tutti__run_seek(run);
    TUTTI_TRY(tutti__run_trace_before(run));
    begin_ns = tutti__now_ns();
    if (!tutti__session_next_batch(s, 0, &batch)) {
        p->at.batch = s->step.batches;
        return tutti_loader_status(s->data.train_loader);
    }
    TUTTI_TRY(tutti__session_ask_to_stop(s));
    TUTTI_TRY(compute(s, &batch, begin_ns));
    TUTTI_TRY(tutti__session_hear_of_stop(s));
    p->stop = s->stop.signal;
    TUTTI_TRY(tutti__guard_memory(run));
    TUTTI_TRY(tutti__run_update(run));
    tutti__run_count_step(run, s->step.taken - p->at.batch, begin_ns);
    TUTTI_TRY(tutti__run_end_step(run, begin_ns));
    /* The sums of an epoch are added up at its end, whatever follows. */
    return tutti__plan_epoch_is_over(&run->plan, &p->at) ? exchange(run) : TUTTI_OK;
}

static tutti_status save(tutti__train_run *run)
{
    TUTTI_TRY(exchange(run)); /* a checkpoint must have all ranks' sums */
    return tutti__saving_together(&run->saving);
}

static tutti_status agree(tutti__train_run *run, tutti_status status)
{
    status = tutti__fail_together(run->session.group, status);
    run->session.reported = status != TUTTI_OK;
    return status;
}

/* The invariant of data parallelism: after any step all replicas have the same bits. */
static tutti_status check_replicas(tutti__train_run *run)
{
    TUTTI_TRY(tutti_ddp_broadcast_buffers(run->session.ddp));
    return tutti__guard_compare(run);
}

static tutti_status check(tutti__train_run *run)
{
    return agree(run, check_replicas(run));
}

static tutti_status work(tutti__train_run *run)
{
    tutti_status status;

    if (!run->position.complete) {
        tutti__run_header(run);
        tutti__run_watch_signals(run);
    }
    status = tutti__run_loop(run);
    tutti__progress_clear(&run->progress);
    if (status != TUTTI_OK && !run->session.reported)
        tutti__session_fail_alone(&run->session, status);
    return status;
}

const tutti__run_kind tutti__rank_run = {.open = tutti__ranks_open,
                                         .work = work,
                                         .step = step,
                                         .exchange = exchange,
                                         .save = save,
                                         .agree = agree,
                                         .check = check};
