/* tensor.h -- the inside of a tensor and of a context.   SPDX-License-Identifier: MIT
 *
 * Three lifetimes: persistent (parameters and buffers: memory of their module), step (results of
 * operations: memory of the context's arena until tutti_step_end), view (input arrays and
 * reshapes: memory of somebody else). */
#ifndef TUTTI_TENSOR_TENSOR_H
#define TUTTI_TENSOR_TENSOR_H

#include "base/base.h"
#include "device/device.h"
#include <tutti/autograd.h>
#include <tutti/tensor.h>

typedef struct tutti__node tutti__node;       /* op.h */
typedef struct tutti__kernels tutti__kernels; /* kernel.h */

/* How the elements lie in memory, if not row-major: a kernel's own blocked layout. Interned by the
 * context: equal layouts are one pointer, so elementwise kernels may run flat over equal pointers
 * (padding is kept zero). */
typedef struct tutti__layout {
    size_t bytes;     /* of the whole tensor, padding included */
    const void *desc; /* the kernel family's description (oneDNN: a memory descriptor) */
} tutti__layout;

/* How to compute an activation that is not stored: its readers compute it from x while they read that, and for those that
 * cannot, tutti__tensor_compute stores it after all. x's memory is there as long as the activation may be read. */
typedef struct tutti__lazy {
    tutti_tensor *x;
    tutti_status (*compute)(tutti_tensor *t); /* gives t memory, of its layout, and its elements */
} tutti__lazy;

/* What only parameters have. */
typedef struct tutti__parameter {
    char name[128]; /* full, as in state_dict */
    size_t index;   /* in its root, creation order */
    bool requires_grad;
    float *grad;           /* row-major, in flat gradient memory; NULL until laid out */
    uint64_t grad_round;   /* == *round: grad holds contributions; else the next one overwrites */
    const uint64_t *round; /* the root's zero_grad count (starts at 1) */
    uint64_t zeroed;       /* how often zero_grad of a module below the root dropped grad */
    uint32_t uses;         /* reads by the current tape that backward has not yet taken back */
    uint64_t uses_step;    /* the step that `uses` belongs to: older counts are void */
    unsigned char
        *touched;     /* sparse: a byte a row, 1 where grad may be other than zero; else NULL */
    bool all_touched; /* an operation wrote into every row, whatever touched says */
    tutti_status (*prepare)(
        void *owner); /* lays flat gradient memory out; called by backward if grad is NULL */
    void *owner;
} tutti__parameter;

struct tutti_tensor {
    tutti_ctx *cx;
    tutti_shape shape;
    tutti_dtype dtype;
    void *data; /* the device's; NULL: not yet computed (a destination, or lazy), or poisoned */
    const tutti__lazy *lazy;     /* NULL: the elements are in data */
    const void *host;            /* of an input: where its elements are on the host; else NULL */
    const tutti__layout *layout; /* NULL: row-major */
    bool needs_grad;             /* a parameter that requires it, or computed from one */
    bool accumulate;    /* as a destination with data set: add to it rather than overwrite */
    bool shared;        /* data also belongs to another tensor: do not write into it */
    bool intermediate;  /* made in a model's forward, and not its result */
    bool released;      /* an activation whose memory may have been handed out again */
    tutti__node *node;  /* that made it; NULL for inputs, parameters, buffers */
    tutti_tensor *grad; /* during backward; also of leaves afterwards */
    tutti__parameter *parameter; /* NULL unless a parameter */
    const char *name;            /* buffers' and parameters' full name, else "" */
    tutti_status poison;         /* OK unless the operation that made it failed */
    const char *poison_text;     /* the first cause, in the arena */
    void *kernel_cache; /* kernels' own: a parameter's weights in a blocked layout, for one round */
    uint64_t kernel_cache_step; /* the round of the cache; 0: none */
    uint64_t serial;            /* cx->serial when it was made; 0: persistent */
};

/* Memory of the step that nothing reads any more, to be handed out again. */
typedef struct tutti__spare {
    struct tutti__spare *next;
    void *data;
    size_t bytes;
} tutti__spare;

/* An array of the host that is being copied to the device already. */
typedef struct tutti__copied {
    const void *host; /* NULL: none */
    void *device;
    size_t bytes;
    tutti__event *event; /* passed when it is there */
} tutti__copied;

typedef struct tutti__thread_pool tutti__thread_pool;

