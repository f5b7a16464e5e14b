/* shakespeare.c -- Tiny Shakespeare, in the library: 1,115,394 characters of 65 kinds.   SPDX-License-Identifier: MIT
 *
 * Of W. Shakespeare's plays, which are in the public domain; the file of char-rnn and nanoGPT, compressed by
 * tools/make_shakespeare.py. As in nanoGPT, tokens are characters, numbered in their order, and the last tenth is for testing. */
#include "data/text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const uint8_t COMPRESSED[] = {
#include "shakespeare.z.inc"
};

enum { CHARACTERS = 1115394 };
const char tutti__shakespeare_characters[] =
    "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* What the tokens mean. */
static const char TOKENIZER[] =
    "{\"kind\":\"characters\",\"characters\":"
    "\"\\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\"}";

static void number(uint8_t *text)
{
    uint8_t token[256] = {0};

    for (int i = 0; tutti__shakespeare_characters[i]; i++)
        token[(uint8_t)tutti__shakespeare_characters[i]] = (uint8_t)i;
    for (size_t i = 0; i < CHARACTERS; i++)
        text[i] = token[text[i]];
}

static tutti_status shakespeare_open(void **self_p, const tutti_dataset_source *source,
                                     tutti_dataset_info *info)
{
    const uint64_t training = tutti__split_at(CHARACTERS);
    tutti__tokens *t = *self_p = tutti__alloc(sizeof *t);
    uint8_t *text = malloc(CHARACTERS);
    uLongf n = CHARACTERS;

    if (!t || !text || uncompress(text, &n, COMPRESSED, sizeof COMPRESSED) != Z_OK) {
        free(text);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to unpack Tiny Shakespeare");
    }
    number(text);
    TUTTI_TRY(tutti__tokens_add_memory(t, NULL, text, 1, CHARACTERS, true));
    t->from = source->train ? 0 : training;
    t->used = source->train ? training : CHARACTERS - training;
    TUTTI_TRY(tutti__tokens_set_vocab(t, source, "shakespeare",
                                      (int)strlen(tutti__shakespeare_characters), TOKENIZER));
    return tutti__tokens_describe(t, source, "Tiny Shakespeare", info);
}

const tutti_dataset_format tutti__format_shakespeare = {
    .name = "shakespeare",
    .help = "Tiny Shakespeare, characters as tokens, in the library",
    .no_folder = true,
    .epoch_seed = true,
    .open = shakespeare_open,
    .read_arrays = tutti__tokens_sample,
    .close = tutti__tokens_close,
    .locate = tutti__tokens_locate,
    .fitted = tutti__tokens_fitted,
};
