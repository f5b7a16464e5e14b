/* tensor.h -- the structs of a tensor and of a context.   SPDX-License-Identifier: MIT
 *
 * Three lifetimes: persistent (parameters and buffers: memory of their module), step (results of
 * operations: memory of the context's arena until tutti_step_end), view (input arrays and
 * reshapes: borrowed memory). */
#ifndef TUTTI_TENSOR_TENSOR_H
#define TUTTI_TENSOR_TENSOR_H

#include "base/base.h"
#include "device/device.h"
#include <tutti/autograd.h>
#include <tutti/tensor.h>

typedef struct tutti__node tutti__node;             /* op.h */
typedef struct tutti__kernels tutti__kernels;       /* kernel.h */
typedef struct tutti__recomputed tutti__recomputed; /* op.h */

/* The memory format, if not row-major: a kernel's own blocked layout. Interned by the context: equal layouts have the same
 * pointer, so elementwise kernels may run over flat memory if pointers are equal (padding is kept zero). */
typedef struct tutti__layout {
    size_t bytes;     /* of the whole tensor, padding included */
    const void *desc; /* the kernel family's description (oneDNN: a memory descriptor) */
} tutti__layout;

/* How to compute an activation that is not kept. Some readers compute it while they read x; for the others it is stored while they
 * run (op.c), or for good if they take its memory. x's memory is kept as long as the activation may be read. */
typedef struct tutti__lazy {
    tutti_tensor *x;
    tutti_status (*compute)(tutti_tensor *t); /* gives t memory, of its layout, and its elements */
    /* Of F32 in host memory, without padding: writes n elements to `to`, from element `from` on in the order in memory. Any thread. NULL: only
     * `compute`. */
    void (*read)(const tutti_tensor *t, int64_t from, int64_t n, float *to);
} tutti__lazy;

/* Where operations that add to rows of a parameter's gradient find them, while the rest of it is being reduced. *values_p: row k is at
 * row place[k]; NULL: in the gradient itself. */
typedef struct tutti__late_rows {
    void *self;
    tutti_status (*get)(void *self, const tutti_tensor *parameter, float **values_p,
                        const int32_t **place_p);
} tutti__late_rows;

/* For parameters whose elements are not always in their memory. */
typedef struct tutti__store {
    /* Before an operation reads them: then they are in t->data, at least until this is next called with `first`, for the first parameter
     * of another operation. as: BF16 or F16 if it only reads what they are when rounded to that, so that they may be rounded; else F32. */
    tutti_status (*need)(tutti_tensor *t, bool first, tutti_dtype as);
    /* For a program. NULL: after `need` as those of others. */
    tutti_status (*read)(const tutti_tensor *t, void *dst);
    tutti_status (*write)(tutti_tensor *t, const void *src);
} tutti__store;

/* The part that only parameters have. */
typedef struct tutti__parameter {
    char name[128]; /* full, as in state_dict */
    size_t index;   /* in its root, creation order */
    bool requires_grad;
    bool leading_rows; /* a file may have more rows, of which these are the first: positions */
    /* not in norms: another of the root's norm_peers has it too, and counts it; or each of DDP's ranks has its own */
    bool counted_by_peer;
    float *grad;           /* row-major, in flat gradient memory; NULL until laid out */
    uint64_t grad_round;   /* == *round: grad holds contributions; else the next one overwrites */
    const uint64_t *round; /* the root's zero_grad count (starts at 1) */
    uint64_t zeroed;       /* how often zero_grad of a submodule dropped grad */
    uint32_t uses;         /* reads by the current tape that backward has not yet reached */
    uint64_t uses_step;    /* the step that `uses` belongs to: older counts are invalid */
    /* In backward: how many of the uses only add to rows of the gradient (op.h); and, if some do and all other uses end before the last
     * of them, how many parameters are final before those uses have ended; else NOT_LATE. */
    uint32_t row_uses, all_uses; /* all_uses: before any has ended */
    bool later; /* in the last backward, its gradient was left to tutti__backward_weights */
    bool
        apart; /* always its gradient is left to tutti__backward_weights: the order of its parts is the caller's */
    size_t rest_place;
    const tutti__late_rows *late_rows; /* NULL: in the gradient */
    /* sparse: a byte per row, 1 if grad may be non-zero there; dense: NULL */
    unsigned char *touched;
    bool all_touched;          /* an operation wrote to all rows, whatever touched contains */
    const tutti__store *store; /* NULL: its elements are in its memory */
    /* before a contribution: grad has memory, at the first one with any contents; NULL: it always has */
    tutti_status (*bring_grad)(tutti_tensor *t);
    /* lays flat gradient memory out; called by backward if grad is NULL */
    tutti_status (*prepare)(void *owner);
    void *owner;
} tutti__parameter;

