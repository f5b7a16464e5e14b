/* nn.h -- modules: named parameters and buffers, layers, and models.
 * SPDX-License-Identifier: MIT
 *
 * A module is embedded in the user's struct and holds a name, a parent, parameters, buffers and children, all in
 * creation order; that order and the dotted names are PyTorch's state_dict. Initialisers never return errors: the
 * root module keeps the first one, and tutti_module_status (and calls that take the module, such as DDP's) report it.
 *
 *     typedef struct { tutti_module base; tutti_linear fc1, fc2; } mlp;
 *     tutti_module_init(&m->base, cx);
 *     tutti_linear_init(&m->fc1, &m->base, "fc1", 784, 256);
 *
 * Threads: the context's thread. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H

#include <tutti/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Visible so that it can be embedded; its fields are private to the library. */
typedef struct tutti_module {
    tutti_ctx *cx;
    struct tutti_module *parent; /* NULL: a root */
    struct tutti_module *first_child, *last_child, *next;
    struct tutti_root *root; /* parameters, buffers, flat memory, the first error */
    char name[48];           /* within the parent */
    tutti_peers peers;       /* ranks whose batches batch norm includes */
    uint64_t reserved[4];
} tutti_module;

/* A root module, or (with parent) a named child of another, as nn.Module or nn.Sequential would be. */
TUTTI_API void tutti_module_init(tutti_module *m, tutti_ctx *cx);
TUTTI_API void tutti_module_init_child(tutti_module *m, tutti_module *parent, const char *name);
/* Frees the root's parameters and buffers, and those of all below it. */
TUTTI_API void tutti_module_destroy(tutti_module *root);
/* OK, or the first error of an initialiser anywhere in m's tree. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_status(const tutti_module *m);
TUTTI_API tutti_ctx *tutti_module_ctx(const tutti_module *m);

/* How a new parameter gets its values. Each draws from Philox(seed; number of the parameter in its root). */
typedef enum tutti_init {
    TUTTI_INIT_ZEROS,
    TUTTI_INIT_ONES,
    TUTTI_INIT_UNIFORM, /* in (-bound, bound) */
    TUTTI_INIT_NORMAL   /* of mean 0 and standard deviation `bound` */
} tutti_init;

/* A new parameter or buffer, owned by the module. NULL if it cannot be made: the module's first error says why. Make a
 * module's own before its children's, as PyTorch lists them. */
TUTTI_API tutti_tensor *tutti_parameter_new(tutti_module *m, const char *name, tutti_shape shape,
                                            tutti_init init, float bound);
TUTTI_API tutti_tensor *tutti_buffer_new(tutti_module *m, const char *name, tutti_shape shape,
                                         tutti_dtype dtype, tutti_init init);
/* Freezes a parameter (false) or unfreezes it: a frozen one keeps its place, and gets no gradient and no update. */
TUTTI_API void tutti_parameter_set_requires_grad(tutti_tensor *parameter, bool requires_grad);
/* Freezes the parameters below m that `patterns` says: names of tensors or modules ("conv1", "layer1.0"), or patterns with * and ?,
 * separated by commas. ARG if one of them is no parameter's; then none is frozen. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_freeze(tutti_module *m, const char *patterns);

/* From now on every batch norm in m, at any depth and including those made later, normalises over the batches of all
 * peers (SyncBatchNorm); NULL: only over this rank's again. Names in the state dict stay. For groups:
 * tutti_convert_sync_batch_norm (ddp.h). */
TUTTI_API void tutti_module_set_peers(tutti_module *m, const tutti_peers *peers);

/* Everything below m, in state_dict order: parameters, buffers, or both as PyTorch interleaves them. The i-th is
 * NULL past the end. Names are full, without a prefix for the root. */
