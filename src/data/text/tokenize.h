/* tokenize.h -- the text of files, piece by piece, to tokens.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_TOKENIZE_H
#define TUTTI_DATA_TEXT_TOKENIZE_H

#include "data/text/tokenizer.h"
#include "data/text/tokens.h"

/* Where tokens go. */
typedef struct tutti__token_sink {
    tutti_status (*put)(void *user, const uint32_t *tokens, size_t n);
    void *user;
} tutti__token_sink;

/* Passes the tokens of text->from to text->from + text->used, of bytes that are files (text_data.h), to the sink, those of a few
 * megabytes at a time, with the end of text between documents. The same tokens as if the text were one piece. */
tutti_status tutti__tokenize(tutti_tokenizer *t, const tutti__tokens *text,
                             const tutti__token_sink *sink, const tutti__tick *tick);

#endif
