/* nn.h -- root modules, and models.   SPDX-License-Identifier: MIT
 *
 * The root owns every parameter and buffer below it, in one list in creation order, and the flat memory of the
 * parameters. Modules are only nodes with names in a tree. */
#ifndef TUTTI_NN_NN_H
#define TUTTI_NN_NN_H

#include "device/flat.h"
#include "tensor/tensor.h"
#include <tutti/nn.h>

#include <stddef.h>

/* What tutti_lora_apply adds to a weight (lora.c). */
typedef struct tutti__adapter {
    tutti_tensor *a, *b; /* [rank,in], [out,rank] */
    float scale, dropout;
} tutti__adapter;

/* Whether a parameter is what a layer multiplies its input by, so that it can have an adapter, and its shape. */
typedef enum tutti__adaptable {
    TUTTI__NOT_ADAPTABLE,
    TUTTI__OUT_IN, /* [out,in], as of nn.Linear */
    TUTTI__IN_OUT  /* [in,out], as of Hugging Face's Conv1D; PEFT's fan_in_fan_out */
} tutti__adaptable;

/* A parameter that is a part of a whole one: of dimension dim, of `whole` elements, each of `parts` equal parts is divided among `count`
 * ranks by tutti__chunk, with `units`, and this one has chunk `index` of each. count 0: it is whole. */
typedef struct tutti__parameter_split {
    int dim, parts, index, count, units;
    int64_t whole;
} tutti__parameter_split;

/* One parameter or buffer. The tensor's `parameter` points here if it is one; a buffer uses only the name. */
typedef struct tutti__state {
    tutti_tensor *tensor;
    const tutti_module *owner;
    tutti__parameter parameter;
    void *memory; /* the tensor's own; parameters: until they are in flat memory */
    /* Of a parameter whose initial values are not drawn yet, which has no memory either. */
    struct {
        tutti_init init;
        float bound;
        size_t drawn; /* the number by which they are drawn */
    } later;
    /* A further name of a tied parameter has no tensor, but tied_to, whose tensor it is; next_tied: the tensor's next name. */
    struct tutti__state *tied_to, *next_tied;
    tutti__adaptable adaptable;
    const tutti__adapter *adapter; /* NULL: none */
    tutti__parameter_split split;
    tutti_parallel how; /* it is divided, or its tokens are; 0: it is whole */
} tutti__state;

typedef struct tutti__state_list {
    tutti__state **p;
    size_t n, capacity;
} tutti__state_list;

/* A hash table from full names to state: tutti__hash64, linear probing, the capacity a power of two. */
typedef struct tutti__name_table {
    tutti__state **p;
    size_t capacity;
} tutti__name_table;

/* Remembers a walk over one kind below a module: n of them, the last of which is `last`, are before index k of the root's list.
 * */
typedef struct tutti__cursor {
    const tutti_module *module;
    size_t n, k;
    tutti_tensor *last;
} tutti__cursor;

/* ---- Shares of flat memory (ZeRO) ----------------------------------------------------------------------
 * If set, optimizers update only these ranges, and gradients are the mean over all ranks only there, unless noted. They are
 * this rank's share of what is divided among ranks, and what every rank keeps whole. */
typedef struct tutti__range {
    size_t begin, end; /* elements of flat memory */
    bool whole;        /* kept by every rank */
    bool copy;         /* of another rank's share: updated here too, but that rank's for all else */
    bool bare;         /* of parameters that are never updated, and have no state */
    float *host;       /* its parameters, in host memory; NULL: in flat memory */
} tutti__range;

/* Elements of each kind of an optimizer's state. */
static inline size_t tutti__range_state(const tutti__range *range)
{
    return range->bare ? 0 : range->end - range->begin;
}

/* Which elements of [begin,end) of flat memory are in the range: [*low_p,*high_p); false: none. */
static inline bool tutti__range_meets(const tutti__range *range, size_t begin, size_t end,
                                      size_t *low_p, size_t *high_p)
{
    *low_p = begin > range->begin ? begin : range->begin;
    *high_p = end < range->end ? end : range->end;
    return *low_p < *high_p;
}

