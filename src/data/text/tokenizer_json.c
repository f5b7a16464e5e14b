/* tokenizer_json.c -- Hugging Face's tokenizer.json and vocab.json: byte-level BPE.   SPDX-License-Identifier: MIT
 *
 * The whole file is checked: whatever would make other tokens, and is not done here, is refused by name. Left aside are `truncation`,
 * `padding` and `post_processor`, which change what is around the tokens of a text. */
#include "data/text/alphabet.h"
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static tutti_status refuse(const tutti_tokenizer *t, const char *what, const char *value)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s: %s \"%.100s\" is not supported; tokenizers must be byte-level BPE, as "
                       "GPT-2's and Llama-3's",
                       t->path, what, value);
}

static tutti_status damaged(const tutti_tokenizer *t, const char *what, const char *expected)
{
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: %.200s; expected %s", t->path, what, expected);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- The vocabulary ------------------------------------------------------------------------------------------ */

/* By token. */
typedef struct listing {
    const uint8_t **bytes;
    uint32_t *lengths;
    bool *is_word; /* of bytes that words may have */
    size_t n;
    uint8_t *pool, *next;
} listing;

static void free_listing(listing *l)
{
    free(l->bytes);
    free(l->lengths);
    free(l->is_word);
    free(l->pool);
}

static tutti_status check_id(const tutti_tokenizer *t, const char *text, const json_t *id)
{
    const json_int_t value = json_integer_value(id);
    char what[160], expected[64];

    if (json_is_integer(id) && value >= 0 && value < TUTTI__MAX_VOCAB)
        return TUTTI_OK;
    snprintf(what, sizeof what, "the token \"%.60s\" has no id, or %lld", text, (long long)value);
    snprintf(expected, sizeof expected, "a number from 0 to %d", TUTTI__MAX_VOCAB - 1);
    return damaged(t, what, expected);
}

/* How many tokens, and bytes, the vocabulary and the added tokens have. */
static tutti_status measure(const tutti_tokenizer *t, const json_t *vocab, const json_t *added,
                            listing *l, size_t *bytes_p)
{
    const char *text;
    json_t *id, *one;
    size_t i;

    *bytes_p = 1;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id)
    {
        TUTTI_TRY(check_id(t, text, id));
        l->n = (size_t)json_integer_value(id) >= l->n ? (size_t)json_integer_value(id) + 1 : l->n;
        *bytes_p += strlen(text);
    }
    json_array_foreach(added, i, one)
    {
        id = json_object_get(one, "id");
        text = text_at(one, "content");
        TUTTI_TRY(check_id(t, text, id));
        l->n = (size_t)json_integer_value(id) >= l->n ? (size_t)json_integer_value(id) + 1 : l->n;
        *bytes_p += strlen(text);
    }
    return l->n > 0 ? TUTTI_OK
                    : damaged(t, "model.vocab has no tokens", "the tokens and their ids");
}

static tutti_status put_token(const tutti_tokenizer *t, listing *l, const char *text, size_t id,
                              bool is_added)
{
    bool other;
    char what[200];

    if (l->bytes[id] && !is_added) {
        snprintf(what, sizeof what, "two tokens, \"%.60s\" and another, have the id %zu", text, id);
        return damaged(t, what, "one each");
    }
    l->bytes[id] = l->next;
    l->lengths[id] = (uint32_t)tutti__alphabet_bytes(text, l->next, &other);
    l->is_word[id] = !is_added && !other;
    l->next += l->lengths[id];
    return TUTTI_OK;
}

static tutti_status add_added(tutti_tokenizer *t, const json_t *vocab, const json_t *one,
                              listing *l)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const char *text = text_at(one, "content");
    const json_t *known = json_object_get(vocab, text);
    const json_int_t id = json_integer_value(json_object_get(one, "id"));
    char what[200];

    if (!*text)
        return TUTTI_OK; /* never found */
    for (size_t i = 0; i < TUTTI__COUNT_OF(flags); i++)
        if (is_true(one, flags[i]))
            return refuse(t, flags[i], text);
    if (known && json_integer_value(known) != id) {
        snprintf(what, sizeof what, "the added token \"%.60s\" has the id %lld, and %lld in vocab",
                 text, (long long)id, (long long)json_integer_value(known));
        return damaged(t, what, "the same");
    }
    if (!known) {
        if (l->bytes[id])
            return damaged(t, "an added token has the id of another", "ids of their own");
        TUTTI_TRY(put_token(t, l, text, (size_t)id, true));
    }
    return tutti__tokenizer_add(t, text, id, is_true(one, "normalized"));
}

