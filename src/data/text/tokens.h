/* tokens.h -- a sequence of tokens in files and memory, and its samples: windows of T tokens.   SPDX-License-Identifier: MIT
 *
 * Sample i of a sequence of N tokens is tokens i T to i T + T, of which x is the first T and y the last T; there are (N - 1) / T
 * samples. Windows may cross from one document, or file, into the next. */
#ifndef TUTTI_DATA_TEXT_TOKENS_H
#define TUTTI_DATA_TEXT_TOKENS_H

#include "data/dataset.h"

#include <tutti/tokenizer.h>

enum { TUTTI__CONTEXT = 64, TUTTI__MAX_CONTEXT = 1 << 20 };

/* Those of data=shakespeare, in the order of their tokens. */
extern const char tutti__shakespeare_characters[];

/* Tokens of 1, 2 or 4 bytes, little-endian, in a file or in memory. */
typedef struct tutti__token_part {
    char *path;           /* for messages, owned; NULL: none */
    const uint8_t *bytes; /* in memory; NULL: in the file */
    int fd;               /* of the file; -1: it is opened for each read */
    void *owned;          /* to free; NULL: bytes are borrowed */
    int width;
    uint64_t offset, size; /* of the first token in the file; and of the file, in bytes */
    uint64_t count, first; /* tokens; and where they begin in the sequence */
} tutti__token_part;

typedef struct tutti__tokens {
    tutti__token_part *parts;
    size_t n, room, n_open; /* n_open: files that stay open */
    uint64_t count;         /* of all parts */
    uint64_t from, used;    /* the tokens of this split */
    size_t context;         /* T */
    int vocab;              /* tokens are below this */
    bool is_large;          /* the digest is of a part of the tokens, if they are many */
    char *fit;              /* tutti_dataset_fitted, owned */
    char *tokenizer;        /* the path of its file, or its name, owned; NULL: none */
    tutti_field fields[2];
} tutti__tokens;

/* Appends tokens of a file, which stay there; path is copied. The first 128 files stay open; others are opened for each read, as
 * a folder may have more files than a process may open. */
tutti_status tutti__tokens_add_file(tutti__tokens *t, const char *path, int width, uint64_t offset,
                                    uint64_t count);
/* Appends tokens in memory, which become the sequence's if `owned` (then freed on failure, too). path: NULL, or their origin. */
tutti_status tutti__tokens_add_memory(tutti__tokens *t, const char *path, const void *bytes,
                                      int width, uint64_t count, bool owned);
/* Removes all parts. */
void tutti__tokens_clear(tutti__tokens *t);
/* Reads `bytes` bytes of a part that is in a file, from byte `at` behind its offset on. Any thread. IO, FORMAT: the file has
 * changed. */
tutti_status tutti__token_part_read(const tutti__token_part *part, uint64_t at, void *p,
                                    size_t bytes);
/* Reads n tokens of all parts, from `first` on. Any thread. */
tutti_status tutti__tokens_read(const tutti__tokens *t, uint64_t first, size_t n, int64_t *to);
/* That n tokens, which were read from `first` on, are below vocab. FORMAT, with file and position. */
tutti_status tutti__tokens_check(const tutti__tokens *t, uint64_t first, size_t n,
                                 const int64_t *tokens);
/* The largest token of all parts. */
tutti_status tutti__tokens_largest(const tutti__tokens *t, uint64_t *largest_p);
/* Sets the vocabulary: the caller's, which may be larger than the tokens' own, or (0) that one; and what the data set has
 * learned, once from and used are set. tokenizer: JSON of what the tokens mean; NULL: not known. ARG for a vocabulary that is smaller than `own`. */
tutti_status tutti__tokens_set_vocab(tutti__tokens *t, const tutti_dataset_source *source,
                                     const char *format, int own, const char *tokenizer);
/* The same by a tokenizer, whose path is kept. */
tutti_status tutti__tokens_set_tokenizer(tutti__tokens *t, const tutti_dataset_source *source,
                                         const char *format, const tutti_tokenizer *tokenizer);
/* Fills in info, once from, used and vocab are set. FORMAT if there are too few tokens for one sample; ARG for a context out of
 * range. name: of the data, for messages. */
tutti_status tutti__tokens_describe(tutti__tokens *t, const tutti_dataset_source *source,
                                    const char *name, tutti_dataset_info *info);
/* A format's read_arrays. With a chance, windows begin up to T tokens later, and the last one ends with the first tokens of the
 * split: all samples of an epoch get the same. FORMAT for a token that is not below vocab, with file and position. */
tutti_status tutti__tokens_sample(const void *self, size_t index, const uint64_t *chance,
                                  void *const *arrays);
/* A format's locate, fitted and close, of a tutti__tokens that is all of its data. */
void tutti__tokens_locate(const void *self, size_t index, char *text, size_t size);
const char *tutti__tokens_fitted(const void *self);
void tutti__tokens_close(void *self);

/* The path of a data set's tokenizer; NULL: it has none. */
const char *tutti__dataset_tokenizer(const tutti_dataset *dataset);

/* ---- Splits ------------------------------------------------------------------------------------------------ */

/* Of a split's name. TUTTI__SPLIT_TEST: also val and validation. */
typedef enum tutti__split { TUTTI__SPLIT_TRAIN, TUTTI__SPLIT_TEST, TUTTI__SPLIT_ALL } tutti__split;
/* ARG for another name than train, test, val, validation and all. */
tutti_status tutti__split_of(const tutti_dataset_source *source, tutti__split *split_p);
/* Sets from and used: the first `training` tokens are for training, those from `testing` on for testing. */
void tutti__tokens_use(tutti__tokens *t, tutti__split split, uint64_t training, uint64_t testing);
/* Of n tokens, or bytes, that are for training where no file is for testing: nine tenths, as nanoGPT takes them. */
uint64_t tutti__split_at(uint64_t n);

/* ---- UTF-8 ------------------------------------------------------------------------------------------------- */

/* The length of the longest beginning that is valid; a character that the end cuts off is not a part of it. */
size_t tutti__utf8_valid(const uint8_t *p, size_t n);

#endif