TUTTI_API size_t tutti_module_n_parameters(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_parameter(const tutti_module *m, size_t i);
TUTTI_API size_t tutti_module_n_buffers(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_buffer(const tutti_module *m, size_t i);
TUTTI_API size_t tutti_module_n_state(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_state(const tutti_module *m, size_t i);
TUTTI_API tutti_tensor *tutti_module_find(const tutti_module *m, const char *name); /* NULL: none */
TUTTI_API int64_t tutti_module_count(const tutti_module *m); /* elements of all parameters */
/* XXH3-128 over parameters and buffers in name order, as 32 hexadecimal digits and a NUL; "" if memory ran out. */
TUTTI_API void tutti_module_digest(const tutti_module *m, char digest[33]);
/* Discards all gradients, at no cost: the next contribution overwrites. */
TUTTI_API void tutti_module_zero_grad(tutti_module *m);

/* The flat memory of a root: parameters back to back (each 64-byte aligned, gaps zero), and gradients at the same
 * offsets, so that an optimizer or a collective makes one pass. Laid out in creation order at first use, or in a given
 * order (DDP's, in its first backward). A new layout moves values, gradients since zero_grad and optimizers' state, and
 * invalidates every tutti_flat. No parameter can be added afterwards. */
typedef struct tutti_flat {
    float *parameters, *gradients; /* n elements each */
    size_t n;
    size_t n_parameters;
    const size_t *offsets; /* of each parameter in creation order, in elements */
} tutti_flat;
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_flat(tutti_module *root, tutti_flat *flat_p);
/* order: all parameters, permuted; NULL: the current order. gradients: NULL (the module's own memory), or zeroed memory
 * of at least tutti_module_flat_size floats (a bucket's), borrowed until the next layout or tutti_module_destroy. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_flat_layout(tutti_module *root,
                                                                tutti_tensor *const *order,
                                                                float *gradients);
TUTTI_API size_t tutti_module_flat_size(const tutti_module *root);

/* ---- Layers: PyTorch's names, defaults and initial distributions ---------------------------------- */

typedef struct tutti_linear {
    tutti_module base;
    tutti_tensor *weight, *bias; /* [out, in], [out]; both U(-1/sqrt(in), 1/sqrt(in)) */
} tutti_linear;
TUTTI_API void tutti_linear_init(tutti_linear *m, tutti_module *parent, const char *name,
                                 int64_t in, int64_t out);
/* x [.., in] -> [.., out] */
TUTTI_API tutti_tensor *tutti_linear_forward(tutti_linear *m, tutti_tensor *x);

typedef struct tutti_embedding {
    tutti_module base;
    tutti_tensor *weight; /* [n, width]; N(0, 1) */
} tutti_embedding;
/* sparse: DDP sends only the rows that a step used on any rank, in a separate bucket. The gradient in memory is still
 * dense, zero elsewhere, also for optimizers. */
TUTTI_API void tutti_embedding_init(tutti_embedding *m, tutti_module *parent, const char *name,
                                    int64_t n, int64_t width, bool sparse);
/* indices, I64 of any shape [..] -> [.., width] */
TUTTI_API tutti_tensor *tutti_embedding_forward(tutti_embedding *m, tutti_tensor *indices);

typedef struct tutti_conv2d {
    tutti_module base;
    tutti_tensor *weight; /* [out, in, k, k]; U(-b, b), b = 1/sqrt(in*k*k) */
    tutti_tensor *bias;   /* NULL without */
    tutti_conv2d_opts opts;
} tutti_conv2d;
typedef struct tutti_conv2d_layer_opts {
    int64_t in, out;
    int kernel, stride, padding; /* stride 0 means 1 */
    bool bias;
    double normal_std;    /* weights of N(0, normal_std) instead of U(-b, b); 0: U */
    uint64_t reserved[3]; /* zero */
} tutti_conv2d_layer_opts;
TUTTI_API void tutti_conv2d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                                 const tutti_conv2d_layer_opts *opts);
/* x [N,in,H,W] -> [N,out,H',W'], H' = (H + 2 padding - kernel) / stride + 1 */
TUTTI_API tutti_tensor *tutti_conv2d_forward(tutti_conv2d *m, tutti_tensor *x);

typedef struct tutti_batch_norm2d {
    tutti_module base;
    tutti_tensor *weight, *bias;              /* ones, zeros */
    tutti_tensor *running_mean, *running_var; /* buffers: zeros, ones */
    tutti_tensor *num_batches_tracked;        /* buffer, I64 scalar */
    float momentum, eps; /* may be set at any time; 0: as in tutti_batch_norm2d_args */
} tutti_batch_norm2d;
TUTTI_API void tutti_batch_norm2d_init(tutti_batch_norm2d *m, tutti_module *parent,
                                       const char *name, int64_t channels);
/* x [N,channels,H,W] -> the same shape */
TUTTI_API tutti_tensor *tutti_batch_norm2d_forward(tutti_batch_norm2d *m, tutti_tensor *x);
/* relu(batch_norm(x) + residual) in one pass; residual NULL: none. */
TUTTI_API tutti_tensor *tutti_batch_norm2d_relu_forward(tutti_batch_norm2d *m, tutti_tensor *x,
                                                        tutti_tensor *residual);

/* ---- Models --------------------------------------------------------------------------------------- */

typedef struct tutti_model tutti_model;
/* Zero means default. */
typedef struct tutti_model_opts {
    int64_t channels, height, width; /* of the input */
    int64_t classes;
    double dropout;                      /* probability, before the last layer; 0: none */
    const struct tutti_model_kind *kind; /* also the program's kind of model */
    uint64_t reserved[4];                /* zero */
} tutti_model_opts;

/* A kind of model: a struct that begins with its tutti_module, and two functions; a table that is static in the program.
 * The library's own are in src/nn/model. See docs/your-own-model.md. */
typedef struct tutti_model_kind {
    const char *name;
    size_t bytes; /* size of the struct, which is zeroed before init */
    /* Makes the layers; m is a root module already. */
    void (*init)(tutti_module *m, const tutti_model_opts *opts);
    /* x [N,C,H,W] -> logits [N,classes] */
    tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x);
    int channels; /* of its input; 3: grey images are repeated in all three. 0: any number */
    uint64_t reserved[4]; /* zero */
} tutti_model_kind;

/* A model by name: "mini_resnet" (conv3x3-64, three stages of two residual blocks of 64, 128, 256 channels;
 * 2,777,674 parameters for 3 channels and 10 classes; input [N,3,H,W]), "resnet18", "resnet34", "resnet50", "resnet101"
 * (torchvision's, with its state dict), "mlp" (fc1: K->256, relu, fc2: 256->classes),
 * "linear" (fc: K->classes; a [N,...] input is flattened for both), or the name of opts->kind. Errors: ARG with the list. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_model_new(tutti_model **model_p, tutti_ctx *cx,
                                                       const char *name,
                                                       const tutti_model_opts *opts);
TUTTI_API void tutti_model_free(tutti_model *model);
TUTTI_API tutti_module *tutti_model_module(tutti_model *model);
/* Logits [N,classes]. What else the model's forward makes can be read until tutti_backward, which uses its memory again; after
 * that it is a STATE error. */
TUTTI_API tutti_tensor *tutti_model_forward(tutti_model *model, tutti_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
