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
    tutti_tensor *(*forward)(struct tutti_module *m, tutti_tensor *x); /* NULL: its children's */
    void (*hook)(struct tutti_module *m, tutti_tensor *x, tutti_tensor *y, void *arg);
    void *hook_arg;
    bool recompute;
    unsigned char reserved[7];
} tutti_module;

/* A root module, or (with parent) a named child of another, as nn.Module or nn.Sequential would be. name NULL: the number of
 * children that the parent has, as in nn.Sequential and nn.ModuleList: "0", "1", ... Layers' initialisers take NULL, too. */
TUTTI_API void tutti_module_init(tutti_module *m, tutti_ctx *cx);
TUTTI_API void tutti_module_init_child(tutti_module *m, tutti_module *parent, const char *name);
/* Zeroed memory for children, freed with the root; NULL: none, and the module's first error says so. */
TUTTI_API void *tutti_module_alloc(tutti_module *m, size_t bytes);
/* Frees the root's parameters and buffers, and those of all below it. */
TUTTI_API void tutti_module_destroy(tutti_module *root);
/* OK, or the first error of an initialiser anywhere in m's tree. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_status(const tutti_module *m);
TUTTI_API tutti_ctx *tutti_module_ctx(const tutti_module *m);
/* The module below m of this name, or of names with dots between them, as nn.Module.get_submodule: "layer1.0.conv1". NULL: none. */
TUTTI_API tutti_module *tutti_module_child(const tutti_module *m, const char *name);

/* y = m(x): by the forward that m's initialiser or tutti_module_set_forward has set; without one, its children one after the other, in
 * the order in which they were made, as nn.Sequential does. */
TUTTI_API tutti_tensor *tutti_module_forward(tutti_module *m, tutti_tensor *x);
TUTTI_API void tutti_module_set_forward(tutti_module *m,
                                        tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x));
/* hook(m, x, y, arg) after every forward of this module, by tutti_module_forward, tutti_model_forward or its layer's function
 * (tutti_linear_forward, ...), that did not fail; NULL: none. It may read x and y, and keep them until the step ends (of a model's: until backward; within a block of tutti_recompute: not after it). */
TUTTI_API void tutti_module_set_forward_hook(tutti_module *m,
                                             void (*hook)(tutti_module *m, tutti_tensor *x,
                                                          tutti_tensor *y, void *arg),
                                             void *arg);

/* The module's forward, called as above, as a block of tutti_recompute: in training what it makes inside is computed again in backward. */
TUTTI_API void tutti_module_set_recompute(tutti_module *m, bool recompute);

