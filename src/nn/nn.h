/* nn.h -- the inside of a root module, and what a model is.   SPDX-License-Identifier: MIT
 *
 * The root owns every parameter and buffer below it, in one list in creation order, and the flat memory beneath the
 * parameters. Modules are only names and places in a tree. */
#ifndef TUTTI_NN_NN_H
#define TUTTI_NN_NN_H

#include "device/flat.h"
#include "tensor/tensor.h"
#include <tutti/nn.h>

/* One parameter or buffer. The tensor's `parameter` points here if it is one; a buffer uses only the name. */
typedef struct tutti__state {
    tutti_tensor *tensor;
    const tutti_module *owner;
    tutti__parameter parameter;
    void *memory; /* the tensor's own, until it lies in flat memory; buffers': always */
} tutti__state;

typedef struct tutti__state_list {
    tutti__state **p;
    size_t n, capacity;
} tutti__state_list;

/* State by its full name, at tutti__hash64 of it modulo the capacity, a power of two, or the next free place. */
typedef struct tutti__name_table {
    tutti__state **p;
    size_t capacity;
} tutti__name_table;

/* Of the walk over one kind below a module: n of them, the last of which is `last`, lie before place k of the root's list. */
typedef struct tutti__cursor {
    const tutti_module *module;
    size_t n, k;
    tutti_tensor *last;
} tutti__cursor;

/* ---- Shares of flat memory (ZeRO) ----------------------------------------------------------------------
 * Where they are set, optimizers update these ranges only, and a gradient is the mean over all ranks in them only, unless said. They
 * cover this rank's share of what ranks divide, and what every rank keeps whole. */
typedef struct tutti__range {
    size_t begin, end; /* elements of flat memory */
    bool whole;        /* on every rank */
} tutti__range;

typedef struct tutti__sharding {
    void *self;
    tutti_peers peers;
    const tutti__range *ranges; /* rising */
    size_t n;
    uint64_t layouts;     /* the layout that they are of */
    bool whole_gradients; /* every rank has all of the mean: norms are summed without the others */
    /* Makes the ranges good for the layout at hand. STATE if there is no averaged gradient. */
    tutti_status (*prepare)(void *self);
    /* What comes is for all ranks: an update by this optimizer with this rate, or (NULL) clipping to this norm. */
    tutti_status (*begin)(void *self, const void *optim, double value);
    /* Range i of the parameters has its new values; `finish`: when it returns, all ranges of all ranks have theirs. */
    tutti_status (*updated)(void *self, size_t i);
    tutti_status (*finish)(void *self);
} tutti__sharding;

/* A place in the root's list of optimizers; an optimizer begins with it. */
typedef struct tutti__optim_entry {
    struct tutti__optim_entry *next, **link; /* link: what points here; NULL: the root is gone */
} tutti__optim_entry;

struct tutti_root {
    tutti_module *module;
    tutti__state_list state;      /* parameters and buffers as they were made */
    tutti__state_list parameters; /* those alone: parameters.p[i]->parameter.index == i */
    tutti__name_table names;      /* of state */
    tutti__cursor cursors[3];     /* over parameters, buffers, both */
    tutti_status status;          /* the first error of an initialiser */
    char text[1024];
    uint64_t round; /* zero_grad count, from 1 */

    float *flat_parameters, *flat_gradients; /* NULL until laid out */
    bool gradients_borrowed;
    size_t n_flat;
    size_t *offsets;   /* of parameter i, in elements */
    size_t *placement; /* parameters by rising offset */
    uint64_t layouts;  /* how often it was laid out: state with the same offsets must follow */
    tutti__sharding *sharding;  /* NULL: all of it is this rank's */
    tutti__optim_entry *optims; /* over it or modules below, the latest first */
    /* What parameters lay in before, kept until the next zero_grad: the open step may have views. */
    void **retired;
    size_t n_retired;
    tutti__flat_span *spans; /* room for n_spans: tutti__flat_spans */
    size_t n_spans;
};

/* Makes the root's first error; the message is in the thread's. For initialisers that find their arguments wrong. */
void tutti__module_fail(tutti_module *m, tutti_status status, const char *format, ...)
    TUTTI_PRINTF(3, 4);
/* Whether owner is m or lies below it. */
bool tutti__module_below(const tutti_module *owner, const tutti_module *m);
/* "layers.0.c1", "the module" for a root, in one of 4 buffers of the thread. */
const char *tutti__module_path(const tutti_module *m);
/* Whether m cannot compute: then *y_p is poisoned with its first error, in its context or x's; NULL without either. */
static inline bool tutti__module_refuses(const tutti_module *m, const tutti_tensor *x,
                                         tutti_tensor **y_p)
{
    tutti_status status = tutti_module_status(m);
    tutti_ctx *cx = m && m->cx ? m->cx : x ? x->cx : NULL;

    if (status != TUTTI_OK)
        *y_p = cx ? tutti__poisoned(cx, status) : NULL;
    return status != TUTTI_OK;
}

/* Lays the root out in creation order, unless somebody did. */
tutti_status tutti__flat_prepare(void *root);
/* What tutti_module_flat_layout was lent goes away: afterwards nothing of the module lies there, whatever fails. */
void tutti__flat_return_gradients(struct tutti_root *root);
/* Room for n spans, the root's. NULL with the message made. */
tutti__flat_span *tutti__flat_spans(struct tutti_root *root, size_t n);
void tutti__flat_free_retired(struct tutti_root *root);
void tutti__flat_destroy(struct tutti_root *root);

static inline bool tutti__has_gradient(const tutti__parameter *parameter)
{
    return parameter->grad && parameter->grad_round == *parameter->round;
}

/* ---- Models: a file model/<name>.c with one tutti_model_kind called tutti__model_<name>, and its name here ---- */

#define TUTTI__MODELS(X) X(mini_resnet) X(mlp) X(linear)

#define TUTTI__MODEL(name) extern const tutti_model_kind tutti__model_##name;
TUTTI__MODELS(TUTTI__MODEL)
#undef TUTTI__MODEL

/* x, or what dropout leaves of it: what a model's last layer reads. */
static inline tutti_tensor *tutti__model_dropout(float dropout, tutti_tensor *x)
{
    return dropout > 0 ? tutti_dropout(x, dropout) : x;
}

/* The library's model of this name; NULL: there is none. */
const tutti_model_kind *tutti__model_find(const char *name);
/* ARG with the member that a kind of the program's own lacks. */
tutti_status tutti__model_check(const tutti_model_kind *own);

#endif
