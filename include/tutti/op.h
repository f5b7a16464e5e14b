/* op.h -- an operation of one's own: shape rule, forward and backward in C.
 * SPDX-License-Identifier: MIT
 *
 *     static void forward(const tutti_op_args *p)
 *     {
 *         const float *x = p->src[0];
 *
 *         for (int64_t i = 0; i < p->count; i++)
 *             p->y[i] = x[i] * x[i];
 *     }
 *     ... backward: p->dsrc[0][i] = 2 * x[i] * p->dy[i]
 *
 *     static const tutti_op square = {.name = "square", .forward = forward, .backward = backward,
 *                                     .elementwise = true, .backward_reads = 1 << 0, .activations = 1 << 0};
 *     y = tutti_op_run(&square, &x, 1, NULL, 0);
 *
 * It runs with every set of kernels, in every dtype and on every device, as Tutti's own operations without kernels do, which are
 * declared in the same way (src/tensor/op/): the functions get F32 in host memory, row-major; tensors in 16 bit, in a kernel's
 * layout or on a GPU are converted and copied before and after. On the CPU in F32 nothing is copied, so that vector code in
 * forward and backward is as fast as a kernel. tutti_op_check tests it. Guide: docs/your-own-operation.md.
 * Threads: as tensor.h; forward and backward of an elementwise operation run on several threads at once. */
#ifndef TUTTI_OP_H
#define TUTTI_OP_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_OP_MAX_SOURCES 16

/* What the functions of an operation get; valid during the call. */
typedef struct tutti_op_args {
    tutti_ctx *cx;
    const void *attributes; /* the copy of those given to tutti_op_run, 16-byte aligned */
    int n_src;
    tutti_tensor *const *sources; /* [n_src], for their shapes and dtypes; NULL: absent */
    tutti_shape shape;            /* the result's; not yet set in the shape rule */
    /* [n_src] the sources' elements: float, of integer tensors int64_t. An element is NULL if the source is absent, or in backward
     * not in backward_reads. NULL in the shape rule */
    const void *const *src;
    /* [n_src] backward writes all of each that is not NULL; they do not overlap, and the tape adds up several gradients of one
     * tensor. NULL in forward */
    float *const *dsrc;
    float *y;         /* forward writes all of it; in backward NULL unless in backward_reads */
    int64_t *indices; /* instead of y if the shape rule has chosen I64 for the result */
    const float *dy;  /* the gradient of y; NULL in forward */
    float *kept;      /* kept from forward to backward, `keeps` elements */
    int64_t count;    /* elements of y in this call */
    const void *internal;
    uint64_t reserved[4];
} tutti_op_args;

/* What autocast does with an operation's activations, by PyTorch's lists. */
typedef enum tutti_op_autocast {
    TUTTI_OP_KEEP,  /* they keep their dtypes */
    TUTTI_OP_LOW,   /* 16 bit while autocast is on, else F32: products that sum in F32 */
    TUTTI_OP_F32,   /* exponentials, logarithms, and sums, which need F32's range or precision */
    TUTTI_OP_WIDEST /* the widest among them */
} tutti_op_autocast;

typedef struct tutti_op {
    const char *name; /* for messages and profiles; must outlive the context */
    /* Checks the sources, and sets the shape of the result. Its dtype is set already: that of source 0 if that is an activation of
     * 16 bit, else F32; it may choose I64 for a result without gradient. Fails by tutti_fail; the message need not name the
     * operation. NULL: tutti_op_broadcast. */
    tutti_status (*shape)(const tutti_op_args *p, tutti_shape *shape_p, tutti_dtype *dtype_p);
    void (*forward)(const tutti_op_args *p);
    void (*backward)(const tutti_op_args *p);
    bool
        no_grad; /* the result has no gradient, as a comparison's; then backward is not called. So has an I64 result */
    /* Element i of y, and of gradients, depends on element i of the sources only: forward and backward get ranges of elements, from
     * several threads. Sources that are broadcast arrive expanded to the result's shape, and their gradients are summed. */
    bool elementwise;
    /* Bit i: backward reads source i; TUTTI_OP_RESULT: y. It gets only these. */
    unsigned backward_reads;
    /* Bit i: source i is an activation, and may be of 16 bit; all activations have one dtype when the operation runs. Other real
     * sources (weights, statistics) are F32. */
    unsigned activations;
    tutti_op_autocast autocast;
    /* How many floats forward keeps for backward; NULL: none, as for all elementwise ones. */
    int64_t (*keeps)(const tutti_op_args *p);
    uint64_t reserved[4]; /* zero */
} tutti_op;

/* In backward_reads: the result. */
#define TUTTI_OP_RESULT (1u << 31)

/* Runs op: passes poison on, checks shapes, computes, and records it if the tape is on and a source needs a gradient. `src` has
 * n_src tensors (1 to 16; NULL: absent, but not all); attributes are copied, NULL for none. The result is poisoned on errors; NULL
 * only if all sources are NULL. */
TUTTI_API tutti_tensor *tutti_op_run(const tutti_op *op, tutti_tensor *const *src, int n_src,
                                     const void *attributes, size_t attributes_bytes);

/* ---- For shape rules, forward and backward ------------------------------------------------------- */

/* A whole shape rule: every source exists and is real, and the result has the shape to which they broadcast, as in PyTorch:
 * shapes are aligned at their last dimensions, and a dimension that is 1 or missing is repeated. */
TUTTI_API tutti_status tutti_op_broadcast(const tutti_op_args *p, tutti_shape *shape_p,
                                          tutti_dtype *dtype_p);
/* Checks that source i exists, has this dtype (activations may be of 16 bit instead of F32), and as many dimensions as in `dims`,
 * such as "[N,C,H,W]" (NULL: any). `what` is its name in the message. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_op_check_source(const tutti_op_args *p, int i,
                                                             const char *what, const char *dims,
                                                             tutti_dtype dtype);
/* Calls job(arg, i) for i in [0, n) on the context's threads, and returns when all are done. Jobs must not depend on each other.
 * For forward and backward that are not elementwise. */
TUTTI_API void tutti_op_parallel(const tutti_op_args *p, void (*job)(void *arg, int64_t i),
                                 void *arg, int64_t n);

/* ---- A test ---------------------------------------------------------------------------------------- */

/* Zero means default. */
typedef struct tutti_op_check_opts {
    double tolerance; /* of gradients, relative to max(1, their size); default 1e-2 */
    double
        half_tolerance; /* of results in BF16, relative to the largest; default 3e-2. The sources are rounded, too */
    /* Bit i: source i is not one of a batch, like a weight: its first dimension stays when the batch changes. */
    unsigned weights;
    uint64_t reserved[4]; /* zero */
} tutti_op_check_opts;

/* Tests what `call` makes of the sources as Tutti tests its own operations, in contexts of its own on the CPU: gradients against
 * finite differences; the same bits with one thread and with three, with the batch repeated until there are several parts;
 * BF16 near F32 where the sources are activations; a batch of 0. The first dimension of each array is the batch. INTERNAL if the
 * operation fails one of these, with a message that says which and by how much. opts may be NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_op_check(tutti_tensor *(*call)(tutti_tensor *const *src, void *arg), void *arg,
               const tutti_array *sources, int n_sources, const tutti_op_check_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
