/* generation.h -- a language model that continues a text, token by token.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_GENERATION_H
#define TUTTI_TRAIN_GENERATION_H

#include "nn/kv_cache.h"
#include "train/infer/sampling.h"
#include <tutti/nn.h>
#include <tutti/pipeline.h>
#include <tutti/tokenizer.h>

typedef struct tutti__generation {
    tutti_ctx *cx;
    tutti_model *model;
    tutti_dtype autocast; /* 0: F32 */
    bool cached; /* the model knows caches; else it reads the whole window for each token */
    tutti__kv_cache cache;
    int64_t context; /* the most tokens that the model looks at */
    size_t vocab;    /* tokens that the model knows */
    size_t limit;    /* those that may be drawn: below it */
    int64_t *tokens; /* so far; n */
    size_t n, room;
    size_t begin; /* of the window: the model has read those from there on that the cache has */
    tutti_pipeline
        *pipeline; /* of which the model is this rank's part; all ranks call. NULL: it is whole */
    tutti_group *stages; /* its ranks */
    float *logits;       /* [vocab], of the next token */
    tutti__choice *choices;
} tutti__generation;

/* Of a model whose logits are [N,T,vocab]; limit: 0 for vocab. MEMORY. */
tutti_status tutti__generation_open(tutti__generation *g, tutti_ctx *cx, tutti_model *model,
                                    bool cached, int64_t context, size_t vocab, size_t limit);
void tutti__generation_close(tutti__generation *g);
/* Begins anew with a text of n tokens, at least one, below vocab. ARG otherwise. */
tutti_status tutti__generation_begin(tutti__generation *g, const int64_t *tokens, size_t n);
/* Draws the next token, and appends it. Where a text is longer than the context, the model looks at between half of it and all: its
 * window moves by half a context when it is full, so that each token is in the middle of a text that has been read. FORMAT if a
 * logit is NaN. */
tutti_status tutti__generation_next(tutti__generation *g, const tutti__sampling *s, uint64_t sample,
                                    int64_t *token_p);
/* Returns the memory of keys and values until the next text begins. */
void tutti__generation_rest(tutti__generation *g);
/* With which token a text without a prompt begins: the end of another text or, of bytes and characters, of a line; else token 0. */
int64_t tutti__generation_first(const tutti_tokenizer *tokenizer);
/* Where the window of a text of n tokens begins. */
size_t tutti__generation_window(size_t n, int64_t context);

#endif