struct tutti_ctx {
    tutti_device device;
    const tutti__device_ops *device_ops;
    tutti_stream *stream;              /* kernels, and copies to and from tensors */
    tutti__copied ahead[2];            /* the batch at hand: inputs that need no copy */
    const tutti__kernels *kernels;     /* of the operation at hand; outside of one, of F32 */
    const tutti__kernels *f32_kernels; /* the family's */
    const tutti__kernels *bf16_kernels, *f16_kernels; /* NULL: not asked for yet */
    bool emulate_half;                                /* 16-bit arithmetic may be emulated */
    tutti_dtype autocast;                             /* of products; F32: off */
    void *kernel_state; /* kernels' own: engine, cached primitives, interned layouts */
    uint64_t seed, shard;
    bool shard_chosen;        /* by the caller */
    int threads;              /* of kernels, the caller among them */
    bool nondeterministic;    /* algorithms whose bits vary will do */
    bool threads_have_cores;  /* each one, beside the other ranks of this host */
    tutti__thread_pool *pool; /* parallel.c's; NULL: not needed yet */
    tutti__arena arena;       /* of the step: what the host reads (nodes, tensors, texts) */
    tutti__arena memory,
        small; /* of the step: elements, on the device; small ones apart (tensor.c) */
    bool in_step, eval, recording; /* recording: the tape is on */
    bool in_model;                 /* in a model's forward */
    bool backward_done;            /* in this step */
    uint64_t step;                 /* training steps begun; 1 in the first */
    uint64_t round;  /* steps begun and backwards done: stamps what holds until the optimizer */
    uint64_t serial; /* 1 + steps ended: stamps step tensors */
    uint32_t dropout_calls; /* in this step */
    tutti__node *first_node, *last_node;
    size_t n_nodes, n_parameters;     /* on the tape; parameters counted once */
    tutti__spare *spare, *host_spare; /* of `memory` and `small`, and of `arena` */
    tutti__spare *spare_activations;  /* those released: taken where nothing in `spare` fits */
    tutti__spare *spare_entries;      /* that stand for nothing */
    tutti_status step_status;         /* a failure of step_begin: poisons the step's results */
    const char *step_text;
    tutti_tensor out_of_memory;  /* the poisoned tensor that needs no memory */
    uint64_t kernel_allocations; /* counted by kernels that allocate outside the arena */
    tutti_backward_listener listener;
    tutti__recorder *recorder; /* NULL: no trace */
    struct tutti__profile *
        profile; /* of operations (profile.h); NULL: none, as on devices that compute behind the host */
};

static inline bool tutti__is_half(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

/* ---- For operations and kernels -------------------------------------------------------------- */

/* A step tensor without data: a destination. NULL, with the message made, only when the arena is
 * out of memory. */
tutti_tensor *tutti__tensor_new(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype);
/* Gives it memory from the arena: of layout->bytes, or row-major for NULL. Recycles what backward
 * has released. */
tutti_status tutti__tensor_alloc(tutti_tensor *t, const tutti__layout *layout);
/* Lets tutti__tensor_alloc hand t's memory out again: step memory that nothing reads any more. Nothing if it has been taken. */
void tutti__tensor_release(tutti_tensor *t);
/* The same for an activation, which others may still point to: reading it is then an error. */
void tutti__activation_release(tutti_tensor *t);
/* Memory for t, of `from`'s layout: that of `from` itself, which then has none, if nobody else has it; for a kernel that writes an element
 * where it has read the same one for the last time. Else as tutti__tensor_alloc. */
tutti_status tutti__tensor_take(tutti_tensor *t, tutti_tensor *from);
/* Stores t's elements if it is lazy; then it is so no longer. */
tutti_status tutti__tensor_compute(tutti_tensor *t);
/* Row-major elements of t: t->data itself, or a copy in the arena made by the kernels' reorder. */
tutti_status tutti__tensor_row_major(tutti_tensor *t, const void **p);
/* The row-major elements of t in another shape of as many elements. NULL with the message made. */
tutti_tensor *tutti__tensor_view(tutti_tensor *t, tutti_shape shape);
/* A poisoned result with the thread's last message; status is the message's. Never NULL. */
tutti_tensor *tutti__poisoned(tutti_ctx *cx, tutti_status status);
/* STATE if t belongs to a step that has ended (as long as its memory still shows it); ARG if t is
 * NULL. */
tutti_status tutti__tensor_alive(const tutti_tensor *t);
/* "[32,3,8,8]", in one of 8 buffers of the thread. */
const char *tutti__shape_text(tutti_shape shape);
/* MEMORY if the bytes of so many elements cannot be counted. */
tutti_status tutti__shape_check(tutti_shape shape);
size_t tutti__tensor_bytes(const tutti_tensor *t); /* row-major */
/* For the step, 64-byte aligned: memory of the host, and of the device, which only kernels and copies touch. NULL with the
 * message made. */
void *tutti__step_alloc(tutti_ctx *cx, size_t bytes);
void *tutti__step_memory(tutti_ctx *cx, size_t bytes);
/* Memory of the host for a while: what was given back is handed out again in the same step. NULL with the message made. */
void *tutti__scratch_take(tutti_ctx *cx, size_t bytes);
void tutti__scratch_give(tutti_ctx *cx, void *p, size_t bytes); /* `bytes` as taken */

/* A persistent tensor (module's memory, not the arena's); freed with free(). data is the caller's
 * business. */
tutti_tensor *tutti__tensor_persistent(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype);

#endif
