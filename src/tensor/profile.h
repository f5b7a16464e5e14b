/* profile.h -- what operations did while they were watched: how long, how many FLOPs and bytes.   SPDX-License-Identifier: MIT
 *
 * A context without a profile pays a branch an operation. With one each operation adds to a row, and where there is a
 * recorder leaves a span that points to it; so a profile outlives the recorder's spans. It belongs to the thread of its context.
 * Times are the host's: of devices that compute behind it, like GPUs, there is none. */
#ifndef TUTTI_TENSOR_PROFILE_H
#define TUTTI_TENSOR_PROFILE_H

#include "tensor/tensor.h"

#define TUTTI__PROFILE_CATEGORY "op" /* of its spans, whose detail[0] is a tutti__profile_row * */

/* What is watched. Two are the same row if op, pass, parameter (as pointers) and shapes are. */
typedef struct tutti__profile_work {
    const char *op, *pass; /* static text: "conv2d" and "forward"; pass "": it has but one */
    const char
        *parameter; /* by whose full name a layer is known, of the module's memory; NULL: none */
    const tutti_shape *x, *w; /* of the input, of weights; NULL: none */
    const tutti_shape *y;     /* of the result */
    double
        flops; /* a product and a sum are two; of convolutions as if computed directly; 0: moves memory */
    double bytes; /* that it must read and write at least, each once */
} tutti__profile_work;

typedef struct tutti__profile_row {
    char name[48];       /* "conv2d forward" */
    char layer[128];     /* "layers.0.conv1", or "" */
    char shape[128];     /* "[32,64,16,16] * [128,64,3,3] -> [32,128,8,8]" */
    double flops, bytes; /* of a call */
    uint64_t calls, ns;  /* of all calls */
} tutti__profile_row;

typedef struct tutti__profile tutti__profile;

tutti__profile *tutti__profile_new(void); /* NULL with the message made */
void tutti__profile_free(tutti__profile *profile);
/* Rows as before the first call; they and spans keep them. */
void tutti__profile_reset(tutti__profile *profile);
/* In the order in which they were met; good until the profile is freed. */
size_t tutti__profile_n_rows(const tutti__profile *profile);
const tutti__profile_row *tutti__profile_at(const tutti__profile *profile, size_t i);
/* How many operations found no memory for their row. */
uint64_t tutti__profile_lost(const tutti__profile *profile);

/* What was watched took from begin_ns until end_ns. cx->profile is not NULL. */
void tutti__profile_add(tutti_ctx *cx, const tutti__profile_work *work, uint64_t begin_ns,
                        uint64_t end_ns);

/* The clock, if somebody watches. */
static inline uint64_t tutti__profile_begin(const tutti_ctx *cx)
{
    return __builtin_expect(cx->profile != NULL, 0) ? tutti__now_ns() : 0;
}

#endif
