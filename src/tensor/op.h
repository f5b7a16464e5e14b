/* op.h -- what an operation is, and the node it leaves on the tape.   SPDX-License-Identifier: MIT
 *
 * An operation is one file, op/<name>.c: shape rule, forward, backward, and the public function that runs it. Its arithmetic
 * is plain C, which is enough on every device and in every dtype; where it pays, kernels (kernel.h) take its place. Adding
 * an operation: its file, a prototype in <tutti/tensor.h>, a row in op/ops.def (docs/adding.md). */
#ifndef TUTTI_TENSOR_OP_H
#define TUTTI_TENSOR_OP_H

#include "tensor/kernel.h"
#include "tensor/profile.h"
#include "tensor/tensor.h"

#define TUTTI__MAX_SRC 4

/* What autocast makes of an operation's activations. The lists are PyTorch's, as far as it has them. */
typedef enum tutti__cast {
    TUTTI__CAST_NONE, /* they stay as they come */
    TUTTI__CAST_LOW,  /* 16 bit while autocast is on, else F32: products, which accumulate in F32 */
    TUTTI__CAST_F32,  /* exponentials, logarithms and sums that 16 bits do not hold */
    TUTTI__CAST_WIDEST /* the widest among them */
} tutti__cast;

/* An operation's tensors as its plain C sees them: F32 (labels and indices: I64), row-major, in memory of the host,
 * whatever their dtype, layout and device (plain.c). */
typedef struct tutti__plain {
    const tutti__node *n; /* for shapes and attributes */
    const void *src
        [TUTTI__MAX_SRC]; /* NULL: absent, or in backward one that backward_reads does not name */
    float *y;        /* forward writes all of it; in backward NULL unless backward_reads names it */
    const float *dy; /* NULL in forward */
    float *dsrc
        [TUTTI__MAX_SRC]; /* gradients, for backward to write all of; NULL: not wanted. They overlap nothing */
    float *kept;   /* as many as op->keeps says, from forward to backward */
    int64_t count; /* elements of y here */
} tutti__plain;

typedef struct tutti__op {
    const char *name;
    /* Checks the sources and says the result's shape and dtype. The message need not name the
     * operation. */
    tutti_status (*shape)(const tutti__node *n, tutti_shape *shape_p, tutti_dtype *dtype_p);
    void (*plain_forward)(const tutti__plain *p);
    void (*plain_backward)(const tutti__plain *p);
    /* Element i of y is made of element i of the sources, all of one shape, and so are gradients: the plain C may be given
     * any run of elements, by several threads at a time. */
    bool elementwise;
    int64_t (*keeps)(const tutti__node *n); /* NULL: nothing; always so where elementwise */
    /* Where more than plain C is to run: they choose between kernels and tutti__plain_forward and _backward. NULL: those. */
    tutti_status (*forward)(tutti__node *n);
    /* Asks tutti__grad_of for what is wanted and fills it. n->dst->grad is the gradient of the
     * result. */
    tutti_status (*backward)(tutti__node *n);
    /* Bit i: source i is an activation, and may be of 16 bit. Of 16 bit or not, they are all alike when the operation
     * sees them, and so is its result. What else is real (weights, statistics) is F32. */
    unsigned activations;
    tutti__cast cast;
    /* Bit i: source i may be lazy (tensor.h): the kernels that make such tensors read it so. Others are computed before. */
    unsigned lazy;
    /* Bit i: backward reads source i; TUTTI__READS_RESULT: y. Plain C is given these, profiles count them. */
    unsigned backward_reads;
    /* For profiles (profile.h): FLOPs of a matrix product or convolution, of which backward has two, one for each factor's
     * gradient; NULL: it only moves memory. */
    double (*flops)(const tutti__node *n);
} tutti__op;

#define TUTTI__READS_RESULT (1u << TUTTI__MAX_SRC)

