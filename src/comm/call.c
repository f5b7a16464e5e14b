/* call.c -- any call, described by a structure, and functions of the program's own.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

static tutti_status submit_function(tutti_group *group, const tutti_call *call, tutti_work **work_p)
{
    tutti_status status = tutti__check_group("group_submit", group);

    if (work_p)
        *work_p = NULL;
    if (status == TUTTI_OK && !call->function)
        status = tutti__fail(TUTTI_ERR_ARG, "group_submit: no function given");
    if (status == TUTTI_OK && call->scale != 0)
        status = tutti__fail(TUTTI_ERR_ARG,
                             "group_submit: a scale of %g, which belongs to the calls within",
                             call->scale);
    if (status == TUTTI_OK)
        return tutti__submit_call(group->queue, call->function, call->drop, call->arg,
                                  call->timeout_ms, work_p);
    if (call->drop)
        call->drop(call->arg);
    return status;
}

tutti_status tutti_group_submit(tutti_group *group, tutti_status (*call)(void *arg),
                                void (*drop)(void *arg), void *arg, tutti_work **work_p)
{
    return submit_function(group, &(tutti_call){.function = call, .drop = drop, .arg = arg},
                           work_p);
}

/* What is wrong whatever the kind. */
static tutti_status check(const tutti_call *call)
{
    if (!call)
        return tutti__fail(TUTTI_ERR_ARG, "group_call: no call given");
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_call, call));
    if (call->kind < TUTTI_CALL_ALL_REDUCE || call->kind > TUTTI_CALL_FUNCTION)
        return tutti__fail(TUTTI_ERR_ARG, "group_call: kind %d is unknown", (int)call->kind);
    if (call->timeout_ms < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group_call: a time limit of %d ms, expected more than 0, or 0 for the "
                           "group's",
                           call->timeout_ms);
    return TUTTI_OK;
}

tutti_status tutti_group_call(tutti_group *group, const tutti_call *call, tutti_work **work_p)
{
    tutti_status status = check(call);

    if (work_p)
        *work_p = NULL;
    if (status != TUTTI_OK) {
        if (call && call->kind == TUTTI_CALL_FUNCTION && call->drop)
            call->drop(call->arg);
        return status;
    }
    if (call->kind == TUTTI_CALL_FUNCTION)
        return submit_function(group, call, work_p);
    if (call->kind != TUTTI_CALL_SEND && call->kind != TUTTI_CALL_RECV)
        return tutti__call_collective(group, call, work_p);
    if (call->scale != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group_call: a scale of %g of a message; only reductions multiply",
                           call->scale);
    return tutti__call_message(group, call, work_p);
}
