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

/* ---- What it was at some time ---- */

/* The list, with the XXH3 of each piece. Zero-initialised: none. */
typedef struct tutti__seal {
    tutti__kept *list;
    uint64_t *hashes;
    size_t n;
} tutti__seal;

/* Of the present contents, in place of the earlier one. Memory of a device is copied to the host, in the order of `stream`. */
tutti_status tutti__seal_take(tutti__seal *seal, const tutti_ddp *ddp, tutti_stream *stream);
void tutti__seal_drop(tutti__seal *seal);
/* *copy_p: another one of the same contents; MEMORY. */
tutti_status tutti__seal_copy(const tutti__seal *seal, tutti__seal *copy_p);
/* *changed_p: the first piece of parameters or state that has other contents now; NULL: none. Pieces that are now of another size, or other ones, are left out. Valid
 * until the seal is dropped. */
tutti_status tutti__seal_compare(const tutti__seal *seal, const tutti_ddp *ddp,
                                 tutti_stream *stream, const tutti__kept **changed_p);
/* DEVICE, with rank, host, core and the piece. step: that of the update which came before. */
tutti_status tutti__seal_broken(const tutti__kept *changed, int rank, uint64_t step);

/* ---- Whether ranks have the same (replicas.c) ---- */

/* apart: the memory of some ranks differs, and there is a failure; else one is of options, or of the call. named: this rank's is wrong, or
 * with two ranks, or without a majority, may be. */
typedef struct tutti__replicas_verdict {
    bool apart, named;
} tutti__replicas_verdict;

/* Compares what is replicated. MISMATCH, the same on every rank, naming ranks, hosts, cores and the first difference, or an option of
 * an optimizer. Collective over DDP's group. `local`: of this rank's own work before: others hear of its failure. */
tutti_status tutti__compare_replicas(const tutti_ddp *ddp, const tutti__seal *seal,
                                     tutti_status local, tutti__replicas_verdict *verdict_p);

#endif
