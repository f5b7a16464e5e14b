/* op.h -- what an operation is, and the node it leaves on the tape.   SPDX-License-Identifier: MIT
 *
 * An operation is one file, op/<name>.c: shape rule, forward, backward, and the public function that runs it. Its arithmetic is
 * plain C, which works on every device and in every dtype; most operations are no more than that, declared as a program declares
 * its own (<tutti/op.h>). Kernels (kernel.h) replace it where that is faster. To add an operation: its file, a prototype in
 * <tutti/tensor.h>, a row in op/ops.def (docs/adding.md). */
#ifndef TUTTI_TENSOR_OP_H
#define TUTTI_TENSOR_OP_H

#include "tensor/formula.h"
#include "tensor/kernel.h"
#include "tensor/op_profile.h"
#include "tensor/tensor.h"
#include <tutti/op.h>

/* An operation with kernels: it calls them in forward and backward, or tutti__plain_forward and _backward. */
typedef struct tutti__op {
    tutti_op
        plain; /* what it is; its forward and backward may be NULL if all sets of kernels have the operation */
    tutti_status (*forward)(tutti__node *n); /* NULL: plain C only */
    /* Computes the gradients for which tutti__grad_of returns a destination. n->dst->grad is the gradient of the
     * result. */
    tutti_status (*backward)(tutti__node *n);
    /* Bit i: source i may be lazy (tensor.h): the kernels that make lazy tensors also read them here. Other sources are computed
     * before the operation runs. */
    unsigned lazy;
    /* Bit i: of source i, an F32 parameter, it reads only what is left when that is rounded to the 16-bit dtype in which it computes. */
    unsigned rounds;
    /* Its row in op/elementwise.def, whose kernels replace its plain C. */
    tutti__formula formula;
    /* Elementwise: of zeros the result is 0, and so is a source's gradient, as in the padding of layouts. */
    bool keeps_zeros;
    /* In backward the result is computed again, rather than kept, for those who read it: forward costs little, and backward reads
     * source 0 anyway. Within models only, as results of others may be read at any time. */
    bool again;
    /* In place of plain C where the host cannot read the memory, if the kernels have jobs (kernel.h): the same arguments, with
     * device pointers, F32 and row-major, also those of indices and of what forward keeps. NULL: none. */
    tutti_status (*device_forward)(const tutti_op_args *p);
    tutti_status (*device_backward)(const tutti_op_args *p);
    /* Integers are read where they are: op.c need not copy to the host what a device computed. */
    bool device_integers;
    /* Other ranks compute it at the same time, and wait for this one in forward. */
    bool collective;
    /* Backward adds to source 0's gradient only in the rows that source 1 names, indices in host memory, and asks a parameter for its late
     * rows (tensor.h). */
    bool by_rows;
    /* For profiles (op_profile.h): FLOPs of a matrix product or convolution in forward; each factor's gradient takes as many again.
     * NULL: it only moves memory. */
    double (*flops)(const tutti__node *n);
} tutti__op;

/* Bit i of a mask over sources; all sources from 30 on are bit 30. */
static inline bool tutti__source_in(unsigned mask, int i)
{
    return mask >> (i < 30 ? i : 30) & 1;
}

/* What of a node backward has still to compute, or computes: */
typedef enum tutti__node_part {
    TUTTI__NODE_WHOLE,
    TUTTI__NODE_INPUTS, /* gradients of sources that are no parameters; the others later */
    TUTTI__NODE_WEIGHTS /* those of parameters, after the others */
} tutti__node_part;

struct tutti__node {
    tutti_ctx *cx;
    const tutti__op *op;
    int n_src;
    tutti_tensor **src; /* [n_src], as are the others; NULL: absent */
    bool *wants_grad;   /* needed a gradient when the node was recorded */
    bool reached;       /* set in backward: the loss depends on dst */
    tutti__node_part part;
    tutti_tensor *dst;
    void *attributes; /* the operation's options, in the arena */
    void *saved[2];   /* what forward keeps for backward, in the arena */
    /* Set by tutti__grad_of in backward; the tape adds them up. */
    tutti_tensor **src_grad;
    /* with a profile: when backward had computed the gradients of weights; else 0 */
    uint64_t weights_ns;
    tutti__node *previous, *next;
    tutti__recomputed *block; /* to which it belongs; NULL: none */
    tutti__node *block_next;
    bool kept; /* of a block: its result is not dropped */
};

