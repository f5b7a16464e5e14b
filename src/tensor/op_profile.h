/* op_profile.h -- time, FLOPs and bytes of each operation.   SPDX-License-Identifier: MIT
 *
 * Without a profile a context pays one branch per operation. With one, each operation adds to a row, and if there is a
 * recorder, records a span that points to the row; so a profile must outlive the recorder's spans. It belongs to the thread of
 * its context. Times are the host's: there are none for devices that compute asynchronously, such as GPUs. */
#ifndef TUTTI_TENSOR_OP_PROFILE_H
#define TUTTI_TENSOR_OP_PROFILE_H

#include "tensor/tensor.h"

#define TUTTI__PROFILE_CATEGORY                                                                    \
    "op" /* category of its spans, whose detail[0] is a tutti__profile_row * */

/* A measured operation. Two belong to the same row if op, pass and parameter (as pointers) and the shapes are equal. */
typedef struct tutti__profile_work {
    const char *op, *pass; /* static text: "conv2d" and "forward"; "" if it has only one pass */
    /* full name of the layer's parameter, in the module's memory; NULL: none */
    const char *parameter;
    const tutti_shape *x, *w; /* of the input, of weights; NULL: none */
    const tutti_shape *y;     /* of the result */
    /* a product and a sum are two; convolutions as if computed directly; 0: only moves memory */
    double flops;
    double bytes; /* least that it must read and write */
} tutti__profile_work;

typedef struct tutti__profile_row {
    char name[48];       /* "conv2d forward" */
    char layer[128];     /* "layers.0.conv1", or "" */
    char shape[128];     /* "[32,64,16,16] * [128,64,3,3] -> [32,128,8,8]" */
    double flops, bytes; /* per call */
    uint64_t calls, ns;  /* of all calls */
} tutti__profile_row;

typedef struct tutti__profile tutti__profile;

tutti__profile *tutti__profile_new(void); /* NULL with the message set */
void tutti__profile_free(tutti__profile *profile);
/* Sets the counts of all rows to 0; the rows remain, because spans point to them. */
void tutti__profile_reset(tutti__profile *profile);
/* Rows in the order of their first call, valid until the profile is freed. */
size_t tutti__profile_n_rows(const tutti__profile *profile);
const tutti__profile_row *tutti__profile_at(const tutti__profile *profile, size_t i);

/* Adds an operation that ran from begin_ns to end_ns. cx->profile must not be NULL. */
void tutti__profile_add(tutti_ctx *cx, const tutti__profile_work *work, uint64_t begin_ns,
                        uint64_t end_ns);

/* The time, if there is a profile; else 0. */
static inline uint64_t tutti__profile_begin(const tutti_ctx *cx)
{
    return __builtin_expect(cx->profile != NULL, 0) ? tutti__now_ns() : 0;
}

#endif
