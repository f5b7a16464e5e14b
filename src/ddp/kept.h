/* kept.h -- the memory of a rank whose contents outlast a step: parameters, optimizers' state, buffers.
 * SPDX-License-Identifier: MIT
 *
 * What compares replicas, what watches memory between updates and what injects faults into it all go by this list. */
#ifndef TUTTI_DDP_KEPT_H
#define TUTTI_DDP_KEPT_H

#include "ddp/ddp.h"

typedef enum tutti__kept_kind {
    TUTTI__KEPT_PARAMETERS,
    TUTTI__KEPT_STATE,
    TUTTI__KEPT_BUFFERS,
    TUTTI__KEPT_KINDS
} tutti__kept_kind;

/* One piece: a tensor, or an optimizer's state of one, or of either the part that is this rank's. */
typedef struct tutti__kept {
    tutti__kept_kind kind;
    const char *name, *of; /* of: the tensor; NULL: it is one. Borrowed */
    void *p;               /* of the context's device, unless on_host */
    size_t bytes;
    bool on_host;
    bool replicated; /* all ranks have the same */
} tutti__kept;

/* Writes the list, in an order that is the same on all ranks as far as it is replicated; the caller frees it. With ZeRO the shares of
 * this rank, after what is replicated. */
tutti_status tutti__kept_list(const tutti_ddp *ddp, tutti__kept **list_p, size_t *n_p);
/* "momentum_buffer of fc.weight" */
void tutti__kept_describe(const tutti__kept *kept, char *text, size_t bytes);
/* The XXH3 of each piece. Memory of a device is copied to the host. */
tutti_status tutti__kept_hash(const tutti_ddp *ddp, const tutti__kept *list, size_t n,
                              uint64_t *hashes);

#endif