static tutti_status list_tokens(tutti_tokenizer *t, const json_t *vocab, const json_t *added,
                                listing *l)
{
    size_t bytes, i;
    const char *text;
    json_t *id, *one;

    TUTTI_TRY(measure(t, vocab, added, l, &bytes));
    l->bytes = calloc(l->n, sizeof *l->bytes);
    l->lengths = calloc(l->n, sizeof *l->lengths);
    l->is_word = calloc(l->n, sizeof *l->is_word);
    l->pool = l->next = malloc(bytes);
    if (!l->bytes || !l->lengths || !l->is_word || !l->pool)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", t->path);
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id)
        TUTTI_TRY(put_token(t, l, text, (size_t)json_integer_value(id), false));
    json_array_foreach(added, i, one) TUTTI_TRY(add_added(t, vocab, one, l));
    return TUTTI_OK;
}

static tutti_status set_tokens(tutti_tokenizer *t, const json_t *vocab, const json_t *added,
                               bool ignore_merges)
{
    listing l = {.n = 0};
    tutti_status status = list_tokens(t, vocab, added, &l);
    char text[4];

    if (status == TUTTI_OK)
        status = tutti__bpe_set_tokens(&t->bpe, l.bytes, l.lengths, l.n);
    if (status == TUTTI_OK && ignore_merges)
        status = tutti__bpe_index_words(&t->bpe, l.is_word);
    free_listing(&l);
    for (int byte = 0; byte < 256; byte++) {
        const json_t *id;

        tutti__alphabet_character((uint8_t)byte, text);
        id = json_object_get(vocab, text);
        t->bpe.of_byte[byte] = id ? json_integer_value(id) : TUTTI__NO_TOKEN;
    }
    return status;
}

/* ---- Merges -------------------------------------------------------------------------------------------------- */

/* The merge number `rank` of two tokens' texts. joined: room for both. */
static tutti_status add_merge(tutti_tokenizer *t, const json_t *vocab, const char *left,
                              const char *right, size_t rank, char *joined)
{
    const json_t *a = json_object_get(vocab, left), *b = json_object_get(vocab, right), *both;
    char what[240];

    strcpy(joined, left);
    strcat(joined, right);
    both = json_object_get(vocab, joined);
    if (a && b && both) {
        tutti__bpe_add_merge(&t->bpe, (uint32_t)json_integer_value(a),
                             (uint32_t)json_integer_value(b), (uint32_t)rank,
                             (uint32_t)json_integer_value(both));
        return TUTTI_OK;
    }
    snprintf(what, sizeof what,
             "merge %zu, of \"%.40s\" and \"%.40s\": \"%.60s\" is not in the "
             "vocabulary",
             rank, left, right,
             !a   ? left
             : !b ? right
                  : joined);
    return damaged(t, what, "tokens of the vocabulary");
}

/* "left right", cut in place. */
static tutti_status add_line(tutti_tokenizer *t, const json_t *vocab, char *line, size_t rank,
                             char *joined)
{
    char *space = strchr(line, ' '), what[120];

    if (!space || space == line || !space[1] || strchr(space + 1, ' ')) {
        snprintf(what, sizeof what, "merge %zu is \"%.60s\"", rank, line);
        return damaged(t, what, "two tokens and a space between");
    }
    *space = '\0';
    return add_merge(t, vocab, line, space + 1, rank, joined);
}

static tutti_status add_json_merge(tutti_tokenizer *t, const json_t *vocab, const json_t *merge,
                                   size_t rank)
{
    const char *line = json_string_value(merge);
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));
    const size_t room = line ? strlen(line) : left && right ? strlen(left) + strlen(right) : 0;
    char *joined, *copy, what[80];
    tutti_status status;

    if (!line && (json_array_size(merge) != 2 || !left || !right)) {
        snprintf(what, sizeof what, "merge %zu is neither a text nor a pair", rank);
        return damaged(t, what, "two tokens");
    }
    joined = malloc(room + 1);
    copy = line ? strdup(line) : NULL;
    if (!joined || (line && !copy))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", t->path);
    else
        status = line ? add_line(t, vocab, copy, rank, joined)
                      : add_merge(t, vocab, left, right, rank, joined);
    free(joined);
    free(copy);
    return status;
}

