/* op.h -- what an operation is, and the node it leaves on the tape.   SPDX-License-Identifier: MIT
 *
 * An operation is one file, op/<name>.c: shape rule, forward, backward, and the public function that runs it. Its arithmetic is
 * plain C, which works on every device and in every dtype; kernels (kernel.h) replace it where that is faster. To add an
 * operation: its file, a prototype in <tutti/tensor.h>, a row in op/ops.def (docs/adding.md). */
#ifndef TUTTI_TENSOR_OP_H
#define TUTTI_TENSOR_OP_H

#include "tensor/kernel.h"
#include "tensor/op_profile.h"
#include "tensor/tensor.h"

#define TUTTI__MAX_SRC 4

/* What autocast does with an operation's activations, by PyTorch's lists where they have the operation. */
typedef enum tutti__cast {
    TUTTI__CAST_NONE, /* they keep their dtypes */
    TUTTI__CAST_LOW, /* 16 bit while autocast is on, else F32: matrix products and convolutions, which accumulate in F32 */
    TUTTI__CAST_F32, /* exponentials, logarithms and sums, which need F32's range or precision */
    TUTTI__CAST_WIDEST /* the widest among them */
} tutti__cast;

/* The tensors that an operation's plain C gets: F32 (labels and indices: I64), row-major, in host memory,
 * whatever their dtype, layout and device (plain.c). */
typedef struct tutti__plain {
    const tutti__node *n;            /* for shapes and attributes */
    const void *src[TUTTI__MAX_SRC]; /* NULL: absent, or in backward not in backward_reads */
    float *y;        /* forward writes all of it; in backward NULL unless in backward_reads */
    const float *dy; /* NULL in forward */
    /* backward writes all of them; NULL: not needed. They do not overlap */
    float *dsrc[TUTTI__MAX_SRC];
    float *kept;   /* kept from forward to backward; op->keeps elements */
    int64_t count; /* elements of y in this call */
} tutti__plain;

typedef struct tutti__op {
    const char *name;
    /* Checks the sources and sets the result's shape and dtype. The message need not name the
     * operation. */
    tutti_status (*shape)(const tutti__node *n, tutti_shape *shape_p, tutti_dtype *dtype_p);
    void (*plain_forward)(const tutti__plain *p);
    void (*plain_backward)(const tutti__plain *p);
    /* Element i of y, and of gradients, depends on element i of the sources only, all of one shape: the plain C may be called with
     * any range of elements, by several threads at once. */
    bool elementwise;
    int64_t (*keeps)(const tutti__node *n); /* NULL: nothing, as for all elementwise ones */
    /* For operations with kernels: they call those, or tutti__plain_forward and _backward. NULL: plain C only. */
    tutti_status (*forward)(tutti__node *n);
    /* Computes the gradients for which tutti__grad_of returns a destination. n->dst->grad is the gradient of the
     * result. */
    tutti_status (*backward)(tutti__node *n);
    /* Bit i: source i is an activation, and may be of 16 bit. All activations and the result have the same dtype when the
     * operation runs. Other real sources (weights, statistics) are F32. */
    unsigned activations;
    tutti__cast cast;
    /* Bit i: source i may be lazy (tensor.h): the kernels that make lazy tensors also read them here. Other sources are computed
     * before the operation runs. */
    unsigned lazy;
    /* Bit i: backward reads source i; TUTTI__READS_RESULT: y. Plain C gets only these, and profiles count them. */
    unsigned backward_reads;
    /* For profiles (op_profile.h): FLOPs of a matrix product or convolution in forward; each factor's gradient takes as many again.
     * NULL: it only moves memory. */
    double (*flops)(const tutti__node *n);
} tutti__op;

#define TUTTI__READS_RESULT (1u << TUTTI__MAX_SRC)

struct tutti__node {
    const tutti__op *op;
    tutti_tensor *src[TUTTI__MAX_SRC]; /* NULL: absent */
    bool wants_grad[TUTTI__MAX_SRC];   /* needed a gradient when the node was recorded */
    bool reached;                      /* set in backward: the loss depends on dst */
    int n_src;
    tutti_tensor *dst;
    void *attributes; /* the operation's options, in the arena */
    void *saved[2];   /* what forward keeps for backward, in the arena */
    /* Set by tutti__grad_of in backward; the tape adds them up. */
    tutti_tensor *src_grad[TUTTI__MAX_SRC];
    /* with a profile: when backward had computed the gradients of weights; else 0 */
    uint64_t weights_ns;
    tutti__node *previous, *next;
};

/* Whether source i is a parameter, so that the tape counted a use of it when it recorded n. */
static inline bool tutti__counts_use(const tutti__node *n, int i)
{
    return n->wants_grad[i] && n->src[i]->parameter;
}

/* Prefixes the message with `what`, the operation and its first named source: `backward of linear
 * "fc1.weight": `. */
tutti_status tutti__name_operation(const tutti__node *n, const char *what, tutti_status status);

/* Runs n's backward on its context's kernels, or if a source is an empty batch on the family's `empty` table, as tutti__op_run
 * does in forward. */
tutti_status tutti__node_backward(tutti__node *n);

/* Run an operation's plain C: allocate results and gradients, and convert sources in other dtypes, layouts or memories to F32
 * on the host. UNSUPPORTED: there is neither plain C nor a kernel. */
tutti_status tutti__plain_forward(tutti__node *n);
tutti_status tutti__plain_backward(tutti__node *n);

/* Runs an operation: passes poison on, checks shapes, computes, records the node if the tape is on
 * and a source needs a gradient (counting uses of parameters). attributes are copied. Never
 * returns NULL. */
tutti_tensor *tutti__op_run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                            const void *attributes, size_t attributes_bytes);

/* For shape: checks that source i exists, has the dtype (activations may be of 16 bit instead of F32), and as many dimensions as
 * in `dims`, such as "[N,C,H,W]" (NULL: any). `what` is its name in the message. */
tutti_status tutti__check_source(const tutti__node *n, int i, const char *what, const char *dims,
                                 tutti_dtype dtype);
/* A whole shape rule: the result is like source 0, and all other sources exist and have its shape. */
tutti_status tutti__shape_of_sources(const tutti__node *n, tutti_shape *shape_p,
                                     tutti_dtype *dtype_p);
/* The number of windows of `kernel` in `in` elements padded on both sides; may be 0. */
static inline int64_t tutti__windows(int64_t in, int64_t kernel, int64_t stride, int64_t padding)
{
    return in + 2 * padding < kernel ? 0 : (in + 2 * padding - kernel) / stride + 1;
}

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