#define TUTTI__NOT_LATE SIZE_MAX

struct tutti_tensor {
    tutti_ctx *cx;
    tutti_shape shape;
    tutti_dtype dtype;
    void *data; /* on the device; NULL: not yet computed (a destination, or lazy), or poisoned */
    const tutti__lazy *lazy; /* without data, the elements are computed so; NULL: data is kept */
    const void *host;        /* of an input: its elements in host memory; else NULL */
    const tutti__layout *layout; /* NULL: row-major */
    bool needs_grad;             /* a leaf that requires it, or computed from one */
    bool accumulate;   /* as a destination with data set: add to it rather than overwrite */
    bool shared;       /* data also belongs to another tensor: do not write into it */
    bool intermediate; /* made in a model's forward, and not its result */
    bool released;     /* an activation whose memory may have been reused */
    bool kept; /* backward reads the elements, or those of a lazy tensor are computed from them */
    bool last_read;              /* no operation of the forward pass reads it after the next one */
    bool held;                   /* part of backward is still to read it (autograd/backward.h) */
    tutti_tensor *viewed;        /* a parameter, in whose memory data is; NULL: none */
    tutti__node *node;           /* that made it; NULL for inputs, parameters, buffers */
    tutti_tensor *grad;          /* during backward; of leaves also afterwards */
    tutti__parameter *parameter; /* NULL unless a parameter */
    const char *name;            /* buffers' and parameters' full name, else "" */
    tutti_status poison;         /* OK unless the operation that made it failed */
    const char *poison_text;     /* the first cause, in the arena */
    void *kernel_cache;          /* a parameter's weights in the kernels' layout, for one round */
    uint64_t kernel_cache_step;  /* the round of the cache; 0: none */
    uint64_t serial;             /* cx->serial when it was made; 0: persistent */
};

/* Memory of the step that nothing reads any more, for reuse. */
typedef struct tutti__spare {
    struct tutti__spare *next;
    void *data;
    size_t bytes;
} tutti__spare;

/* A host array whose copy to the device is already in flight. */
#define TUTTI__AHEAD 8 /* arrays of a batch, at most */

typedef struct tutti__copied {
    const void *host; /* NULL: none */
    void *device;
    size_t bytes;
    tutti__event *event; /* passes when the copy is complete */
} tutti__copied;

typedef struct tutti__thread_pool tutti__thread_pool;

struct tutti_module;

/* Who records what a step computes, while it does. Any function may be NULL. The tensors have their elements only until it returns. */
typedef struct tutti__step_observer {
    void *self;
    /* A module's forward has returned y; with: what else the layer has computed in the same pass, as "relu"; NULL: nothing. */
    void (*forward)(void *self, const struct tutti_module *m, const char *with, tutti_tensor *y);
    /* In backward: y->grad is complete. */
    void (*backward)(void *self, tutti_tensor *y);
    /* The gradient of a parameter is about to be averaged over ranks. */
    void (*gradient)(void *self, tutti_tensor *parameter);
} tutti__step_observer;