/* How a new parameter gets its values. Each draws from Philox(seed; number of the parameter in its root). */
typedef enum tutti_init {
    TUTTI_INIT_ZEROS,
    TUTTI_INIT_ONES,
    TUTTI_INIT_UNIFORM, /* in (-bound, bound) */
    TUTTI_INIT_NORMAL,  /* of mean 0 and standard deviation `bound` */
    /* UNIFORM, of a weight [out,in,kh,kw], but the first filters, as many as there are, pass on one input channel each
     * (torch.nn.init.dirac_) */
    TUTTI_INIT_DIRAC
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

/* Zero means default. */
typedef struct tutti_lora_opts {
    int rank; /* at least 1 */
    /* B A x has the factor alpha / rank; 0: rank. The probability of zeroing an element of the adapter's x in training. */
    double alpha, dropout;
    /* Which weights get an adapter: names or patterns as in tutti_module_freeze, or the last name of their layers, as PEFT's
     * target_modules ("c_attn,c_proj"). NULL or "": every linear layer that is not in `train`. */
    const char *targets;
    /* What is trained besides the adapters, such as a new head: names or patterns as in tutti_module_freeze. NULL or "": nothing. */
    const char *train;
    uint64_t reserved[4]; /* zero */
} tutti_lora_opts;
/* Low-rank adapters (LoRA): y = W x + b of the linear layers below m becomes W x + b + alpha / rank * B A dropout(x), with new parameters
 * LAYER.lora_A.weight [rank,in], of nn.Linear's initial values, and LAYER.lora_B.weight [out,rank], of zeros, so that the model
 * computes what it did. All other parameters below m are frozen, but for those of `train`. Once, after the model's initialiser, and
 * before the parameters are laid out (first backward, optimizer, DDP). What can be adapted: tutti_linear, and the products of the
 * library's own models. Weight files have the adapters beside the base weights; tutti_module_load takes files without them, too.
 * Errors: ARG for options that do not fit, STATE if it is too late; then nothing is changed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_lora_apply(tutti_module *m,
                                                        const tutti_lora_opts *opts);

/* One tensor by two names, as in PyTorch's head.weight = embedding.weight: *parameter_p, a layer's parameter, becomes `to`, an earlier
 * one of the same root and shape, whose values both have; its own are freed. Before the parameters are laid out (first
 * backward, optimizer, DDP). The tensor is listed, counted, averaged and updated once, by its first name; tutti_module_find,
 * freezing and loading know it by each; .pt files hold both names, safetensors files one and the other in the metadata, as
 * safetensors.torch.save_model. Errors are the module's first error; nothing happens if either is NULL, not made. */
TUTTI_API void tutti_parameter_tie(tutti_tensor **parameter_p, tutti_tensor *to);
/* The further names of tied parameters below m; the i-th, NULL past the end, and its parameter (parameter_p NULL: not needed). */
TUTTI_API size_t tutti_module_n_tied(const tutti_module *m);
TUTTI_API const char *tutti_module_tied(const tutti_module *m, size_t i,
                                        tutti_tensor **parameter_p);

/* From now on every batch norm in m, at any depth and including those made later, normalises over the batches of all
 * peers (SyncBatchNorm); NULL: only over this rank's again. Names in the state dict stay. For groups:
 * tutti_convert_sync_batch_norm (ddp.h). */
TUTTI_API void tutti_module_set_peers(tutti_module *m, const tutti_peers *peers);

/* ---- Layers divided among ranks (tensor parallel; docs/design/tensor_parallel.md) ----
 * Each rank has a part of a layer's weights, and all of them compute the same samples. What divides it is a plan: rules that name
 * layers, as torch.distributed.tensor.parallel's parallelize_module has. A layer of COLUMNS makes a part of its results, which the
 * layer of ROWS after it takes, with only elementwise operations or attention by heads between them; the sum of what ROWS makes is
 * whole again on all ranks, with the same bits. */
typedef enum tutti_parallel {
    TUTTI_PARALLEL_COLUMNS = 1, /* a linear layer's outputs, with their biases */
    TUTTI_PARALLEL_ROWS, /* a linear layer's inputs; every rank has its bias, which is added once */
    /* An embedding's rows, or the outputs of a language model's head, the logits, of which tutti_cross_entropy takes each rank's part.
     * Whatever else reads them (tutti_tensor_read, other operations) gathers them: all ranks must do it, at the same place. */
    TUTTI_PARALLEL_VOCABULARY,
    TUTTI_PARALLEL_TOKENS /* a norm, of which each rank computes a part of the tokens (sequence parallel); all have its weights */
} tutti_parallel;
typedef struct tutti_parallel_rule {
    /* Layers or parameters by their full names, or patterns with * and ?, as "h.*.mlp.fc"; several, separated by commas. */
    const char *name;
    tutti_parallel how;
    int parts; /* COLUMNS: what is one behind the other in the outputs, each divided by itself: 3 for queries, keys, values; 0: 1 */
    uint64_t reserved[2]; /* zero */
} tutti_parallel_rule;
/* Divides layers that are made below the root from now on: call it right after tutti_module_init. Each rank then holds only its parts, whose
 * initial values are those of the whole; sizes that are not divisible are divided as by torch.chunk. `peers` outlives the root's
 * last step. peers NULL or of size 1: nothing is divided. For groups: tutti_parallelize (ddp.h). Rules are copied; of several that name a
 * parameter, the first counts. CPU only. A failure of one rank's forward or backward kills
 * the group (tutti_peers.abort). Errors: ARG for a rule that is none; STATE if the module has parameters already. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_parallelize(tutti_module *root,
                                                                const tutti_peers *peers,
                                                                const tutti_parallel_rule *rules,
                                                                size_t n);
/* Among how many ranks a parameter is divided, and which of them this one is; 1 and 0: it is whole. A model's forward divides its
 * numbers of heads by it. */
TUTTI_API int tutti_parameter_ranks(const tutti_tensor *parameter);
TUTTI_API int tutti_parameter_rank(const tutti_tensor *parameter);
/* For a model's forward whose plan has rules of TOKENS (else both return x): x [..,D], which all ranks have, becomes this rank's rows, [R,D],
 * and is whole again after the blocks. Between them layers of COLUMNS gather the rows that they read, layers of ROWS leave each rank
 * its rows of the sum, and all else works on rows alone; every layer there with parameters must be in the plan. Dropout there, of numbers
 * by the place in the whole, is the third. */
TUTTI_API tutti_tensor *tutti_parallel_tokens(tutti_module *m, tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_parallel_whole(tutti_module *m, tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_parallel_dropout(tutti_module *m, tutti_tensor *x, float p);

/* Everything below m, in state_dict order: parameters, buffers, or both as PyTorch interleaves them. The i-th is
 * NULL past the end. Names are full, without a prefix for the root. */
TUTTI_API size_t tutti_module_n_parameters(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_parameter(const tutti_module *m, size_t i);
TUTTI_API size_t tutti_module_n_buffers(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_buffer(const tutti_module *m, size_t i);
TUTTI_API size_t tutti_module_n_state(const tutti_module *m);
TUTTI_API tutti_tensor *tutti_module_state(const tutti_module *m, size_t i);
TUTTI_API tutti_tensor *tutti_module_find(const tutti_module *m, const char *name); /* NULL: none */
TUTTI_API int64_t tutti_module_count(
    const tutti_module *m); /* elements of all parameters, with the parts that other ranks have */
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
    tutti_tensor *weight,
        *bias; /* [out, in], [out]; both U(-1/sqrt(in), 1/sqrt(in)); bias NULL without */
} tutti_linear;
TUTTI_API void tutti_linear_init(tutti_linear *m, tutti_module *parent, const char *name,
                                 int64_t in, int64_t out);
typedef struct tutti_linear_layer_opts {
    int64_t in, out;
    bool no_bias;
    /* Instead of the above, with a bias of zeros: weights of N(0, normal_std), U(-uniform_bound, uniform_bound), or zeros. */
    float normal_std, uniform_bound;
    bool zeros;
    uint64_t reserved[4]; /* zero */
} tutti_linear_layer_opts;
TUTTI_API void tutti_linear_init_with(tutti_linear *m, tutti_module *parent, const char *name,
                                      const tutti_linear_layer_opts *opts);
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
    tutti_tensor *weight; /* [out, in/groups, k, k]; U(-b, b), b = 1/sqrt(in/groups*k*k) */
    tutti_tensor *bias;   /* NULL without; U(-b, b) */
    tutti_conv2d_opts opts;
} tutti_conv2d;
typedef struct tutti_conv2d_layer_opts {
    int64_t in, out;
    int kernel, stride, padding; /* stride 0 means 1 */
    bool no_bias;
    bool dirac; /* weights of TUTTI_INIT_DIRAC, with the bound b; not with groups */
    float
        normal_std; /* weights of N(0, normal_std) and a bias of zeros instead of U(-b, b); 0: U */
    int groups, dilation;              /* 0 means 1 */
    int kernel_w, stride_w, padding_w; /* of columns; 0: as of rows; padding_w -1: none */
    uint64_t reserved[1];              /* zero */
} tutti_conv2d_layer_opts;
TUTTI_API void tutti_conv2d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                                 const tutti_conv2d_layer_opts *opts);
/* x [N,in,H,W] -> [N,out,H',W'], H' as in tutti_functional_conv2d */
TUTTI_API tutti_tensor *tutti_conv2d_forward(tutti_conv2d *m, tutti_tensor *x);
/* nn.Conv1d: weight [out, in/groups, k]; the options of columns must be 0. x [N,in,L] -> [N,out,L'] */
TUTTI_API void tutti_conv1d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                                 const tutti_conv2d_layer_opts *opts);
TUTTI_API tutti_tensor *tutti_conv1d_forward(tutti_conv2d *m, tutti_tensor *x);

typedef struct tutti_conv_transpose2d {
    tutti_module base;
    tutti_tensor *weight,
        *bias; /* [in, out/groups, k, k], [out]; U(-b, b), b = 1/sqrt(out/groups*k*k) */
    tutti_conv_transpose_opts opts;
} tutti_conv_transpose2d;
TUTTI_API void tutti_conv_transpose2d_init(tutti_conv_transpose2d *m, tutti_module *parent,
                                           const char *name, const tutti_conv2d_layer_opts *opts,
                                           int output_padding);
TUTTI_API tutti_tensor *tutti_conv_transpose2d_forward(tutti_conv_transpose2d *m, tutti_tensor *x);

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

/* nn.BatchNorm1d: the same of x [N,channels] or [N,channels,L]. */
TUTTI_API void tutti_batch_norm1d_init(tutti_batch_norm2d *m, tutti_module *parent,
                                       const char *name, int64_t channels);
TUTTI_API tutti_tensor *tutti_batch_norm1d_forward(tutti_batch_norm2d *m, tutti_tensor *x);

/* nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm: over the last dimensions, of sizes `shape`; over groups of channels. */
typedef struct tutti_norm {
    tutti_module base;
    tutti_tensor *weight, *bias; /* ones, zeros; NULL: without */
    tutti_shape shape;
    int groups;
    float eps; /* may be set at any time; 0: PyTorch's, TUTTI_ZERO: none */
} tutti_norm;
TUTTI_API void tutti_layer_norm_init(tutti_norm *m, tutti_module *parent, const char *name,
                                     tutti_shape shape);
TUTTI_API void tutti_rms_norm_init(tutti_norm *m, tutti_module *parent, const char *name,
                                   tutti_shape shape);
TUTTI_API void tutti_group_norm_init(tutti_norm *m, tutti_module *parent, const char *name,
                                     int groups, int64_t channels);
/* affine: with weight and bias, which PyTorch's default is without. */
TUTTI_API void tutti_instance_norm_init(tutti_norm *m, tutti_module *parent, const char *name,
                                        int64_t channels, bool affine);
TUTTI_API tutti_tensor *tutti_norm_forward(tutti_norm *m, tutti_tensor *x);

/* nn.LSTM, nn.GRU, nn.RNN. */
#define TUTTI_MAX_RECURRENT_LAYERS 16
typedef struct tutti_recurrent_layer_opts {
    int64_t in, hidden;
    int layers; /* 0 means 1 */
    bool bidirectional, batch_first, no_bias;
    bool relu;            /* rnn: max(., 0) instead of tanh */
    float dropout;        /* of the results of all layers but the last */
    uint64_t reserved[4]; /* zero */
} tutti_recurrent_layer_opts;
typedef struct tutti_recurrent {
    tutti_module base;
    int gates; /* 4: lstm, 3: gru, 1: rnn */
    tutti_recurrent_layer_opts opts;
    /* of layer l and direction d at [2 l + d]: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, .._reverse; U(-b, b),
     * b = 1/sqrt(hidden) */
    tutti_tensor *weights[2 * TUTTI_MAX_RECURRENT_LAYERS][4];
} tutti_recurrent;
TUTTI_API void tutti_lstm_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                               const tutti_recurrent_layer_opts *opts);
TUTTI_API void tutti_gru_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                              const tutti_recurrent_layer_opts *opts);
TUTTI_API void tutti_rnn_init(tutti_recurrent *m, tutti_module *parent, const char *name,
                              const tutti_recurrent_layer_opts *opts);