typedef struct tutti__sharding {
    void *self;
    tutti_peers peers;
    const tutti__range *
        ranges; /* each copy before the share of its bucket, whose update sends it; else ascending */
    size_t n;
    uint64_t layouts;      /* the layout (tutti_root) for which they are valid */
    bool whole_gradients;  /* every rank has all means: norms need no communication */
    bool whole_parameters; /* now: every rank has all of them, in flat memory */
    /* now: gradients outside of the ranges have no memory, and are not read or written */
    bool only_shares;
    bool offloads; /* ranges have parameters in host memory, so optimizers' state is there too */
    /* Computes the ranges for the current layout. STATE if there is no averaged gradient. */
    tutti_status (*prepare)(void *self);
    /* Announces a collective operation: an update by this optimizer with this rate, or (NULL) clipping to this norm. */
    tutti_status (*begin)(void *self, const void *optim, double value);
    /* Range i of the parameters is updated; when `finish` returns, all ranges of all ranks are. */
    tutti_status (*updated)(void *self, size_t i);
    tutti_status (*finish)(void *self);
    /* Parameters are about to be written in the ranges by other than an update, on all ranks: what was gathered of other ranks' goes, and
     * nobody reads this rank's any more. `written`: they have been. All ranks call both. */
    tutti_status (*discard)(void *self);
    tutti_status (*written)(void *self);
} tutti__sharding;

/* What a range has of a stretch of flat memory, and a walk over the ranges that have any of it; zero-initialised: before the first. */
typedef struct tutti__range_part {
    const tutti__range *range;
    size_t low, high; /* of flat memory */
    size_t
        state; /* where it is in each kind of an optimizer's state, of this rank's ranges one after the other */
    size_t next, before; /* of the walk: the next range, and the state before it */
} tutti__range_part;

/* The next part of [begin,end); false: there is none. */
static inline bool tutti__sharding_next(const tutti__sharding *sharding, size_t begin, size_t end,
                                        tutti__range_part *part)
{
    while (part->next < sharding->n) {
        const tutti__range *range = &sharding->ranges[part->next++];
        const size_t before = part->before;

        part->before += tutti__range_state(range);
        if (!tutti__range_meets(range, begin, end, &part->low, &part->high))
            continue;
        part->range = range;
        part->state = before + (part->low - range->begin);
        return true;
    }
    return false;
}

/* An entry in the root's list of optimizers; the first member of an optimizer. */
typedef struct tutti__optim_entry {
    struct tutti__optim_entry *next, **link; /* link: what points to it; NULL: the root is gone */
} tutti__optim_entry;

struct tutti_root {
    tutti_module *module;
    void **allocated;             /* by tutti_module_alloc: a list, linked by the first word */
    tutti__state_list state;      /* parameters and buffers in creation order */
    tutti__state_list parameters; /* those alone: parameters.p[i]->parameter.index == i */
    tutti__state_list tied;       /* further names of parameters */
    tutti__name_table names;      /* of state and tied */
    size_t n_drawn;               /* parameters made so far: each draws from its own numbers */
    tutti__cursor cursors[3];     /* over parameters, buffers, both */
    tutti_status status;          /* the first error of an initialiser */
    char text[1024];
    const char *
        part; /* only parameters and buffers that this selects are made; NULL: all. Borrowed by initialisers */
    bool no_values; /* initial values are zeros: nobody reads them */
    tutti_module *
        whole; /* of a part: the whole model without memory, by which tensors are selected and numbered. Borrowed */
    uint64_t round;                   /* zero_grad count, from 1 */
    struct tutti__parallel *parallel; /* tutti_module_parallelize; NULL: nothing is divided */
    /* of tutti_lora_apply; rank 0: there are no adapters */
    struct {
        int rank;
        double alpha, dropout;
    } lora;

    float *flat_parameters, *flat_gradients; /* NULL until laid out */
    bool gradients_borrowed;
    bool reserved; /* the parameters' memory is, and ZeRO gives memory to parts of it */
    size_t n_flat;
    size_t *offsets;            /* of parameter i, in elements */
    size_t *placement;          /* parameters by ascending offset */
    uint64_t layouts;           /* number of layouts so far: optimizer state must follow */
    tutti__sharding *sharding;  /* NULL: not sharded */
    tutti__optim_entry *optims; /* of it and of modules below, the latest first */
    /* Ranks that hold other parameters of the same model, for the norm of all of them and the search for infinities: other parts of
     * its layers, and other stages, each of which has such parts. size 0: none. */
    tutti_peers norm_peers[2];
    /* The parameters' previous memory, kept until the next zero_grad, because the current step may have views of it. */
    void **retired;
    size_t n_retired;
    tutti__flat_span *spans; /* room for n_spans: tutti__flat_spans */
    size_t n_spans;
    /* For checkpoints. ranges: those of the reducer that averages its gradients over shards; NULL: none. loaded_ranges: what was
     * loaded before there was one. */
    float *ranges, *loaded_ranges;
    size_t n_ranges, n_loaded_ranges;
};

