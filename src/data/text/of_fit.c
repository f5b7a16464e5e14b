/* of_fit.c -- the tokenizer of a data set, which checkpoints keep: what identifies it, and how it is found again.
 * SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *describe(const tutti_tokenizer *t)
{
    if (t->is_bytes)
        return json_pack("{s:s}", "kind", "bytes");
    if (t->is_characters)
        return json_pack("{s:s, s:s%}", "kind", "characters", "characters", t->bpe.bytes,
                         t->bpe.at[t->bpe.n]);
    return json_pack("{s:s, s:s, s:I}", "kind", "file", "digest", t->digest, "end_of_text",
                     (json_int_t)t->end_of_text);
}

char *tutti__tokenizer_json(const tutti_tokenizer *t)
{
    json_t *o = describe(t);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!text)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory to describe a tokenizer");
    return text;
}

bool tutti__tokenizer_is(const tutti_tokenizer *t, const json_t *tokenizer)
{
    static const char *const members[] = {"kind", "characters", "digest"};
    json_t *own = describe(t);
    bool is = own && tokenizer;

    for (size_t i = 0; i < TUTTI__COUNT_OF(members); i++) {
        const json_t *a = json_object_get(own, members[i]);
        const json_t *b = json_object_get(tokenizer, members[i]);

        is &= a == b || json_equal(a, b);
    }
    json_decref(own);
    return is;
}

/* ---- Bytes and characters ------------------------------------------------------------------------------------ */

static tutti_status make_bytes(tutti_tokenizer *t)
{
    uint8_t all[256];
    const uint8_t *bytes[256];
    uint32_t lengths[256];

    for (int i = 0; i < 256; i++) {
        all[i] = (uint8_t)i;
        bytes[i] = &all[i];
        lengths[i] = 1;
        t->bpe.of_byte[i] = i;
    }
    t->is_bytes = true;
    t->end_of_text = 0; /* which text does not have */
    TUTTI_TRY(tutti__bpe_reserve_merges(&t->bpe, 0));
    return tutti__bpe_set_tokens(&t->bpe, bytes, lengths, 256);
}

static tutti_status make_characters(tutti_tokenizer *t, const char *list)
{
    const size_t most = strlen(list);
    const uint8_t **bytes = tutti__alloc((most + 1) * sizeof *bytes);
    uint32_t *lengths = tutti__alloc((most + 1) * sizeof *lengths);
    tutti_status status = bytes && lengths ? TUTTI_OK : TUTTI_ERR_MEMORY;
    size_t n = 0;

    for (; status == TUTTI_OK && *list; n++) {
        bytes[n] = (const uint8_t *)list;
        lengths[n] = (uint32_t)tutti__utf8_bytes(list); /* JSON's is valid */
        list += lengths[n] ? lengths[n] : 1;
    }
    t->is_characters = true;
    t->end_of_text = TUTTI__NO_TOKEN;
    if (status == TUTTI_OK)
        status = tutti__bpe_set_tokens(&t->bpe, bytes, lengths, n);
    if (status == TUTTI_OK)
        status = tutti__bpe_index_words(&t->bpe, NULL);
    free(bytes);
    free(lengths);
    return status;
}

/* characters NULL: of bytes. */
static tutti_status fill(tutti_tokenizer *t, const char *characters)
{
    t->bpe.unknown = TUTTI__NO_TOKEN;
    return characters ? make_characters(t, characters) : make_bytes(t);
}

bool tutti__tokenizer_is_name(const char *path)
{
    return strcmp(path, "bytes") == 0 || strcmp(path, "shakespeare") == 0;
}

tutti_status tutti__tokenizer_make(tutti_tokenizer *t, const char *name)
{
    return fill(t, strcmp(name, "bytes") == 0 ? NULL : tutti__shakespeare_characters);
}

static tutti_status make(tutti_tokenizer **tokenizer_p, const char *characters)
{
    tutti_tokenizer *t = tutti__alloc(sizeof *t);
    tutti_status status = t ? fill(t, characters) : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        *tokenizer_p = t;
    else
        tutti_tokenizer_free(t);
    return status;
}

/* ---- Finding a file ------------------------------------------------------------------------------------------ */

static tutti_status find(tutti_tokenizer **tokenizer_p, const char *digest,
                         const char *const *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tutti_tokenizer *t;

        if (!places[i] || access(places[i], F_OK) != 0 ||
            tutti_tokenizer_open(&t, places[i]) != TUTTI_OK)
            continue;
        if (strcmp(t->digest, digest) == 0) {
            *tokenizer_p = t;
            return TUTTI_OK;
        }
        tutti_tokenizer_free(t);
    }
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "the tokenizer of the training data (digest %.32s) is neither in the run's "
                       "folder nor where it was; give it with --tokenizer FILE",
                       digest);
}

static tutti_status of_json(tutti_tokenizer **tokenizer_p, const json_t *tokenizer,
                            const char *const *places, size_t n)
{
    const char *kind = json_string_value(json_object_get(tokenizer, "kind"));
    const char *characters = json_string_value(json_object_get(tokenizer, "characters"));
    const char *digest = json_string_value(json_object_get(tokenizer, "digest"));

    if (kind && strcmp(kind, "bytes") == 0)
        return make(tokenizer_p, NULL);
    if (kind && strcmp(kind, "characters") == 0 && characters)
        return make(tokenizer_p, characters);
    if (kind && strcmp(kind, "file") == 0 && digest)
        return find(tokenizer_p, digest, places, n);
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "the model was trained on tokens whose text is not known; give their "
                       "tokenizer with --tokenizer FILE, or bytes or shakespeare");
}

tutti_status tutti__tokenizer_of_fit(tutti_tokenizer **tokenizer_p, const char *fit,
                                     const char *given, const char *const *places, size_t n)
{
    json_t *root;
    tutti_status status;

    *tokenizer_p = NULL;
    if (given && *given)
        return tutti_tokenizer_open(tokenizer_p, given);
    root = fit ? json_loads(fit, 0, NULL) : NULL;
    status = of_json(tokenizer_p, json_object_get(root, "tokenizer"), places, n);
    json_decref(root);
    return status;
}
