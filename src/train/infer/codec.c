/* codec.c -- text to a language model's tokens, and back.   SPDX-License-Identifier: MIT */
#include "train/infer/codec.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Of a valid character. */
static size_t character_bytes(const char *p)
{
    const unsigned char c = (unsigned char)*p;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Tokens are the characters of this list. */
static tutti_status open_characters(tutti__codec *codec, const char *list)
{
    for (const char *p = list; *p; p += character_bytes(p))
        codec->n++;
    codec->characters = tutti__alloc((codec->n + 1) * sizeof *codec->characters);
    if (!codec->characters)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < codec->n; i++) {
        memcpy(codec->characters[i], list, character_bytes(list));
        if (strcmp(codec->characters[i], "\n") == 0)
            codec->line = (int64_t)i;
        list += character_bytes(list);
    }
    return TUTTI_OK;
}

static tutti_status open_by(tutti__codec *codec, const json_t *fit)
{
    const json_t *tokenizer = json_object_get(fit, "tokenizer");
    const char *kind = json_string_value(json_object_get(tokenizer, "kind"));
    const char *list = json_string_value(json_object_get(tokenizer, "characters"));

    codec->end = codec->line = -1;
    if (kind && strcmp(kind, "characters") == 0 && list)
        return open_characters(codec, list);
    if (kind && strcmp(kind, "bytes") == 0) {
        codec->n = 256;
        codec->end = 0; /* which text does not have */
        codec->line = '\n';
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_ARG,
                       "tokenizer: the model was trained with tokens whose text is not known; give "
                       "their tokenizer, --tokenizer FILE");
}

tutti_status tutti__codec_open(tutti__codec *codec, const char *fit)
{
    json_t *root = fit ? json_loads(fit, 0, NULL) : NULL;
    const tutti_status status = open_by(codec, root);

    json_decref(root);
    return status;
}

void tutti__codec_close(tutti__codec *codec)
{
    free(codec->characters);
    *codec = (tutti__codec){.n = 0};
}

/* ---- Text and tokens -------------------------------------------------------------------------------------------- */

static tutti_status encode_characters(const tutti__codec *codec, const char *text, size_t bytes,
                                      int64_t *tokens, size_t *n_p)
{
    size_t at = 0;

    for (*n_p = 0; at < bytes; (*n_p)++) {
        size_t n = character_bytes(text + at), k = 0;
        char character[5] = "", shown[32];

        n = n < bytes - at ? n : bytes - at;
        memcpy(character, text + at, n);
        while (k < codec->n && strcmp(codec->characters[k], character) != 0)
            k++;
        if (k == codec->n)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "prompt: byte %zu begins \"%s\", which is none of the %zu characters "
                "that the model knows",
                at + 1, tutti__printable(character, shown, sizeof shown), codec->n);
        tokens[*n_p] = (int64_t)k;
        at += n;
    }
    return TUTTI_OK;
}

tutti_status tutti__codec_encode(const tutti__codec *codec, const char *text, size_t bytes,
                                 int64_t **tokens_p, size_t *n_p)
{
    int64_t *tokens = *tokens_p = tutti__alloc((bytes + 1) * sizeof *tokens);

    if (!tokens)
        return TUTTI_ERR_MEMORY;
    if (codec->characters)
        return encode_characters(codec, text, bytes, tokens, n_p);
    for (size_t i = 0; i < bytes; i++)
        tokens[i] = (unsigned char)text[i];
    *n_p = bytes;
    return TUTTI_OK;
}

const char *tutti__codec_decode(tutti__codec *codec, int64_t token, size_t *bytes_p)
{
    if (codec->characters) {
        *bytes_p = strlen(codec->characters[token]);
        return codec->characters[token];
    }
    codec->byte = (char)token;
    *bytes_p = 1;
    return &codec->byte;
}

int64_t tutti__codec_first(const tutti__codec *codec)
{
    return codec->end >= 0 && !codec->characters && codec->n > 256 ? codec->end
           : codec->line >= 0                                      ? codec->line
           : codec->end >= 0                                       ? codec->end
                                                                   : 0;
}