struct tutti_ctx {
    tutti_device device;
    const tutti__device_ops *device_ops;
    tutti_stream *stream;              /* kernels, and copies to and from tensors */
    tutti__copied ahead[TUTTI__AHEAD]; /* the current batch: inputs that need no copy */
    const tutti__kernels *kernels;     /* of the running operation; outside of one, for F32 */
    const tutti__kernels *f32_kernels; /* the family's */
    const tutti__kernels *bf16_kernels, *f16_kernels; /* NULL: not needed yet */
    bool emulate_half;                                /* 16-bit arithmetic may be emulated */
    tutti_dtype autocast;                             /* of products; F32: off */
    void *kernel_state; /* of the kernels: engine, cached primitives, interned layouts */
    uint64_t seed, shard;
    bool shard_chosen;        /* by the caller */
    int threads;              /* of kernels, including the caller */
    bool nondeterministic;    /* algorithms whose bits vary are allowed */
    bool tf32;                /* a GPU may round factors of F32 products to TF32 */
    bool threads_have_cores;  /* each one has a core, given the other ranks of this host */
    tutti__thread_pool *pool; /* parallel.c's; NULL: not needed yet */
    tutti__arena arena;       /* of the step: what the host reads (nodes, tensors, texts) */
    /* of the step: elements, on the device; small tensors separately (tensor.c) */
    tutti__arena memory, small;
    bool defers_parameters;        /* they are drawn when they are first used or laid out */
    bool in_step, eval, recording; /* recording: the tape is on */
    bool in_model;                 /* in a model's forward */
    /* of a language model that continues a text (nn/kv_cache.h); NULL: none */
    struct tutti__kv_cache *kv_cache;
    bool backward_done;       /* in this step */
    bool computing;           /* an operation is running */
    bool recomputing;         /* backward computes results of a block again */
    tutti__recomputed *block; /* of tutti_recompute, whose forward runs; NULL: none */
    uint64_t step;            /* training steps begun; 1 in the first */
    uint64_t round;           /* of steps and backwards: stamps what the optimizer invalidates */
    uint64_t serial;          /* stamps the step's tensors */
    uint64_t rounds, serials; /* the last ones given */
    int n_parked;             /* open steps that are parked: kernels keep what they may read */
    uint32_t dropout_calls;   /* in this step */
    tutti__node *first_node, *last_node;
    size_t n_nodes, n_parameters;     /* on the tape; parameters counted once */
    tutti__spare *spare, *host_spare; /* of `memory` and `small`, and of `arena` */
    tutti__spare *spare_activations;  /* released activations: reused if nothing in `spare` fits */
    tutti__spare *of_operation;       /* memory of the running operation */
    tutti__spare *spare_entries;      /* unused entries */
    tutti_status step_status;         /* a failure of step_begin: poisons the step's results */
    const char *step_text;
    tutti_tensor out_of_memory;  /* the poisoned tensor for when there is no memory */
    uint64_t kernel_allocations; /* counted by kernels that allocate outside the arena */
    const tutti_peers *peers;    /* among which layers are divided; NULL: none */
    tutti_backward_listener listener;
    /* Of DDP, with the listener's self, before `ready` for some: the gradient of a parameter is final but for rows to which embeddings
     * will add, as that of a table whose head is tied to it. Set after the listener. May be NULL. */
    void (*ready_but_rows)(void *self, tutti_tensor *parameter);
    const tutti__step_observer *observer; /* of the steps that are computed; NULL: none */
    tutti__recorder *recorder;            /* NULL: no trace */
    /* of operations (op_profile.h); NULL: none, as on devices that compute asynchronously */
    struct tutti__profile *profile;
};

/* A training step set aside, so that the context can compute another one (parked.c). */
typedef struct tutti__parked {
    tutti__arena arena, memory, small;
    bool in_step, eval, recording, backward_done;
    uint64_t step, round, serial;
    uint32_t dropout_calls;
    tutti_dtype autocast;
    tutti__node *first_node, *last_node;
    size_t n_nodes, n_parameters;
    tutti__spare *spare, *host_spare, *spare_activations, *spare_entries;
    tutti_status step_status;
    const char *step_text;
} tutti__parked;

/* Makes a place for a step: in it none is open. */
void tutti__parked_init(tutti_ctx *cx, tutti__parked *parked);
/* Exchanges the context's step and the parked one; either may not be open. Between operations. */
void tutti__parked_swap(tutti_ctx *cx, tutti__parked *parked);
/* Frees the memory of a step that is not open. */
void tutti__parked_destroy(tutti__parked *parked);