static tutti_status set_merges(tutti_tokenizer *t, const json_t *vocab, const json_t *merges)
{
    size_t i;
    json_t *merge;

    if (!json_is_array(merges))
        return damaged(t, "model.merges is missing", "a list of pairs of tokens");
    TUTTI_TRY(tutti__bpe_reserve_merges(&t->bpe, json_array_size(merges)));
    json_array_foreach(merges, i, merge) TUTTI_TRY(add_json_merge(t, vocab, merge, i));
    return TUTTI_OK;
}

/* ---- The model ----------------------------------------------------------------------------------------------- */

static tutti_status check_model(const tutti_tokenizer *t, const json_t *model)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = text_at(model, "type");
    const json_t *dropout = json_object_get(model, "dropout");

    if (!json_is_object(model))
        return damaged(t, "model is missing", "an object");
    if (*type && strcmp(type, "BPE") != 0)
        return refuse(t, "model.type", type);
    if (json_is_number(dropout) && json_number_value(dropout) != 0)
        return refuse(t, "model.dropout", "above 0");
    for (size_t i = 0; i < TUTTI__COUNT_OF(texts); i++)
        if (*text_at(model, texts[i]))
            return refuse(t, texts[i], text_at(model, texts[i]));
    if (is_true(model, "byte_fallback"))
        return refuse(t, "model.byte_fallback", "true");
    if (is_true(model, "fuse_unk") && *text_at(model, "unk_token"))
        return refuse(t, "model.fuse_unk", "true");
    if (!json_is_object(json_object_get(model, "vocab")))
        return damaged(t, "model.vocab is missing", "an object of tokens and their ids");
    return TUTTI_OK;
}

static tutti_status read_model(tutti_tokenizer *t, const json_t *model, const json_t *added)
{
    const json_t *vocab = json_object_get(model, "vocab");
    const char *unknown = text_at(model, "unk_token");

    TUTTI_TRY(check_model(t, model));
    TUTTI_TRY(set_tokens(t, vocab, added, is_true(model, "ignore_merges")));
    t->bpe.unknown = TUTTI__NO_TOKEN;
    if (*unknown) {
        if (!json_object_get(vocab, unknown))
            return damaged(t, "model.unk_token is not in model.vocab", "a token");
        t->bpe.unknown = json_integer_value(json_object_get(vocab, unknown));
    }
    return set_merges(t, vocab, json_object_get(model, "merges"));
}

/* ---- The pre-tokenizer --------------------------------------------------------------------------------------- */

static tutti_status add_pattern(tutti_tokenizer *t, const char *pattern, bool literal,
                                tutti__stage stage)
{
    const tutti_status status = tutti__pattern_new(&stage.pattern, pattern, literal);

    if (status != TUTTI_OK)
        return tutti__fail(status, "%s: %s", t->path, tutti_last_error());
    return tutti__tokenizer_add_stage(t, &stage);
}

static tutti_status add_split(tutti_tokenizer *t, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *expression = text_at(pattern, "Regex"), *literal = text_at(pattern, "String");
    const char *behavior = text_at(step, "behavior");
    const bool invert = is_true(step, "invert");
    const bool removed = strcmp(behavior, "Removed") == 0;

    if (!*expression && !*literal)
        return damaged(t, "a Split has no pattern", "{\"Regex\": ...} or {\"String\": ...}");
    if (strcmp(behavior, "Isolated") != 0 && !(removed && invert))
        return refuse(t,
                      invert ? "the pre-tokenizer's Split, inverted, with behavior"
                             : "the pre-tokenizer's Split with behavior",
                      behavior);
    return add_pattern(t, *expression ? expression : literal, !*expression,
                       (tutti__stage){.matches_only = removed});
}

