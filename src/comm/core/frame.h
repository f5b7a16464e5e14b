/* frame.h -- what goes over a connection between neighbours, from the first byte after authentication.   SPDX-License-Identifier: MIT
 *
 * While a group is being made, one end of a connection may have its control channel (control/) before the other has: both send and understand
 * these frames. */
#ifndef TUTTI_COMM_CORE_FRAME_H
#define TUTTI_COMM_CORE_FRAME_H

#include "comm/core/communicator.h"
#include <string.h>

typedef enum tutti__frame_kind {
    TUTTI__FRAME_BEAT,    /* id: the sending thread's kernel id */
    TUTTI__FRAME_GOODBYE, /* id: the sender's own peers[].seen */
    TUTTI__FRAME_CAUSE,   /* body: the text */
    /* id: a number; a descriptor may come with it. status: an errno, for which rank `culprit` could not receive or send that one; else 0 */
    TUTTI__FRAME_HANDLE,
    TUTTI__FRAME_LEFT, /* rank `culprit` has left, and was the first: passed on; id: as in its goodbye */
    TUTTI__FRAME_CALL, /* body: the signature of the call in which the sender waits for data */
    TUTTI__FRAME_TABLE, /* body: addresses of ranks, before there is a control channel (bootstrap/gather.c) */
    TUTTI__FRAME_OTHERS /* this kind and all above belong to the handler */
} tutti__frame_kind;

typedef struct tutti__frame {
    uint32_t kind, bytes;    /* of the body that follows */
    int32_t status, culprit; /* of a cause, or a handle */
    union {
        int32_t own; /* of a cause */
        int32_t tag; /* this and the rest: for the handler */
    };
    uint32_t dtype;
    uint64_t count, id, receive;
} tutti__frame;

/* Then the body follows. */
typedef struct tutti__wire_head {
    uint64_t
        group; /* the communicator's id, or what stands for it while it is being made; 0: the connection's own, a beat */
    tutti__frame frame;
} tutti__wire_head;

/* The body is the cause's text. opening: the sender did not know that all ranks had made the group. */
static inline tutti__frame tutti__cause_frame(const tutti__cause *cause, bool opening)
{
    return (tutti__frame){.kind = TUTTI__FRAME_CAUSE,
                          .status = cause->status,
                          .culprit = cause->culprit,
                          .own = cause->own,
                          .count = opening,
                          .bytes = (uint32_t)strlen(cause->text)};
}

#endif