/* x [T,N,in], or [N,T,in] if batch_first -> the last layer's states of all steps, [T,N,hidden], both directions behind each other
 * in the last dimension. States begin with zeros. *h_n and *c_n, if not NULL: after the last step, [layers * directions,N,hidden];
 * *c_n is NULL of gru and rnn. */
TUTTI_API tutti_tensor *tutti_recurrent_forward(tutti_recurrent *m, tutti_tensor *x,
                                                tutti_tensor **h_n, tutti_tensor **c_n);

/* An operation without options, such as tutti_relu, as a module: nn.ReLU, nn.Flatten, ... */
typedef struct tutti_activation {
    tutti_module base;
    tutti_tensor *(*function)(tutti_tensor *x);
} tutti_activation;
TUTTI_API void tutti_activation_init(tutti_activation *m, tutti_module *parent, const char *name,
                                     tutti_tensor *(*function)(tutti_tensor *x));
typedef struct tutti_dropout_layer {
    tutti_module base;
    float p;
} tutti_dropout_layer;
TUTTI_API void tutti_dropout_init(tutti_dropout_layer *m, tutti_module *parent, const char *name,
                                  float p);

/* ---- Models --------------------------------------------------------------------------------------- */

typedef struct tutti_model tutti_model;
/* Zero means default. */
typedef struct tutti_model_opts {
    int64_t channels, height, width; /* of the input */
    int64_t classes;
    double dropout;                      /* probability, before the last layer; 0: none */
    const struct tutti_model_kind *kind; /* also the program's kind of model */
    /* Sizes of the model, for kinds that have them (tutti_model_kind.sizes); 0: the kind's default. hidden: features of a layer;
     * patch: side of a patch in pixels */
    int layers, hidden, heads, patch;
    bool recompute; /* its blocks: tutti_module_set_recompute; refused if it has none */
    /* Language models, whose input is tokens: the most tokens of a sample. classes is the vocabulary, channels the tokens of the
     * data's samples. */
    int context;
    const struct tutti_llama_opts *llama; /* of "llama"; NULL: defaults */
    const tutti_peers *
        parallel; /* ranks among which its layers are divided, by the kind's plan; NULL: they are not */
    bool parallel_tokens; /* with the plan's rules of TUTTI_PARALLEL_TOKENS, too */
    uint64_t reserved[1]; /* zero */
} tutti_model_opts;