static inline bool tutti__is_half(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

/* ---- For operations and kernels -------------------------------------------------------------- */

/* A step tensor without data: a destination. NULL, with the message set, only when the arena is
 * out of memory. */
tutti_tensor *tutti__tensor_new(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype);
/* Gives it memory from the arena: of layout->bytes, or row-major for NULL. Recycles what backward
 * has released. */
tutti_status tutti__tensor_alloc(tutti_tensor *t, const tutti__layout *layout);
/* Lets tutti__tensor_alloc reuse t's memory, step memory that nothing reads any more. No effect if it was taken already. */
void tutti__tensor_release(tutti_tensor *t);
/* The same for an activation, which others may still point to: reading it is then an error. */
void tutti__activation_release(tutti_tensor *t);
/* In a model's forward: the operation that gets t next is the last to read it, so that its memory can be used again unless backward
 * needs it. Of a view, the memory under it. Returns t. */
tutti_tensor *tutti__last_read(tutti_tensor *t);
/* Gives t the memory and layout of `from`, which then has none, if no other tensor shares it: for a kernel that writes each
 * element after reading the same one for the last time. Else as tutti__tensor_alloc. */
tutti_status tutti__tensor_take(tutti_tensor *t, tutti_tensor *from);
/* Makes t's elements available, if it is a parameter or a view of one. first, as: as in tutti__store. */
tutti_status tutti__tensor_need(const tutti_tensor *t, bool first, tutti_dtype as);
/* Stores t's elements if it is lazy and they are not stored. */
tutti_status tutti__tensor_compute(tutti_tensor *t);
/* Row-major elements of t: t->data itself, or a copy in the arena made by the kernels' reorder. */
tutti_status tutti__tensor_row_major(tutti_tensor *t, const void **p);
/* The row-major elements of t in another shape of the same size, as long as t has them. NULL with the message set. */
tutti_tensor *tutti__tensor_view(tutti_tensor *t, tutti_shape shape);
/* [R,last]: the leading dimensions of shape folded into rows. */
tutti_shape tutti__shape_rows(tutti_shape shape);
/* t as rows: itself if it has two dimensions, else a view; NULL as above. */
tutti_tensor *tutti__tensor_rows(tutti_tensor *t);
/* After a failure, with the thread's last message, which stays: ranks among which layers are divided do not wait for this one. */
void tutti__tell_peers(const tutti_ctx *cx, tutti_status status);
/* A poisoned result with the thread's last message; with its status. Never NULL. */
tutti_tensor *tutti__poisoned(tutti_ctx *cx, tutti_status status);
/* STATE if t belongs to a step that has ended (as far as its memory still shows that); ARG if t is
 * NULL. */
tutti_status tutti__tensor_alive(const tutti_tensor *t);
/* "[32,3,8,8]", in one of 8 buffers of the thread. */
const char *tutti__shape_text(tutti_shape shape);
/* MEMORY if the size in bytes overflows. */
tutti_status tutti__shape_check(tutti_shape shape);
size_t tutti__tensor_bytes(const tutti_tensor *t); /* row-major */
/* Memory of elements until the running operation's forward or backward ends. NULL with the message set. */
void *tutti__operation_memory(tutti_ctx *cx, size_t bytes);
void tutti__operation_memory_end(tutti_ctx *cx);
/* For the step, 64-byte aligned: host memory, and device memory, which only kernels and copies access. NULL with the
 * message set. */
void *tutti__step_alloc(tutti_ctx *cx, size_t bytes);
void *tutti__step_memory(tutti_ctx *cx, size_t bytes);
/* Between two steps: returns the memory of elements to the system; the next step allocates it again. */
void tutti__step_memory_release(tutti_ctx *cx);
/* Temporary host memory, reused within the step after scratch_give. NULL with the message set. */
void *tutti__scratch_take(tutti_ctx *cx, size_t bytes);
void tutti__scratch_give(tutti_ctx *cx, void *p, size_t bytes); /* `bytes` as taken */

/* A persistent tensor (module's memory, not the arena's); freed with free(). data belongs to the
 * caller. */
tutti_tensor *tutti__tensor_persistent(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype);

#endif
