/* persistent.h -- the memory of a rank whose contents outlast a step: parameters, optimizers' state, buffers.
 * SPDX-License-Identifier: MIT
 *
 * What compares replicas, what watches memory between updates and what injects faults into it all go by this list. */
#ifndef TUTTI_DDP_PERSISTENT_H
#define TUTTI_DDP_PERSISTENT_H

#include "ddp/ddp.h"

typedef enum tutti__persistent_kind {
    TUTTI__PERSISTENT_PARAMETERS,
    TUTTI__PERSISTENT_STATE,
    TUTTI__PERSISTENT_BUFFERS,
    TUTTI__PERSISTENT_KINDS
} tutti__persistent_kind;

/* One piece: a tensor, or an optimizer's state of one, or of either the part that is this rank's. */
typedef struct tutti__persistent {
    tutti__persistent_kind kind;
    const char *name, *of; /* of: the tensor; NULL: it is one. Borrowed */
    void *p;               /* of the context's device, unless on_host */
    size_t bytes;
    bool on_host;
    /* Ranks that have the same one have the same contents; NO_SHARE: all ranks. With ZeRO that of a rank, of which others may have a copy,
     * or one more, which all have. */
    int share;
} tutti__persistent;
enum { TUTTI__NO_SHARE = -1 };

/* Writes the list, of which what is of one share is in the same order on all ranks that have it; the caller frees it. */
tutti_status tutti__persistent_list(const tutti_ddp *ddp, tutti__persistent **list_p, size_t *n_p);
/* "momentum_buffer of fc.weight" */
void tutti__persistent_describe(const tutti__persistent *piece, char *text, size_t bytes);

/* ---- What it was at some time ---- */

/* The list, with the XXH3 of each piece. Zero-initialised: none. */
typedef struct tutti__checksums {
    tutti__persistent *list;
    uint64_t *hashes;
    size_t n;
} tutti__checksums;

/* Of the present contents, in place of the earlier one. Memory of a device is copied to the host, in the order of `stream`. */
tutti_status tutti__checksums_take(tutti__checksums *checksums, const tutti_ddp *ddp,
                                   tutti_stream *stream);
void tutti__checksums_drop(tutti__checksums *checksums);
/* *copy_p: another one of the same contents; MEMORY. */
tutti_status tutti__checksums_copy(const tutti__checksums *checksums, tutti__checksums *copy_p);
/* *changed_p: the first piece that has other contents now; NULL: none. Pieces that are now of another size, or other ones, are left out, and
 * buffers, which forward passes write. saved: in an open step by shards, not buffers but what it has saved of them. Valid until
 * the checksums are dropped. */
tutti_status tutti__checksums_compare(const tutti__checksums *checksums, const tutti_ddp *ddp,
                                      tutti_stream *stream, bool saved,
                                      const tutti__persistent **changed_p);
/* DEVICE, with rank, host, core and the piece. step: that of the update which came before. */
tutti_status tutti__checksums_differ(const tutti__persistent *changed, int rank, uint64_t step);

/* ---- Whether ranks have the same (replicas.c) ---- */

/* apart: the memory of some ranks differs, and there is a failure; else one is of options, or of the call. named: this rank's is wrong, or
 * of two that have it, or without a majority, may be. */
typedef struct tutti__replicas_result {
    bool apart, named;
} tutti__replicas_result;

/* Compares what several ranks have: replicas, and copies of shares. MISMATCH, the same on every rank, naming ranks, hosts, cores and the first difference, or an option of
 * an optimizer. Collective over DDP's group. `local`: of this rank's own work before: others hear of its failure. */
tutti_status tutti__compare_replicas(const tutti_ddp *ddp, const tutti__checksums *checksums,
                                     tutti_status local, tutti__replicas_result *result_p);

#endif
