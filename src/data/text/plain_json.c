/* plain_json.c -- a tokenizer of bytes or characters as Hugging Face's tokenizer.json, byte-level BPE without merges, and compared.
 * SPDX-License-Identifier: MIT */
#include "data/text/alphabet.h"
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Each token in GPT-2's alphabet, with its number; NULL: a token has more than one byte, of which that alphabet has no character. */
static json_t *vocab_of(const tutti_tokenizer *t, bool *fits_p)
{
    json_t *vocab = json_object();

    *fits_p = t->is_bytes || t->is_characters;
    for (size_t i = 0; vocab && *fits_p && i < t->bpe.n; i++) {
        char text[4];

        *fits_p = t->bpe.at[i + 1] - t->bpe.at[i] == 1;
        tutti__alphabet_character(t->bpe.bytes[t->bpe.at[i]], text);
        if (*fits_p && json_object_set_new(vocab, text, json_integer((json_int_t)i)) != 0) {
            json_decref(vocab);
            vocab = NULL;
        }
    }
    if (vocab && !*fits_p) {
        json_decref(vocab);
        vocab = NULL;
    }
    return vocab;
}

bool tutti__tokenizer_has_tokens_of(const tutti_tokenizer *a, const tutti_tokenizer *b)
{
    const size_t n = a->bpe.n;

    if (a->digest[0] && strcmp(a->digest, b->digest) == 0)
        return true;
    return n == b->bpe.n && a->bpe.n_merges + b->bpe.n_merges + a->n_added + b->n_added == 0 &&
           memcmp(a->bpe.at, b->bpe.at, (n + 1) * sizeof *a->bpe.at) == 0 &&
           memcmp(a->bpe.bytes, b->bpe.bytes, a->bpe.at[n]) == 0;
}

tutti_status tutti__tokenizer_plain_json(const tutti_tokenizer *t, char **text_p)
{
    bool fits;
    json_t *vocab = vocab_of(t, &fits), *root;

    *text_p = NULL;
    if (!fits)
        return TUTTI_OK;
    root = vocab ? json_pack("{s:s, s:n, s:n, s:[], s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, "
                             "s:b, s:b}, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:o, s:[]}}",
                             "version", "1.0", "truncation", "padding", "added_tokens",
                             "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space",
                             0, "trim_offsets", 1, "use_regex", 0, "post_processor", "decoder",
                             "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                             "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
                             "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                             "byte_fallback", 0, "vocab", vocab, "merges")
                 : NULL;
    *text_p = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return *text_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for a tokenizer's file");
}
