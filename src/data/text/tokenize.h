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

/* What `tutti data tokenize` is to do. */
typedef struct tutti__bin_job {
    const char *const *sources; /* files, and folders of .txt files: documents in this order */
    size_t n;
    const char *tokenizer, *out;
    const char *val; /* gets the last tenth of the text; NULL: there is none */
    bool raw; /* nanoGPT's: tokens of 16 bits alone; else llm.c's, of 16 or 32 by the vocabulary */
    const tutti__tick *tick;
} tutti__bin_job;

typedef struct tutti__bin_report {
    uint64_t bytes, documents, tokens, val_tokens;
    int64_t vocab;
    int width; /* of a token, in bytes */
} tutti__bin_report;

/* Writes the files, each whole or not at all, and a copy of the tokenizer beside `out`, unless it is there, or `out` is a device or a
 * pipe. Errors: ARG for a folder with another tokenizer, and for a file that is also read, or named twice; those of reading, writing
 * and tokenizing. */
tutti_status tutti__bin_write(const tutti__bin_job *job, tutti__bin_report *report_p);

/* Describes a data set of tokens, all of which it reads: their number, documents, the tokenizer, the most frequent ones, the
 * beginning of the text. False: the data set has no tokens, and nothing is done. */
bool tutti__data_show_tokens(const tutti_dataset *dataset, FILE *out, const tutti__tick *tick,
                             tutti_status *status_p);

#endif
