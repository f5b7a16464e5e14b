/* tokenizer.h -- the inside of a tokenizer.   SPDX-License-Identifier: MIT
 *
 * A text is divided at added tokens; what is between them goes through the stages of the pre-tokenizer, each of which divides its
 * pieces further; the pieces of the last one, words, are merged from bytes to tokens. */
#ifndef TUTTI_DATA_TEXT_TOKENIZER_H
#define TUTTI_DATA_TEXT_TOKENIZER_H

#include "data/dataset.h"

#include <jansson.h>
#include <tutti/tokenizer.h>

/* ---- Patterns: PCRE2 ----------------------------------------------------------------------------------------- */

typedef struct tutti__pattern tutti__pattern;

/* GPT-2's, of words. */
extern const char tutti__gpt2_pattern[];
/* literal: the text itself, not an expression. FORMAT if it is none; UNSUPPORTED in a build without PCRE2. */
tutti_status tutti__pattern_new(tutti__pattern **pattern_p, const char *text, bool literal);
void tutti__pattern_free(tutti__pattern *pattern);
/* Whether a match depends on what is in front of it. */
bool tutti__pattern_looks_behind(const tutti__pattern *pattern);
/* What the matches of a text cost, which bounds them together. */
typedef struct tutti__matching {
    uint64_t spent; /* more than the text so far pays for */
    uint64_t calls;
    const tutti__tick *tick; /* called now and then with done, total; NULL: none */
    size_t done, total;
} tutti__matching;
/* The next match at or behind `at` in valid UTF-8, not empty; *begin_p is n if there is none. FORMAT, with the pattern, if its time is
 * not in proportion to the text; the tick's error. */
tutti_status tutti__pattern_next(tutti__pattern *pattern, tutti__matching *matching,
                                 const char *text, size_t n, size_t at, size_t *begin_p,
                                 size_t *end_p);

/* ---- A growing list ------------------------------------------------------------------------------------------ */

typedef struct tutti__token_list {
    uint32_t *p;
    size_t n, room;
} tutti__token_list;
/* Room for `more`; MEMORY. */
tutti_status tutti__token_list_reserve(tutti__token_list *list, size_t more);

/* ---- The model: bytes, merges -------------------------------------------------------------------------------- */

/* From two tokens to what they become. */
typedef struct tutti__merge {
    uint32_t left, right, rank, token;
} tutti__merge;

enum {
    TUTTI__NO_TOKEN = -1,
    TUTTI__WORD_BYTES = 23, /* of a word in the cache */
    TUTTI__WORD_TOKENS = 9
};

typedef struct tutti__word {
    uint8_t bytes[TUTTI__WORD_BYTES], n_bytes;
    uint32_t n_tokens, tokens[TUTTI__WORD_TOKENS];
} tutti__word;

typedef struct tutti__symbol {
    int64_t token; /* -1: merged into the one before */
    size_t before, behind;
} tutti__symbol;

/* A possible merge of a long word. */
typedef struct tutti__bpe_candidate {
    uint32_t rank, left, right, token;
    size_t at;
} tutti__bpe_candidate;

typedef struct tutti__bpe {
    size_t n;       /* of the vocabulary */
    size_t *at;     /* [n + 1]: where a token's bytes begin in `bytes` */
    uint8_t *bytes; /* of all tokens */
    int64_t of_byte[256];
    tutti__merge *merges; /* an open hash table, of 2^k; rank UINT32_MAX: empty */
    size_t merge_mask, n_merges;
    int exact; /* a token's bytes are those of the tokens it is merged from: 1: yes, -1: no, 0: not known yet */
    uint32_t *
        words; /* likewise: token + 1 of its bytes; 0: empty. NULL: words are never looked up whole */
    size_t word_mask;
    int64_t unknown; /* for bytes without a token; -1: left out */
    tutti__word *cache;
    tutti__symbol *symbols; /* of the longest word, or block, so far */
    size_t symbol_room;
    tutti__bpe_candidate *heap;
    size_t heap_n, heap_room;
} tutti__bpe;

/* Sets the tokens' bytes: tokens[i] with lengths[i], which it copies. MEMORY. */
tutti_status tutti__bpe_set_tokens(tutti__bpe *bpe, const uint8_t *const *tokens,
                                   const uint32_t *lengths, size_t n);
/* Room for n merges; then each is added. One pair twice: the later counts. */
tutti_status tutti__bpe_reserve_merges(tutti__bpe *bpe, size_t n);
void tutti__bpe_add_merge(tutti__bpe *bpe, uint32_t left, uint32_t right, uint32_t rank,
                          uint32_t token);
/* Words that are tokens need no merges. is_word NULL: all tokens are. Of tokens with equal bytes the first counts. */
tutti_status tutti__bpe_index_words(tutti__bpe *bpe, const bool *is_word);
/* The token with these bytes; -1: none. After index_words. */
int64_t tutti__bpe_find(const tutti__bpe *bpe, const uint8_t *bytes, size_t n);
/* Appends a word's tokens. */
tutti_status tutti__bpe_encode(tutti__bpe *bpe, const uint8_t *word, size_t n,
                               tutti__token_list *list);
void tutti__bpe_free(tutti__bpe *bpe);

/* ---- The tokenizer ------------------------------------------------------------------------------------------- */

/* A step of the pre-tokenizer. */
typedef struct tutti__stage {
    tutti__pattern *pattern; /* NULL: pieces stay whole */
    bool matches_only;       /* what is between matches is dropped, not a piece */
    bool prefix_space;       /* pieces without a space in front get one */
} tutti__stage;