/* m, or if it is a part of a model, the module that has all of its names. */
static inline tutti_module *tutti__whole_of(const tutti_module *m)
{
    return m->root->whole && m->root->module == m ? m->root->whole : (tutti_module *)(uintptr_t)m;
}

static inline tutti__state *tutti__state_of(const tutti_tensor *parameter)
{
    return (tutti__state *)((char *)parameter->parameter - offsetof(tutti__state, parameter));
}

/* Room for one more. MEMORY. */
bool tutti__state_list_reserve(tutti__state_list *list);

/* Whether a name of t is in such a list: */
bool tutti__tensor_selected(const tutti_tensor *t, const char *patterns);
/* Whether `name` of a tensor is in a list of names of tensors or modules, or patterns with * and ?, separated by commas. */
bool tutti__name_selected(const char *name, const char *patterns);
/* ARG if a pattern of the list is none of m's tensors or parts; of its parameters only. `what` begins the message. */
tutti_status tutti__check_selection(const tutti_module *m, const char *patterns,
                                    bool parameters_only, const char *what);
/* Sets the root's error, if it is the first, and the thread's message. For initialisers with invalid arguments. */
void tutti__module_fail(tutti_module *m, tutti_status status, const char *format, ...)
    TUTTI_PRINTF(3, 4);
/* ---- Adapters: a layer that multiplies its input x by a parameter says so once, and adds the adapter's part to what it has
 * computed. ---- */

void tutti__set_adaptable(tutti_tensor *weight, tutti__adaptable shape);
/* y + scale * B A dropout(x); y itself if the weight has no adapter. Both are of the same leading dimensions. */
tutti_tensor *tutti__add_adapter(tutti_tensor *y, tutti_tensor *x, const tutti_tensor *weight);
/* Whether t is one of the two matrices of an adapter. */
bool tutti__is_of_adapter(const tutti_tensor *t);

/* ---- parallel.c: layers divided among ranks ---- */

/* How a new parameter is divided; how 0: not. */
typedef struct tutti__division {
    tutti_parallel how;
    int parts;
} tutti__division;

/* tutti_parameter_new of a weight that a layer multiplies by, and divided as given; NULL: by the root's rules. */
tutti_tensor *tutti__parameter_make(tutti_module *m, const char *name, tutti_shape shape,
                                    tutti_init init, float bound, tutti__adaptable adaptable,
                                    const tutti__division *given);
/* Sets how a parameter of m, with its name and adaptable set, is divided, and makes *shape_p this rank's part. ARG if a rank would have
 * none. */
tutti_status tutti__divide(tutti_module *m, tutti__state *state, const tutti__division *given,
                           tutti_shape *shape_p);
/* Elements of the whole parameter or buffer. */
int64_t tutti__whole_count(const tutti__state *state);
/* Where a part of a divided tensor is in the whole one: runs of elements that are neighbours in both; count 0: all of it. */
typedef struct tutti__split_places {
    int64_t run;    /* elements of a run */
    int64_t first;  /* of the first run in the whole tensor */
    int64_t stride; /* from run to run */
    int64_t n;
} tutti__split_places;
/* Of dim of `whole`, if count > 0. */
tutti__split_places tutti__split_find(const tutti__parameter_split *split, tutti_shape whole);
/* Calls part(arg, first, n, at) for each run of elements of the whole, row-major: n from `first` on, which are those from `at` on here. */
void tutti__split_runs(const tutti__state *state,
                       void (*part)(void *arg, int64_t first, int64_t n, int64_t at), void *arg);
void tutti__parallel_free(struct tutti__parallel *parallel);
/* The tokens [..,D] of which each rank has its rows from now on in the forward that runs; n 0: none are divided. A forward that begins
 * behind their division sets them. */