struct tutti__node {
    const tutti__op *op;
    tutti_tensor *src[TUTTI__MAX_SRC]; /* NULL: absent */
    bool wants_grad[TUTTI__MAX_SRC];   /* needed a gradient when the node was recorded */
    bool reached;                      /* backward's: the loss depends on dst */
    int n_src;
    tutti_tensor *dst;
    void *attributes; /* the operation's options, in the arena */
    void *saved[2];   /* what forward keeps for backward, in the arena */
    /* Set by tutti__grad_of in backward; the tape adds them up. */
    tutti_tensor *src_grad[TUTTI__MAX_SRC];
    uint64_t
        weights_ns; /* where a profile is kept: when backward had the gradients of weights; else 0 */
    tutti__node *previous, *next;
};

/* Whether source i is a parameter whose use the tape counted when it recorded n. */
static inline bool tutti__counts_use(const tutti__node *n, int i)
{
    return n->wants_grad[i] && n->src[i]->parameter;
}

/* Puts what, the operation and its first named source before the message: `backward of linear
 * "fc1.weight": `. */
tutti_status tutti__name_operation(const tutti__node *n, const char *what, tutti_status status);

/* Runs n's backward, as tutti__op_run its forward: on its context's kernels, or if a source is an empty batch on those that
 * the family has for that (`empty`). */
tutti_status tutti__node_backward(tutti__node *n);

/* Those of an operation's plain C: results and gradients get memory, sources in other dtypes, layouts and memories are brought to
 * the host as F32. UNSUPPORTED: it has none, and the kernels at hand none either. */
tutti_status tutti__plain_forward(tutti__node *n);
tutti_status tutti__plain_backward(tutti__node *n);

/* Runs an operation: passes poison on, checks shapes, computes, records the node if the tape is on
 * and a source needs a gradient (counting uses of parameters). attributes are copied. Never
 * returns NULL. */
tutti_tensor *tutti__op_run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                            const void *attributes, size_t attributes_bytes);

/* For shape: source i is there, has the dtype (an activation that should be F32 may be of 16 bit), and as many dimensions as
 * `dims` names, as in "[N,C,H,W]" (NULL: any). `what` is its name in the message. */
tutti_status tutti__check_source(const tutti__node *n, int i, const char *what, const char *dims,
                                 tutti_dtype dtype);
/* A whole shape rule: the result is as source 0, and the others, as many as the operation has, are there and of its shape. */
tutti_status tutti__shape_of_sources(const tutti__node *n, tutti_shape *shape_p,
                                     tutti_dtype *dtype_p);
/* How many windows of `kernel` fit into `in` elements padded on both sides; 0 if none. */
static inline int64_t tutti__windows(int64_t in, int64_t kernel, int64_t stride, int64_t padding)
{
    return in + 2 * padding < kernel ? 0 : (in + 2 * padding - kernel) / stride + 1;
}

/* In backward: where to put the gradient of source i, or NULL if it is not wanted. It has no data
 * yet: the kernel allocates it in the layout it likes. */
tutti_status tutti__grad_of(tutti__node *n, int i, tutti_tensor **grad_p);
/* The same for weights: has row-major data, a parameter's flat memory, and `accumulate` says write
 * or add. */
tutti_status tutti__weight_grad_of(tutti__node *n, int i, tutti_tensor **grad_p);
/* In backward: the gradient of source i is `grad` itself (add, flatten): nothing is copied. */
void tutti__grad_pass(tutti__node *n, int i, tutti_tensor *grad);
/* Of reshape and what else only says another shape of the same elements. */
tutti_status tutti__reshape_forward(tutti__node *n);
tutti_status tutti__reshape_backward(tutti__node *n);
/* In backward of an operation with flops: the gradients of weights are there, that of source 0 comes next. */
static inline void tutti__weights_done(tutti__node *n)
{
    n->weights_ns = tutti__profile_begin(n->dst->cx);
}
/* A parameter's gradient as a destination: its flat memory, which from now on holds contributions.
 * NULL with the message made. */
tutti_tensor *tutti__parameter_grad(tutti_tensor *parameter);

#endif