/* What models of Llama's kind differ in, by the names of the keys of `tutti train`. Zero means default. */
typedef struct tutti_llama_opts {
    int ffn_width; /* features within the mlp; 0: 8/3 of the width, rounded up to a multiple of 64 */
    /* heads of keys and values, among which those of queries are divided; 0: as many as heads, or else the kind's default */
    int kv_heads;
    bool tie_embeddings;  /* the head's weight is that of the embedding */
    float norm_eps;       /* 0: 1e-5; TUTTI_ZERO: none */
    tutti_rope_opts rope; /* position is that of the model's input: 0 */
    uint64_t reserved[4]; /* zero */
} tutti_llama_opts;

/* Bits of tutti_model_kind.sizes. */
enum {
    TUTTI_MODEL_LAYERS = 1,
    TUTTI_MODEL_HIDDEN = 2,
    TUTTI_MODEL_HEADS = 4,
    TUTTI_MODEL_PATCH = 8,
    TUTTI_MODEL_RECOMPUTE = 16, /* it has blocks */
    TUTTI_MODEL_CONTEXT = 32,
    TUTTI_MODEL_KV_HEADS = 64, /* of tutti_llama_opts */
    TUTTI_MODEL_TOKENS =
        128 /* a language model: x is I64 [N,T], the output logits [N,T,classes] of each next token */
};