tutti_shape tutti__parallel_divided_tokens(const tutti_module *root);
void tutti__parallel_set_divided_tokens(const tutti_module *root, tutti_shape whole);
/* How many rows of them this rank has. */
int64_t tutti__parallel_own_rows(const tutti_module *root, tutti_shape whole);
/* ARG if a rule named no parameter that was made. */
tutti_status tutti__parallel_check(const tutti_module *root);
/* UNSUPPORTED if adapters cannot be added. */
tutti_status tutti__parallel_check_adapters(const tutti_module *root);

/* The product of a layer with a weight that may be divided, by its shape (tutti__adaptable), + bias: the whole result, or this rank's
 * part of it. bias NULL: none. */
tutti_tensor *tutti__parallel_product(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias);
/* x for several layers that read it. */
tutti_tensor *tutti__parallel_shared_input(tutti_tensor *x, const tutti_tensor *weight);
/* What x was before either. */
tutti_tensor *tutti__parallel_original(tutti_tensor *x);
/* A parameter that every rank has, for its rows of the tokens: its gradient is the sum over the ranks. `weight`: its layer's, or it
 * itself; of a layer without a rule, all ranks compute the same, and so have the gradient. */
tutti_tensor *tutti__parallel_weight(tutti_tensor *parameter, const tutti_tensor *weight);
/* A norm's forward, of x with this rank's rows of the tokens: in parts, so that its weights' gradients are sums that do not depend on the
 * number of ranks. weight, bias NULL: absent. */
typedef tutti_tensor *(*tutti__norm_of_rows)(const tutti_norm *m, tutti_tensor *x,
                                             tutti_tensor *weight, tutti_tensor *bias);
tutti_tensor *tutti__parallel_norm(const tutti_norm *m, tutti_tensor *x, tutti__norm_of_rows run);
/* The logits of a head whose outputs are a vocabulary, lazy (tensor/op/vocabulary_logits.h). */
tutti_tensor *tutti__parallel_logits(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias);
/* Whether a weight is divided by a rule of VOCABULARY. */
static inline bool tutti__has_vocabulary(const tutti_tensor *weight)
{
    return weight && weight->parameter && tutti__state_of(weight)->how == TUTTI_PARALLEL_VOCABULARY;
}
/* Rows of a table, which may be divided. */
tutti_tensor *tutti__parallel_rows(tutti_tensor *weight, tutti_tensor *indices);
/* Those of the indices that this rank has rows for: of a divided table [n], else the indices themselves. And how they look, before:
 * indices in host memory. */
tutti_tensor *tutti__parallel_own_indices(tutti_tensor *weight, tutti_tensor *indices);
tutti_shape tutti__parallel_own_shape(const tutti_tensor *weight, tutti_array indices);
/* How many of the heads are this rank's, as the outputs of the weight are divided; *first_p (may be NULL): the first of them. The
 * module's error, and 1, if they cannot be divided so. */
int tutti__parallel_heads(tutti_module *m, const tutti_tensor *weight, const char *what, int heads,
                          int *first_p);

/* Whether m is an embedding: its weight is a table of vectors, not a matrix. */
bool tutti__is_embedding(const tutti_module *m);
/* Whether owner is m or below it. */
bool tutti__module_below(const tutti_module *owner, const tutti_module *m);
/* Whether a parameter or buffer belongs to m or a module below, by any of its names. */
bool tutti__state_below(const tutti__state *state, const tutti_module *m);
/* "layers.0.c1", "the module" for a root, in one of 4 buffers of the thread. */
const char *tutti__module_path(const tutti_module *m);
/* Whether m cannot compute; then *y_p is poisoned with its first error, in its context or x's, or NULL without both. */
static inline bool tutti__module_refuses(const tutti_module *m, const tutti_tensor *x,
                                         tutti_tensor **y_p)
{
    tutti_status status = tutti_module_status(m);
    tutti_ctx *cx = m && m->cx ? m->cx : x ? x->cx : NULL;

    if (status != TUTTI_OK)
        *y_p = cx ? tutti__poisoned(cx, status) : NULL;
    return status != TUTTI_OK;
}

/* y = forward(m, x), then m's hook; or what tutti__module_refuses makes. */
tutti_tensor *tutti__module_run(tutti_module *m, tutti_tensor *x,
                                tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x));
/* Tells the context's observer, and calls m's hook, if it has one. with: as in tutti__step_observer. Returns y. */
static inline tutti_tensor *tutti__module_done(tutti_module *m, tutti_tensor *x, tutti_tensor *y,
                                               const char *with)
{
    const tutti__step_observer *observer = m->cx->observer;

    if (observer && observer->forward && y && y->poison == TUTTI_OK)
        observer->forward(observer->self, m, with, y);
    if (m->hook && y && y->poison == TUTTI_OK)
        m->hook(m, x, y, m->hook_arg);
    return y;
}

