/* codec.h -- text to a language model's tokens, and back.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CODEC_H
#define TUTTI_TRAIN_CODEC_H

#include "base/base.h"

/* Starts as {0}. */
typedef struct tutti__codec {
    size_t n;              /* tokens */
    int64_t end;           /* of a text; -1: none */
    int64_t line;          /* a line's end, before which a text may begin; -1: none */
    char (*characters)[5]; /* [n]: token i is this character; NULL: tokens are bytes */
    char byte;             /* the last one */
} tutti__codec;

/* By what the training data taught (tutti_dataset_fitted); NULL: nothing. Errors: ARG with what to give; FORMAT, MEMORY. */
tutti_status tutti__codec_open(tutti__codec *codec, const char *fit);
void tutti__codec_close(tutti__codec *codec);
/* ARG for text that has no tokens. *tokens_p: to be freed. */
tutti_status tutti__codec_encode(const tutti__codec *codec, const char *text, size_t bytes,
                                 int64_t **tokens_p, size_t *n_p);
/* The bytes of a token, *bytes_p of them, which may be a part of a character. Until the next call. */
const char *tutti__codec_decode(tutti__codec *codec, int64_t token, size_t *bytes_p);
/* With what a text without a prompt begins: the end of another, or of a line, or token 0. */
int64_t tutti__codec_first(const tutti__codec *codec);

#endif
