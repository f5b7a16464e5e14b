/* windows.c -- memory of a rank that the others read when they need it.   SPDX-License-Identifier: MIT */
#include "comm/engine/planned_engine.h"
#include "comm/group.h"

tutti_status tutti__group_expose(tutti_group *group, int window, const void *p, size_t bytes,
                                 uint64_t version)
{
    if (tutti__group_is_planned(group))
        return TUTTI_OK;
    return tutti__p2p_expose(
        group->p2p, &(tutti__p2p_window){.tag = TUTTI__TAG_WINDOWS - window,
                                         .p = p,
                                         .bytes = bytes,
                                         .version = version,
                                         .timeout_ms = tutti__queue_timeout(group->queue)});
}

tutti_status tutti__group_read(tutti_group *group, int window, uint64_t version, int rank,
                               size_t offset, void *to, size_t bytes, tutti_work **work_p)
{
    const tutti__signature signature = {.op = TUTTI__OP_RECV,
                                        .count = bytes,
                                        .dtype = TUTTI_U8,
                                        .root = (uint32_t)rank,
                                        .tag = TUTTI__TAG_WINDOWS - window};
    tutti__bounce none = {0};

    *work_p = NULL;
    if (tutti__group_is_planned(group)) {
        tutti__engine_planned_message(group->engine, TUTTI__OP_SEND, bytes);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti__submit_p2p(group->queue, group->p2p, &signature, to,
                                tutti__queue_timeout(group->queue), &none, work_p));
    tutti__p2p_ask(group->p2p, rank, signature.tag, version, offset, bytes);
    return TUTTI_OK;
}
