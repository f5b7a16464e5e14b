/* group_memory.c -- memory that collectives access directly.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

/* Separate memory for each rank, if some ranks ask for a device's: called in the queue. */
typedef struct apart {
    tutti_group *group;
    tutti_stream *stream;
    tutti__operation op; /* for the comparison of the ranks' calls */
    void **p;
} apart;

static tutti_status alloc_apart(void *arg)
{
    apart *a = arg;
    tutti_status status;

    a->op.only_compared = true;
    TUTTI_TRY(tutti__submit(a->group->queue, &a->op, NULL));
    status =
        tutti__devices_alloc(a->group->devices, a->stream, (size_t)a->op.signature.count, a->p);
    return tutti_status_scope(status) == TUTTI_SCOPE_GROUP && tutti__comm_failed(&a->group->comm)
               ? tutti__comm_error(&a->group->comm, &a->op.signature)
               : status;
}

tutti_status tutti_group_alloc_on(tutti_group *group, tutti_stream *stream, size_t bytes, void **p)
{
    tutti__operation op = {.signature = {.op = TUTTI__OP_ALLOC, .count = bytes, .dtype = TUTTI_U8},
                           .dst = p};
    tutti_status status = TUTTI_OK;
    bool on_hosts;

    if (p)
        *p = NULL;
    TUTTI_TRY(tutti__check_group("alloc", group));
    if (!p)
        status = tutti__fail(TUTTI_ERR_ARG, "alloc: the place for the memory's address is NULL");
    else if (bytes > SIZE_MAX / 4 / (size_t)group->comm.size)
        status = tutti__fail(TUTTI_ERR_ARG,
                             "alloc: %zu bytes for each of %d ranks is more than memory holds",
                             bytes, group->comm.size);
    TUTTI_TRY(tutti__group_agree_all(group, status, tutti__on_host(stream), &on_hosts));
    status = on_hosts ? tutti__submit(group->queue, &op, NULL)
                      : tutti__submit_call(group->queue, alloc_apart, NULL,
                                           &(apart){group, stream, op, p}, 0, NULL);
    if (tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
        status = tutti__group_agree(group, status);
    if (status != TUTTI_OK) {
        tutti_group_release(group, *p);
        *p = NULL;
    }
    return status;
}

tutti_status tutti_group_alloc(tutti_group *group, size_t bytes, void **p)
{
    return tutti_group_alloc_on(group, NULL, bytes, p);
}

void tutti_group_release(tutti_group *group, void *p)
{
    if (p && !tutti__devices_release(group->devices, p))
        group->engine->ops->release(group->engine, p);
}
