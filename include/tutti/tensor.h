/* tensor.h -- tensors, and the context they live in. The operations on them: operations.h, which this includes.
 * SPDX-License-Identifier: MIT
 *
 * Operations run at once and record themselves on the context's tape (autograd.h). Results live in the step's
 * arena, between tutti_step_begin and tutti_step_end; programs never free them. Parameters and buffers belong to their
 * module (nn.h). An operation that fails returns a poisoned tensor; later operations pass it on, and
 * tutti_backward, tutti_item and tutti_tensor_read report the first cause: one check per step is enough.
 *
 * Dimension names: N batch, C channels, H height, W width, K features in, M features out.
 * Threads: a context and all its tensors belong to one thread at a time. */
#ifndef TUTTI_TENSOR_H
#define TUTTI_TENSOR_H

#include <stdbool.h>
#include <tutti/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAX_DIMS 6

typedef struct tutti_ctx tutti_ctx;
typedef struct tutti_tensor tutti_tensor;

typedef struct tutti_shape {
    int n; /* dimensions; 0 for a scalar */
    int64_t d[TUTTI_MAX_DIMS];
} tutti_shape;

/* TUTTI_SHAPE(32, 3, 8, 8), a value; at most TUTTI_MAX_DIMS. */
#ifdef __cplusplus
extern "C++" template <typename... D>
inline tutti_shape TUTTI_SHAPE(D... d)
{
    return tutti_shape{int(sizeof...(d)), {int64_t(d)...}};
}
#else
#define TUTTI_SHAPE(...)                                                                           \
    ((tutti_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#endif

/* Dimensions, TUTTI_DIMS(0, -1): negative ones count from the end. */
typedef struct tutti_dims {
    int n;
    int d[TUTTI_MAX_DIMS];
} tutti_dims;
#ifdef __cplusplus
extern "C++" template <typename... D>
inline tutti_dims TUTTI_DIMS(D... d)
{
    return tutti_dims{int(sizeof...(d)), {int(d)...}};
}
#else
#define TUTTI_DIMS(...)                                                                            \
    ((tutti_dims){(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}})
#endif

TUTTI_API int64_t tutti_shape_count(tutti_shape shape);
TUTTI_API bool tutti_shape_equal(tutti_shape a, tutti_shape b);

/* Row-major elements in host memory, described but not owned. */
typedef struct tutti_array {
    const void *p;
    tutti_shape shape;
    tutti_dtype dtype;
} tutti_array;

/* ---- Context ----------------------------------------------------------------------------------- */

typedef enum tutti_kernels {
    TUTTI_KERNELS_AUTO,      /* the fastest this build has */
    TUTTI_KERNELS_REFERENCE, /* plain C loops, against which the others are tested */
    TUTTI_KERNELS_ONEDNN
} tutti_kernels;

/* Zero means default. */
typedef struct tutti_ctx_opts {
    uint64_t seed; /* of initialisation and dropout */
    /* Which share of the batch this context computes: part of dropout's counter, so that shards draw different masks.
     * 0: not set, which means the rank with DDP, else 0; tutti_ctx_set_shard can set 0 itself. */
    uint64_t shard;
    int threads;           /* of kernels; default: cores / LOCAL_WORLD_SIZE, at least 1 */
    tutti_kernels kernels; /* UNSUPPORTED if this build lacks them */
    /* On a GPU, convolutions may use the algorithm measured to be fastest, even if its bits vary from run to run, as with
     * TUTTI_DETERMINISTIC=0. No effect on the CPU. */
    bool nondeterministic;
    /* Parameters get memory and their initial values when they are first used or laid out, not when they are made: for a model that
     * is larger than a rank's memory, of which tutti_ddp_opts.zero 3 lays out a share. */
    bool defers_parameters;
    uint64_t reserved[3]; /* zero */
} tutti_ctx_opts;

TUTTI_API TUTTI_NODISCARD tutti_status tutti_ctx_new(tutti_ctx **cx_p, tutti_device device,
                                                     const tutti_ctx_opts *opts);
TUTTI_API void tutti_ctx_free(tutti_ctx *cx);
TUTTI_API tutti_device tutti_ctx_device(const tutti_ctx *cx);
/* The stream on which its kernels run in order; owned by the context. */
TUTTI_API tutti_stream *tutti_ctx_stream(tutti_ctx *cx);
TUTTI_API const char *tutti_ctx_kernels_name(const tutti_ctx *cx); /* "reference", "onednn 2.6.3" */
TUTTI_API int tutti_ctx_threads(const tutti_ctx *cx);

/* Zero means a training step. */
typedef struct tutti_step_opts {
    bool eval;    /* no tape; batch norm uses running statistics, dropout passes through */
    bool no_grad; /* no tape, otherwise as in training */
    /* F32: off. BF16, F16: as tutti_ctx_set_autocast, from the step's first operation on */
    tutti_dtype autocast;
    uint64_t reserved[4]; /* zero */
} tutti_step_opts;

/* Opens a step; opts may be NULL. Training steps are counted, and the count is the step part of dropout's counter. */
TUTTI_API void tutti_step_begin(tutti_ctx *cx, const tutti_step_opts *opts);
/* Ends it; all of its tensors become invalid. */
TUTTI_API void tutti_step_end(tutti_ctx *cx);
TUTTI_API uint64_t tutti_ctx_step(const tutti_ctx *cx);
TUTTI_API void tutti_ctx_set_step(tutti_ctx *cx, uint64_t step);
TUTTI_API uint64_t tutti_ctx_shard(const tutti_ctx *cx);
/* Sets the shard, from the next operation on; DDP then does not change it. */
TUTTI_API void tutti_ctx_set_shard(tutti_ctx *cx, uint64_t shard);

/* Autocast, from the next operation to the end of the step or the next call: BF16 or F16; F32 switches it off. As in PyTorch,
 * convolutions and linear layers take activations and weights rounded to 16 bit, sum in F32 and return 16 bit; softmax and
 * the losses take F32; add, and batch norm's residual, take the widest; other operations keep their input's dtype. Parameters,
 * their gradients and batch norm's statistics are always F32; weights are rounded once per step. Gradients of activations have
 * the activations' dtype; with F16 use a scaler (amp.h). docs/amp.md.
 * UNSUPPORTED: the kernels have no such arithmetic on this machine, and TUTTI_EMULATE_HALF is not set. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ctx_set_autocast(tutti_ctx *cx, tutti_dtype dtype);
/* Which kernels compute in BF16 or F16: "onednn 2.6.3", or "emulated" (reference kernels, or TUTTI_EMULATE_HALF=1: F32 kernels
 * with rounding before and after, slower than F32). NULL if none do; the thread's message says why. */
TUTTI_API const char *tutti_ctx_half_kernels_name(tutti_ctx *cx, tutti_dtype dtype);

/* Bytes a context holds: the arena's size, and how often any memory was allocated since the context was made
 * (constant after warm-up: a step allocates nothing). */
typedef struct tutti_ctx_memory {
    size_t arena_bytes, arena_used_bytes;
    uint64_t allocations;
    uint64_t reserved[4]; /* zero */
} tutti_ctx_memory;
TUTTI_API tutti_ctx_memory tutti_ctx_memory_stats(const tutti_ctx *cx);

/* ---- Tensors ----------------------------------------------------------------------------------- */

/* A step tensor over the caller's memory, without a copy on the CPU; a GPU gets one. Borrows array.p until the step ends.
 * F32 data, I64 labels. Every dimension is at least 1, except that the first may be 0: of an empty batch every operation
 * makes an empty result (a mean loss: NaN) and a gradient of zeros. */
TUTTI_API tutti_tensor *tutti_input(tutti_ctx *cx, tutti_array array);
/* The same, as a leaf that receives a gradient (tutti_tensor_grad); for tests and saliency. */
TUTTI_API tutti_tensor *tutti_input_with_grad(tutti_ctx *cx, tutti_array array);

TUTTI_API tutti_shape tutti_tensor_shape(const tutti_tensor *t);
TUTTI_API tutti_dtype tutti_tensor_dtype(const tutti_tensor *t);
/* parameters and buffers; else "" */
TUTTI_API const char *tutti_tensor_name(const tutti_tensor *t);
/* OK, or the first cause (tutti_last_error() has its message). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tensor_status(const tutti_tensor *t);
/* Copies the elements, row-major, to host memory of at least shape_count * dtype_size bytes. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tensor_read(tutti_tensor *t, void *dst);
/* Overwrites a parameter or buffer from row-major host memory. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tensor_write(tutti_tensor *t, const void *src);
/* The gradient after tutti_backward: row-major, same shape, memory of the context's device; NULL if none arrived.
 * Parameters: until the next zero_grad. Leaves of tutti_input_with_grad: until the step ends. */
TUTTI_API const void *tutti_tensor_grad(tutti_tensor *t);
/* Copies it to host memory. STATE if none arrived. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tensor_grad_read(tutti_tensor *t, void *dst);
/* The single element of t, as a number; NaN if t is poisoned. */
TUTTI_API float tutti_item(tutti_tensor *t);

#ifdef __cplusplus
}
#endif

#include <tutti/operations.h>

#endif
