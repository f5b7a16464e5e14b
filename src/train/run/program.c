/* program.c -- the program ends its run: on which rank, and why.   SPDX-License-Identifier: MIT */
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

/* The run that this thread is in; NULL: none. */
static _Thread_local tutti__train_run *current;

void tutti__run_enter(tutti__train_run *run)
{
    current = run;
}

tutti_status tutti_trainer_stop(const char *why)
{
    if (!current)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_trainer_stop: this thread is in no training run; it is for the "
                           "functions that a run calls, such as on_eval");
    if (current->wish.made)
        return TUTTI_OK; /* the first reason counts */
    current->wish.made = true;
    tutti__printable(why ? why : "", current->wish.why, sizeof current->wish.why);
    return TUTTI_OK;
}

/* The lowest rank that wishes it says why. */
tutti_status tutti__run_agree(tutti__train_run *run)
{
    tutti__position *p = &run->position;
    const tutti__session *s = &run->session;
    int64_t rank = run->wish.made ? s->rank : s->size;
    char why[sizeof p->stop_why];

    TUTTI_TRY(tutti_all_reduce(s->group, TUTTI_BUF(&rank, 1, TUTTI_I64), TUTTI_MIN, NULL));
    memcpy(why, run->wish.why, sizeof why);
    if (rank < s->size)
        TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(why, sizeof why, TUTTI_U8), (int)rank, NULL));
    p->agree_due = false;
    if (rank == s->size || p->stopped)
        return TUTTI_OK;
    p->stopped = true;
    memcpy(p->stop_why, why, sizeof why);
    return TUTTI_OK;
}

void tutti__run_why(const tutti__train_run *run, char text[TUTTI__PLAN_WHY])
{
    const tutti__position *p = &run->position;
    const tutti__train_plan *plan = &run->plan;

    text[0] = '\0';
    if (run->session.stop.stopping)
        return;
    tutti__plan_why(run->session.config, &p->best, p->stopped, p->stop_why, text);
    if (!text[0] && plan->config->stop_after > 0 && p->at.step >= plan->total_steps &&
        plan->total_steps < plan->schedule_end)
        snprintf(text, TUTTI__PLAN_WHY,
                 "stop_after: ended after step %llu of %llu; --stop-after 0 --resume auto goes on",
                 (unsigned long long)p->at.step, (unsigned long long)plan->schedule_end);
}