/* A step of a model's forward, of those between which a pipeline can be cut (pipeline.h). */
typedef struct tutti_model_block {
    char name[48]; /* of the keys of `tutti train`: "h.4" */
    /* The parameters and buffers that it reads: names of tensors or modules, or patterns, as in tutti_module_freeze. Another block may
     * read the same parameter if the first block reads it by tutti_embedding of the model's input alone. */
    char state[256];
    tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x, int i);
    uint64_t reserved[2]; /* zero */
} tutti_model_block;

/* A kind of model: a struct that begins with its tutti_module, and two functions; a table that is static in the program.
 * The library's own are in src/nn/model. See docs/your-own-model.md. */
typedef struct tutti_model_kind {
    const char *name;
    size_t bytes; /* size of the struct, which is zeroed before init */
    /* Makes the layers; m is a root module already. */
    void (*init)(tutti_module *m, const tutti_model_opts *opts);
    /* x [N,C,H,W] -> logits [N,classes], for masks [N,classes,H,W]; tutti_module_forward of the model's module calls it */
    tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x);
    int channels; /* of its input; 3: grey images are repeated in all three. 0: any number */
    unsigned
        sizes; /* which sizes of tutti_model_opts it has, and whether recompute; others are refused */
    /* The i-th step of forward, which is all of them in order, each with the result of the one before; false past the last one. Before
     * init, with its options. With a pipeline, parameters and buffers of blocks that a rank has not are not made there: the calls that
     * make them return NULL, without an error. NULL: the model is no list of blocks. */
    bool (*block)(const tutti_model_opts *opts, int i, tutti_model_block *block_p);
    const tutti_parallel_rule
        *plan; /* how its layers are divided among ranks: n_plan rules; NULL: they cannot be */
    size_t n_plan;
    uint64_t reserved[1]; /* zero */
} tutti_model_kind;