typedef struct tutti__added {
    char *text;
    size_t n;
    int64_t token;
    bool normalized; /* looked for after those that are not */
} tutti__added;

enum { TUTTI__STAGES = 8, TUTTI__MOST_ADDED = 4096 };

struct tutti_tokenizer {
    tutti__bpe bpe;
    tutti__matching matching;
    bool is_nfc; /* text is normalized to form C */
    bool is_bytes,
        is_characters; /* each byte, or each character of a list, is a token, and there are no others */
    tutti__stage stages[TUTTI__STAGES];
    int n_stages;
    tutti__added *added;
    size_t n_added;
    bool added_first[256]; /* bytes with which one begins */
    int64_t end_of_text;
    bool is_pair, is_tiktoken; /* vocab.json and merges.txt; tiktoken's; else tokenizer.json */
    char digest[33];           /* of the file, or files; "": there is none */
    char path[4096];           /* of the file, or the name; "": made from a checkpoint */
};

/* Each reads t->path, whose contents are given. */
tutti_status tutti__tokenizer_read_json(tutti_tokenizer *t, const json_t *root);
/* vocab: of vocab.json; merges: the text of merges.txt, which is cut into lines. */
tutti_status tutti__tokenizer_read_vocab(tutti_tokenizer *t, const json_t *vocab, char *merges);
/* text is cut into lines. */
tutti_status tutti__tokenizer_read_tiktoken(tutti_tokenizer *t, char *text);
tutti_status tutti__tokenizer_add(tutti_tokenizer *t, const char *text, int64_t token,
                                  bool normalized);
tutti_status tutti__tokenizer_add_stage(tutti_tokenizer *t, const tutti__stage *stage);

/* ---- The tokenizer of a data set, which checkpoints keep ----------------------------------------------------- */

/* The tokenizer of a folder; NULL: it has none. Errors as open's. */
tutti_status tutti__tokenizer_beside(tutti_tokenizer **tokenizer_p, const char *dir);
/* "bytes" or "shakespeare", which are not the path of a file. */
bool tutti__tokenizer_is_name(const char *path);
/* Makes the one of this name. */
tutti_status tutti__tokenizer_make(tutti_tokenizer *t, const char *name);
/* What identifies it, as JSON, to free(): its kind ("bytes"; "characters", with the list; "file", with the digest and the end of text);
 * not its path, by which a copy would be another. */
char *tutti__tokenizer_json(const tutti_tokenizer *t);
/* One of bytes or characters as the text of Hugging Face's tokenizer.json, to free(); NULL: it is another, or has characters of several
 * bytes. MEMORY. */
tutti_status tutti__tokenizer_plain_json(const tutti_tokenizer *t, char **text_p);
/* Whether both are of one file, or of bytes or characters alone, with the same numbers. */
bool tutti__tokenizer_has_tokens_of(const tutti_tokenizer *a, const tutti_tokenizer *b);
/* Whether that is what `tokenizer` says. */
bool tutti__tokenizer_is(const tutti_tokenizer *t, const json_t *tokenizer);
/* Copies the file of a tokenizer, or both files, to a folder, under a name by which it is found there. A NULL path, or one that is a name:
 * does nothing. */
tutti_status tutti__tokenizer_copy(const char *path, const char *dir);
/* Whether a path is a file of the tokenizer, or the copy's in a folder. */
bool tutti__tokenizer_has_file(const tutti_tokenizer *t, const char *dir, const char *path);
/* The tokenizer that training data had (tutti_dataset_fitted, of which it is "tokenizer"): bytes and characters are made; a file is
 * looked for. given: the path or name of one that a person names, which is taken whatever its digest; NULL: none. places: n files or folders
 * where the one of the same digest may be, the first that has it counts; NULLs and what is not there are skipped. Errors: as open;
 * NOT_FOUND with what to give. */
tutti_status tutti__tokenizer_of_fit(tutti_tokenizer **tokenizer_p, const char *fit,
                                     const char *given, const char *const *places, size_t n);

/* A text in memory that grows; to free(). Zero at first. */
typedef struct tutti__stream_text {
    char *p; /* with a NUL; NULL: nothing was added yet */
    size_t n, room;
} tutti__stream_text;
/* Appends what tutti_tokenizer_stream writes of a token, or -1. */
tutti_status tutti__tokenizer_append(const tutti_tokenizer *t, tutti_text_stream *stream,
                                     int64_t token, tutti__stream_text *text);

/* Appends the tokens of valid UTF-8. FORMAT for a character that is none of them. */
tutti_status tutti__tokenizer_encode(tutti_tokenizer *t, const char *text, size_t n,
                                     tutti__token_list *list);
/* The same for the beginning of a longer text: only as far as it does not depend on what follows, which is *used_p bytes, fewer than
 * TUTTI__LOOK_AHEAD less than n; or 0, for a tokenizer that must see the whole text. *inside_p is false at the beginning of a text,
 * and then what the last call has set. */
enum { TUTTI__LOOK_AHEAD = 1 << 16 };
tutti_status tutti__tokenizer_encode_some(tutti_tokenizer *t, const char *text, size_t n,
                                          bool *inside_p, tutti__token_list *list, size_t *used_p);
/* The end of that text. */
tutti_status tutti__tokenizer_encode_rest(tutti_tokenizer *t, const char *text, size_t n,
                                          bool inside, tutti__token_list *list);

#endif
