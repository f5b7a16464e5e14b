/* pickle.h -- the part of Python's pickle that saved weights are made of, read into values.   SPDX-License-Identifier: MIT
 *
 * A pickle is a program for a small stack machine with a memo; Python's can call any function. This one knows a list of names
 * that build data (pickle.c) and rejects all others: it never executes anything. */
#ifndef TUTTI_CHECKPOINT_PICKLE_H
#define TUTTI_CHECKPOINT_PICKLE_H

#include "base/base.h"
#include <tutti/tensor.h>

typedef enum tutti__pickle_kind {
    TUTTI__PICKLE_NONE,
    TUTTI__PICKLE_BOOL,
    TUTTI__PICKLE_INT,
    TUTTI__PICKLE_REAL,
    TUTTI__PICKLE_TEXT,
    TUTTI__PICKLE_TUPLE,
    TUTTI__PICKLE_LIST,
    TUTTI__PICKLE_DICT, /* items: key, value, key, value, ... */
    TUTTI__PICKLE_STORAGE,
    TUTTI__PICKLE_TENSOR,
    TUTTI__PICKLE_GLOBAL,
    TUTTI__PICKLE_OTHER, /* an object whose contents are ignored */
    TUTTI__PICKLE_MARK   /* only within the interpreter */
} tutti__pickle_kind;

typedef struct tutti__pickle_value tutti__pickle_value;

/* The type of a storage's elements. */
typedef struct tutti__torch_dtype {
    const char *storage; /* "FloatStorage" */
    const char *text;    /* "F32", as safetensors writes it */
    unsigned bytes;
    int dtype; /* ours; -1: none */
} tutti__torch_dtype;

typedef struct tutti__pickle_text {
    const char *p; /* bytes of the pickle, without a NUL */
    size_t n;
} tutti__pickle_text;

typedef struct tutti__pickle_items {
    tutti__pickle_value **p;
    size_t n, room;
} tutti__pickle_items;

typedef struct tutti__pickle_tensor {
    const tutti__pickle_value *storage;
    int64_t offset; /* of the first element, in elements */
    int n_dims;     /* may exceed TUTTI_MAX_DIMS: then size and stride hold the first ones only */
    int64_t size[TUTTI_MAX_DIMS], stride[TUTTI_MAX_DIMS]; /* stride in elements */
} tutti__pickle_tensor;

struct tutti__pickle_value {
    tutti__pickle_kind kind;
    bool holds_tensors; /* DICT: under a TEXT */
    union {
        int64_t integer; /* BOOL, INT */
        double real;
        tutti__pickle_text text;
        tutti__pickle_items items; /* TUPLE, LIST, DICT */
        struct {
            const tutti__torch_dtype *type;
            tutti__pickle_text key; /* the file data/KEY */
            int64_t count;          /* elements */
        } storage;
        tutti__pickle_tensor *tensor;
        const struct tutti__pickle_global *global;
    } of;
};

/* The values of one pickle; texts point into its bytes. */
typedef struct tutti__pickle {
    tutti__arena arena;
    tutti__pickle_value *root;
} tutti__pickle;

/* Runs the n bytes at p. `path` is for messages. Errors: FORMAT if it is not such a pickle; UNSUPPORTED for a class that is not
 * listed, with its name and the remedy. Free it after a failure too. */
tutti_status tutti__pickle_read(tutti__pickle *pickle, const uint8_t *p, size_t n,
                                const char *path);
void tutti__pickle_free(tutti__pickle *pickle);

#endif