/* A block of tutti_recompute: its operations in the order in which they ran, also those that are not on the tape. */
struct tutti__recomputed {
    tutti__node *first, *last;
    bool computed_again;
};

/* Whether source i is a parameter, so that the tape counted a use of it when it recorded n. */
static inline bool tutti__counts_use(const tutti__node *n, int i)
{
    return n->wants_grad[i] && n->src[i]->parameter;
}

/* Prefixes the message with `what`, the operation and its first named source: `backward of linear
 * "fc1.weight": `. */
tutti_status tutti__name_operation(const tutti__node *n, const char *what, tutti_status status);

/* *shape_p = the shape to which the sources broadcast, none of which is absent. */
tutti_status tutti__broadcast_shapes(const tutti_op_args *p, const char *const *names,
                                     tutti_shape *shape_p);
/* tutti_op_broadcast, where sources have names. */
tutti_status tutti__broadcast_named(const tutti_op_args *p, const char *const *names,
                                    tutti_shape *shape_p);
/* The context of the sources; NULL, with the message set, if all are NULL. */
tutti_ctx *tutti__context_of(const char *operation, tutti_tensor *const *src, int n_src);
/* What n's operation gets, without elements. */
tutti_op_args tutti__op_args(const tutti__node *n);
/* Computes n's result again, in place. */
tutti_status tutti__node_again(tutti__node *n);
/* Before backward of a node of the block: computes the dropped results. After that of its first: releases what is left of them. */
tutti_status tutti__recomputed_begin(tutti__recomputed *block);
void tutti__recomputed_end(const tutti__recomputed *block);
/* Runs n's backward on its context's kernels, or if a source is an empty batch on the family's `empty` table, as tutti__op_run
 * does in forward. */
tutti_status tutti__node_backward(tutti__node *n);

/* What n's kernels of op/elementwise.def get. */
static inline tutti__formula_args tutti__node_formula(const tutti__node *n)
{
    return (tutti__formula_args){.formula = n->op->formula,
                                 .reads = n->op->plain.backward_reads,
                                 .n_src = n->n_src,
                                 .src = n->src,
                                 .constants = n->attributes};
}

/* Run an operation's plain C: allocate results and gradients, and convert sources in other dtypes, layouts or memories to F32
 * on the host. UNSUPPORTED: there is neither plain C nor a kernel. */
tutti_status tutti__plain_forward(tutti__node *n);
tutti_status tutti__plain_backward(tutti__node *n);
/* Whether they can read a source that is lazy, and not stored, as such. */
bool tutti__plain_reads_lazy(const tutti__node *n, const tutti_tensor *t);

/* tutti_op_run with any number of sources if there are kernels; counts uses of parameters. op must outlive the step. */
tutti_tensor *tutti__op_run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                            const void *attributes, size_t attributes_bytes);

/* In backward: the destination of source i's gradient; NULL if it is not needed. It has no data
 * yet: the kernel allocates it in a layout of its choice. */
tutti_status tutti__grad_of(tutti__node *n, int i, tutti_tensor **grad_p);
/* The same for weights: has row-major data, a parameter's flat memory; `accumulate`: add, else
 * overwrite. */
tutti_status tutti__weight_grad_of(tutti__node *n, int i, tutti_tensor **grad_p);
/* In backward: the gradient of source i is `grad` itself (add, flatten): nothing is copied. */
void tutti__grad_pass(tutti__node *n, int i, tutti_tensor *grad);
/* The forward of operations that only change the shape. */
tutti_status tutti__reshape_forward(tutti__node *n);
tutti_status tutti__reshape_backward(tutti__node *n);
/* In backward of an operation with flops: the gradients of weights are computed, that of source 0 is next. */
static inline void tutti__weights_done(tutti__node *n)
{
    n->weights_ns = tutti__profile_begin(n->dst->cx);
}
/* A parameter's gradient as a destination: its flat memory, which counts as having contributions from now on.
 * NULL with the message set. */
tutti_tensor *tutti__parameter_grad(tutti_tensor *parameter);

#endif