/* A step before the last; ByteLevel is the last. */
static tutti_status add_step(tutti_tokenizer *t, const json_t *step, bool is_last)
{
    const char *type = text_at(step, "type");
    const bool is_bytes = strcmp(type, "ByteLevel") == 0;
    tutti__stage stage = {.prefix_space = is_bytes && is_true(step, "add_prefix_space")};

    if (is_bytes != is_last)
        return refuse(t, is_bytes ? "a step behind the pre-tokenizer's" : "pre_tokenizer ending in",
                      type);
    if (strcmp(type, "Split") == 0)
        return add_split(t, step);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(t, is_true(step, "individual_digits") ? "\\p{N}" : "\\p{N}+", false,
                           stage);
    if (!is_bytes)
        return refuse(t, "pre_tokenizer", type);
    if (!json_is_false(json_object_get(step, "use_regex")))
        return add_pattern(t, tutti__gpt2_pattern, false, stage);
    return stage.prefix_space ? tutti__tokenizer_add_stage(t, &stage) : TUTTI_OK;
}

static tutti_status read_pre_tokenizer(tutti_tokenizer *t, const json_t *pre)
{
    const json_t *steps = json_object_get(pre, "pretokenizers");
    size_t i;
    json_t *step;

    if (!json_is_object(pre))
        return refuse(t, "pre_tokenizer", json_is_null(pre) ? "null" : "missing");
    if (strcmp(text_at(pre, "type"), "Sequence") != 0)
        return add_step(t, pre, true);
    if (json_array_size(steps) == 0)
        return damaged(t, "the pre-tokenizer's Sequence is empty", "steps, the last ByteLevel");
    json_array_foreach(steps, i, step)
        TUTTI_TRY(add_step(t, step, i + 1 == json_array_size(steps)));
    return TUTTI_OK;
}

/* ---- The file ------------------------------------------------------------------------------------------------ */

/* null, NFC, or a Sequence of nothing or of it. */
static tutti_status read_normalizer(tutti_tokenizer *t, const json_t *normalizer)
{
    const json_t *steps = json_object_get(normalizer, "normalizers"), *step;
    const char *type = text_at(normalizer, "type");
    size_t i;

    if (!normalizer || json_is_null(normalizer))
        return TUTTI_OK;
    if (strcmp(type, "Sequence") != 0) {
        t->is_nfc = true;
        return strcmp(type, "NFC") == 0 ? TUTTI_OK : refuse(t, "normalizer", type);
    }
    json_array_foreach(steps, i, step)
    {
        t->is_nfc = true;
        if (strcmp(text_at(step, "type"), "NFC") != 0)
            return refuse(t, "normalizer", text_at(step, "type"));
    }
    return TUTTI_OK;
}

static tutti_status check_decoder(const tutti_tokenizer *t, const json_t *decoder)
{
    if (decoder && !json_is_null(decoder) && strcmp(text_at(decoder, "type"), "ByteLevel") != 0)
        return refuse(t, "decoder", text_at(decoder, "type"));
    return TUTTI_OK;
}

tutti_status tutti__tokenizer_read_json(tutti_tokenizer *t, const json_t *root)
{
    if (!json_is_object(root))
        return damaged(t, "it is no object of JSON", "a tokenizer.json");
    TUTTI_TRY(read_normalizer(t, json_object_get(root, "normalizer")));
    TUTTI_TRY(check_decoder(t, json_object_get(root, "decoder")));
    TUTTI_TRY(read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer")));
    return read_model(t, json_object_get(root, "model"), json_object_get(root, "added_tokens"));
}

tutti_status tutti__tokenizer_read_vocab(tutti_tokenizer *t, const json_t *vocab, char *merges)
{
    const json_t *end = json_object_get(vocab, "<|endoftext|>");
    char *joined = malloc(strlen(merges) + 1), *rest = merges, *line;
    size_t rank = 0, lines = 1;
    tutti_status status = joined ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for merges");

    for (const char *p = merges; *p; p++)
        lines += *p == '\n';
    t->bpe.unknown = TUTTI__NO_TOKEN;
    if (status == TUTTI_OK)
        status = add_pattern(t, tutti__gpt2_pattern, false, (tutti__stage){0});
    if (status == TUTTI_OK)
        status = set_tokens(t, vocab, NULL, false);
    if (status == TUTTI_OK && json_is_integer(end))
        status = tutti__tokenizer_add(t, "<|endoftext|>", json_integer_value(end), false);
    if (status == TUTTI_OK)
        status = tutti__bpe_reserve_merges(&t->bpe, lines);
    while (status == TUTTI_OK && (line = strsep(&rest, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        if (*line && strncmp(line, "#version", 8) != 0)
            status = add_line(t, vocab, line, rank++, joined);
    }
    free(joined);
    return status;
}