/* A model by name: "mini_resnet" (conv3x3-64, three stages of two residual blocks of 64, 128, 256 channels;
 * 2,777,674 parameters for 3 channels and 10 classes; input [N,3,H,W]), "resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2",
 * "vit_b_16" (torchvision's, with its state dict), "vit" (the same of other sizes: by default 12 layers of 192 features and 3 heads, and
 * patches of at most 16 x 16), "lstm" (the rows of an image as steps; 1 layer of 128 features), "unet" (the U-Net of milesial/Pytorch-UNet, with its state dict: logits [N,classes,H,W]; by default 4 levels below the first one of 64
 * channels), "airbench94" (K. Jordan's CifarNet, with its state dict: images from 25 x 25 on; the first convolution and the norms' weights are
 * frozen), "gpt2" (Hugging Face's GPT2LMHeadModel, with its state dict: tokens I64 [N,T] -> logits [N,T,classes]; by default 12 layers of 768
 * features and 12 heads, and a context of 1024), "gpt2-medium", "gpt2-large", "gpt2-xl", "llama" (Hugging Face's LlamaForCausalLM; by default 12 layers of 768
 * features, 12 heads of queries, 4 of keys and values, and a context of 1024), "mlp" (fc1: K->256, relu, fc2: 256->classes),
 * "linear" (fc: K->classes; a [N,...] input is flattened for both), or the name of opts->kind. Errors: ARG with the list. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_model_new(tutti_model **model_p, tutti_ctx *cx,
                                                       const char *name,
                                                       const tutti_model_opts *opts);
TUTTI_API void tutti_model_free(tutti_model *model);
TUTTI_API tutti_module *tutti_model_module(tutti_model *model);
/* Logits [N,classes], of unet [N,classes,H,W], of language models [N,T,classes]. What else the model's forward makes can be read until tutti_backward, which uses its memory again; after
 * that it is a STATE error. */
TUTTI_API tutti_tensor *tutti_model_forward(tutti_model *model, tutti_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