/* Lays the root out in creation order, unless it is laid out. */
tutti_status tutti__flat_prepare(void *root);
/* The same before a training step, when no activations need memory besides the old and the new parameters. If it fails, so will
 * backward, with a message. */
void tutti__flat_early(struct tutti_root *root);
/* Moves gradients out of the memory given to tutti_module_flat_layout, which is about to be freed; never leaves them there. */
void tutti__flat_return_gradients(struct tutti_root *root);
/* Room for n spans, owned by the root. NULL with the message set. */
tutti__flat_span *tutti__flat_spans(struct tutti_root *root, size_t n);
void tutti__flat_free_retired(struct tutti_root *root);
void tutti__flat_destroy(struct tutti_root *root);

/* ---- Parameters of which each rank has shares (ZeRO-3) ---- */

/* Gives the parameters addresses in reserved memory, in this order, and their gradients this memory. *from_p: where the elements of
 * parameter i are now, NULL: not drawn yet; for `bring`, and to be freed by the caller. */
tutti_status tutti__flat_reserve(struct tutti_root *root, tutti_tensor *const *order,
                                 float *gradients, const void ***from_p);
/* Moves or draws the elements of parameter i into its memory, which is backed, and frees where they were. */
tutti_status tutti__flat_bring(struct tutti_root *root, size_t i, const void *from);
/* Draws the initial values of a parameter into its memory, which is zeroed. */
tutti_status tutti__draw_later(const tutti__state *state, void *values);

static inline bool tutti__has_gradient(const tutti__parameter *parameter)
{
    return parameter->grad && parameter->grad_round == *parameter->round;
}

/* ---- Models: a file model/<name>.c with one tutti_model_kind called tutti__model_<symbol>; symbol and name here ---- */

/* clang-format off */
#define TUTTI__MODELS(X) \
    X(mini_resnet, "mini_resnet") X(mlp, "mlp") X(linear, "linear") \
    X(resnet18, "resnet18") X(resnet34, "resnet34") X(resnet50, "resnet50") X(resnet101, "resnet101") \
    X(mobilenet_v2, "mobilenet_v2") X(vit, "vit") X(vit_b_16, "vit_b_16") X(lstm, "lstm") X(unet, "unet") X(airbench94, "airbench94") \
    X(gpt2, "gpt2") X(gpt2_medium, "gpt2-medium") X(gpt2_large, "gpt2-large") X(gpt2_xl, "gpt2-xl") X(llama, "llama")
/* clang-format on */

#define TUTTI__MODEL(symbol, name) extern const tutti_model_kind tutti__model_##symbol;
TUTTI__MODELS(TUTTI__MODEL)
#undef TUTTI__MODEL

/* Dropout before a model's last layer, if it has any. */
static inline tutti_tensor *tutti__model_dropout(float dropout, tutti_tensor *x)
{
    return dropout > 0 ? tutti_dropout(x, dropout) : x;
}

/* ---- Models in parts ---- */

/* Whether its input is tokens, I64 [N,T]; of a name without a model: false. */
bool tutti__model_reads_tokens(const char *name, const tutti_model_opts *opts);
/* The blocks of a model, which the caller frees. ARG: it is no list of blocks. */
tutti_status tutti__model_blocks(const char *name, const tutti_model_opts *opts,
                                 tutti_model_block **blocks_p, int *n_p);
/* tutti_model_new of the parameters and buffers alone that `state` selects, with the values that they have in the whole model; with
 * no_values zeros. */
tutti_status tutti__model_new_part(tutti_model **model_p, tutti_ctx *cx, const char *name,
                                   const tutti_model_opts *opts, const char *state, bool no_values);
/* As tutti_model_forward, of blocks first to end - 1. */
tutti_tensor *tutti__model_run(tutti_model *model, const tutti_model_block *blocks, int first,
                               int end, tutti_tensor *x);

/* The library's model of this name; NULL: there is none. */
const tutti_model_kind *tutti__model_find(const char *name);
/* Checks a kind of the program; ARG with the member that it lacks. */
tutti_status tutti__model_check(const tutti_model_kind *own);

#endif
