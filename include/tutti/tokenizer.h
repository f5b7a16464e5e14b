/* tokenizer.h -- text as tokens, and back: byte-level BPE.
 * SPDX-License-Identifier: MIT
 *
 * Threads: one thread at a time encodes; any number decodes meanwhile. */
#ifndef TUTTI_TOKENIZER_H
#define TUTTI_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_tokenizer tutti_tokenizer;

/* Opens a tokenizer:
 *   tokenizer.json      Hugging Face's: a BPE model of bytes, with its pre-tokenizer and its added tokens
 *   vocab.json          with merges.txt beside it: GPT-2's, in Hugging Face's older form
 *   NAME.tiktoken       lines of a token in base64 and its rank: GPT-2's, p50k_base or Whisper's, which have GPT-2's pattern, and the
 *                       token <|endoftext|>
 *   a folder            with one of these
 *   bytes               (the word; ./bytes is a file) 256 tokens, one for each byte; byte 0, which text does not have, ends a text
 *   shakespeare         the 65 characters of the data set of that name; text with another one is an error (FORMAT)
 * Errors: NOT_FOUND, IO; FORMAT for a damaged file; UNSUPPORTED, naming it, for a part of a tokenizer.json that is not a byte-level
 * BPE's, and for all files in a build without PCRE2. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_open(tutti_tokenizer **tokenizer_p,
                                                            const char *path);
TUTTI_API void tutti_tokenizer_free(tutti_tokenizer *tokenizer);
/* Tokens are less than this; 0 of NULL. */
TUTTI_API int64_t tutti_tokenizer_vocab(const tutti_tokenizer *tokenizer);
/* The token that ends a text (<|endoftext|>, <|end_of_text|>, </s>, ...); -1: there is none. */
TUTTI_API int64_t tutti_tokenizer_end_of_text(const tutti_tokenizer *tokenizer);
/* Tokens of a text of UTF-8, to free(). Added tokens, as <|endoftext|>, are recognised in the text; none is added, neither in front
 * nor behind. Errors: FORMAT for text that is not UTF-8, with the position. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_encode(tutti_tokenizer *tokenizer,
                                                              const char *text, size_t bytes,
                                                              int64_t **tokens_p, size_t *n_p);
/* The bytes of a token, which may be a part of a character: valid as long as the tokenizer. *n_p 0: the token means nothing. */
TUTTI_API const char *tutti_tokenizer_bytes(const tutti_tokenizer *tokenizer, int64_t token,
                                            size_t *n_p);
/* All bytes of n tokens, with a NUL behind them, to free(). They are UTF-8 only if the tokens are a whole text. Errors: ARG for a
 * token out of range. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_decode(const tutti_tokenizer *tokenizer,
                                                              const int64_t *tokens, size_t n,
                                                              char **text_p, size_t *bytes_p);

/* Text that appears token by token: whole characters only. Zero at first. */
typedef struct tutti_text_stream {
    char held[8]; /* the beginning of a character */
    int n;
} tutti_text_stream;
/* Adds a token, and writes the characters that are complete, with a NUL, to text[size]; bytes that are in no character become
 * U+FFFD. Returns their number, or the room needed, less the NUL, if `size` is not enough: then nothing has changed. token -1: the
 * end, which completes what is held. */
TUTTI_API size_t tutti_tokenizer_stream(const tutti_tokenizer *tokenizer, tutti_text_stream *stream,
                                        int64_t token, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
