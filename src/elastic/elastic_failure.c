/* elastic_failure.c -- what ends a worker, and what another group survives.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"

#include "comm/comm.h"

#include <stdio.h>

tutti_status tutti__elastic_failure(const tutti_elastic *e)
{
    return tutti__fail_again(e->status, e->message);
}

/* Failures that a replacement of this worker may not have; exit code 3 or 4 also tells the launcher so. A full disk is as full
 * for the replacement, which the launcher is told by a message. */
static bool is_workers_end(tutti_status status)
{
    return tutti_status_exit_code(status) > 2 && status != TUTTI_ERR_DISK;
}

/* Of those with such an exit code: the ones that end the job. */
static bool will_recur(tutti_status status)
{
    return status == TUTTI_ERR_DISK || status == TUTTI_ERR_ABORTED;
}

/* The cause of the group's death; OK if there is no group, or it is alive. *culprit_p: its rank, -1: none in particular. */
static tutti_status cause_of_death(const tutti_elastic *e, int *culprit_p)
{
    const char *text;

    *culprit_p = -1;
    return e->group ? tutti__group_cause(e->group, culprit_p, &text) : TUTTI_OK;
}

/* If this worker's memory or device failed within a collective, that returned ABORTED, here as on the others. */
static tutti_status own_status(const tutti_elastic *e, tutti_status status)
{
    int culprit;
    const tutti_status cause = cause_of_death(e, &culprit);

    return status == TUTTI_ERR_ABORTED && tutti_status_scope(cause) == TUTTI_SCOPE_PROCESS &&
                   culprit == tutti_group_rank(e->group)
               ? cause
               : status;
}

tutti_status tutti__elastic_fail(tutti_elastic *e, tutti_status status)
{
    status = own_status(e, status);
    if (e->agent >= 0 && status == TUTTI_ERR_MISMATCH)
        status = TUTTI_ERR_ARG; /* exit code 2: a replacement would disagree in the same way */
    if (e->status == TUTTI_OK) {
        e->status = status;
        snprintf(e->message, sizeof e->message, "%s", tutti_last_error());
        if (e->group && is_workers_end(status)) /* the others continue without it */
            tutti__group_give_up(e->group, e->message);
        else if (e->group) /* it ends the others too */
            tutti_group_abort(e->group, "%s", e->message);
        /* Without the abort's "rank 1 said:", so that the launcher sees the same message on all ranks that agreed on it. */
        tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP, e->message);
        if (will_recur(status)) /* without its agent it ends all the same */
            (void)tutti__agent_say(e, TUTTI__WORKER_FAILS);
    }
    e->phase = TUTTI__IDLE;
    return tutti__elastic_failure(e);
}

/* Failures that another group may survive: a peer was lost, or was silent for too long, or its memory or device is exhausted. A
 * rank's own failure, or ranks that disagree, would recur. The cause of a group's death is the same on all ranks. */
bool tutti__elastic_is_loss(tutti_elastic *e, tutti_status status)
{
    int culprit;
    const tutti_status cause = cause_of_death(e, &culprit);

    if (cause != TUTTI_OK && tutti_status_scope(cause) == TUTTI_SCOPE_PROCESS)
        return culprit >= 0 && culprit != tutti_group_rank(e->group) && is_workers_end(cause);
    if (cause != TUTTI_OK)
        status = cause;
    return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT;
}
