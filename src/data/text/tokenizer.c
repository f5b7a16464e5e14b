/* tokenizer.c -- opening a tokenizer, and its public functions.   SPDX-License-Identifier: MIT */
#include "data/text/tokenizer.h"

#include "data/data_files.h"
#include "data/dataset.h"
#include "data/file_names.h"
#include "data/text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 26, MOST_TIKTOKEN = 1 << 24 };

/* ---- Building ------------------------------------------------------------------------------------------------ */

tutti_status tutti__tokenizer_add(tutti_tokenizer *t, const char *text, int64_t token,
                                  bool normalized)
{
    tutti__added *added = t->added;

    if (t->n_added == TUTTI__MOST_ADDED)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "more than %d added tokens", TUTTI__MOST_ADDED);
    added = realloc(added, (t->n_added + 1) * sizeof *added);
    if (!added)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for added tokens");
    t->added = added;
    added += t->n_added;
    *added = (tutti__added){
        .text = strdup(text), .n = strlen(text), .token = token, .normalized = normalized};
    if (!added->text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for added tokens");
    t->added_first[(uint8_t)*text] = true;
    t->n_added++;
    return TUTTI_OK;
}

tutti_status tutti__tokenizer_add_stage(tutti_tokenizer *t, const tutti__stage *stage)
{
    if (t->n_stages == TUTTI__STAGES) {
        tutti__pattern_free(stage->pattern);
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s has a pre-tokenizer of more than %d steps",
                           t->path, TUTTI__STAGES);
    }
    t->stages[t->n_stages++] = *stage;
    return TUTTI_OK;
}

static void find_end_of_text(tutti_tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                        "<eos>",         "[EOS]",           "<|im_end|>"};

    t->end_of_text = TUTTI__NO_TOKEN;
    for (size_t k = 0; k < TUTTI__COUNT_OF(names) && t->end_of_text < 0; k++)
        for (size_t i = 0; i < t->n_added; i++)
            if (strcmp(t->added[i].text, names[k]) == 0)
                t->end_of_text = t->added[i].token;
}

/* ---- Opening ------------------------------------------------------------------------------------------------- */

/* merges.txt in the folder of the vocab.json. */
static void merges_beside(const tutti_tokenizer *t, char path[4096])
{
    const char *slash = strrchr(t->path, '/');

    snprintf(path, 4096, "%.*smerges.txt", slash ? (int)(slash + 1 - t->path) : 0, t->path);
}

/* GPT-2's two files. */
static tutti_status read_pair(tutti_tokenizer *t, const json_t *vocab, tutti__hash128_state *hash)
{
    char path[4096];
    uint8_t *merges;
    size_t bytes;
    tutti_status status;

    merges_beside(t, path);
    status = tutti__read_file(path, MOST_BYTES, &merges, &bytes);
    if (status != TUTTI_OK)
        return tutti__fail(status,
                           "%s has no model, so it is a vocab.json, which needs its merges: %s",
                           t->path, tutti_last_error());
    if (memchr(merges, 0, bytes)) {
        const size_t at = strlen((char *)merges);

        free(merges);
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: byte %zu is 0, expected lines of two tokens; take the file anew",
                           path, at);
    }
    t->is_pair = true;
    tutti__hash128_add(hash, merges, bytes);
    status = tutti__tokenizer_read_vocab(t, vocab, (char *)merges);
    free(merges);
    return status;
}

static tutti_status read_json(tutti_tokenizer *t, const char *text, size_t bytes,
                              tutti__hash128_state *hash)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, 0, &error);
    tutti_status status;

    if (!root)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not JSON: line %d: %.200s", t->path, error.line,
                           error.text);
    if (json_is_object(root) && !json_is_object(json_object_get(root, "model")) &&
        json_is_integer(json_object_iter_value(json_object_iter(root))))
        status = read_pair(t, root, hash);
    else
        status = tutti__tokenizer_read_json(t, root);
    json_decref(root);
    return status;
}

static tutti_status read_text(tutti_tokenizer *t, char *text, size_t bytes,
                              tutti__hash128_state *hash)
{
    const size_t blank = strspn(text, " \t\r\n");

    if (text[blank] == '{')
        return read_json(t, text, bytes, hash);
    t->is_tiktoken = true;
    if (strlen(text) == bytes && bytes <= MOST_TIKTOKEN)
        return tutti__tokenizer_read_tiktoken(t, text);
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "%s is not a tokenizer: expected Hugging Face's tokenizer.json, a vocab.json "
        "with merges.txt, or a .tiktoken",
        t->path);
}

static tutti_status read_path(tutti_tokenizer *t)
{
    tutti__hash128_state *hash;
    uint8_t *text;
    size_t bytes;
    tutti_status status;

    TUTTI_TRY(tutti__read_file(t->path, MOST_BYTES, &text, &bytes));
    hash = tutti__hash128_new();
    status = hash ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", t->path);
    if (status == TUTTI_OK) {
        tutti__hash128_add(hash, text, bytes);
        status = read_text(t, (char *)text, bytes, hash);
        tutti__hash128_end(hash, t->digest);
    }
    free(text);
    return status;
}

/* Whether a folder has a tokenizer, and its path. */
static tutti_status find_file(char path[4096], const char *dir, bool *found_p)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    tutti__file_names all = {.n = 0};
    tutti_status status;

    *found_p = true;
    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        TUTTI_TRY(tutti__path(path, dir, names[i]));
        if (access(path, F_OK) == 0)
            return TUTTI_OK;
    }
    status = tutti__file_names_list(&all, dir, ".tiktoken");
    *found_p = status == TUTTI_OK && all.n == 1;
    if (*found_p)
        status = tutti__path(path, dir, all.of[0]);
    tutti__file_names_free(&all);
    return status;
}

tutti_status tutti__tokenizer_beside(tutti_tokenizer **tokenizer_p, const char *dir)
{
    char path[4096];
    bool found;

    *tokenizer_p = NULL;
    TUTTI_TRY(find_file(path, dir, &found));
    return found ? tutti_tokenizer_open(tokenizer_p, path) : TUTTI_OK;
}

static tutti_status open_path(tutti_tokenizer *t, const char *path)
{
    bool found;

    if (strlen(path) >= sizeof t->path - sizeof "/tokenizer.json")
        return tutti__fail(TUTTI_ERR_ARG, "path %.60s... is too long", path);
    snprintf(t->path, sizeof t->path, "%s", path);
    if (tutti__tokenizer_is_name(path))
        return tutti__tokenizer_make(t, path);
    if (tutti__is_folder(path)) {
        TUTTI_TRY(find_file(t->path, path, &found));
        if (!found)
            return tutti__fail(TUTTI_ERR_NOT_FOUND,
                               "folder %s has no tokenizer: expected tokenizer.json, vocab.json "
                               "with merges.txt, or one NAME.tiktoken",
                               path);
    }
    TUTTI_TRY(read_path(t));
    find_end_of_text(t);
    return TUTTI_OK;
}

tutti_status tutti_tokenizer_open(tutti_tokenizer **tokenizer_p, const char *path)
{
    tutti_tokenizer *t;
    tutti_status status;

    *tokenizer_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(path));
    t = tutti__alloc(sizeof *t);
    if (!t)
        return TUTTI_ERR_MEMORY;
    status = open_path(t, path);
    if (status == TUTTI_OK)
        *tokenizer_p = t;
    else
        tutti_tokenizer_free(t);
    return status;
}

static tutti_status copy_file(const char *from, const char *dir, const char *name)
{
    char to[4096];
    uint8_t *bytes;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__path(to, dir, name));
    TUTTI_TRY(tutti__read_file(from, MOST_BYTES, &bytes, &n));
    status = tutti__write_file(to, bytes, n);
    free(bytes);
    return status;
}

static const char *name_of_copy(const tutti_tokenizer *t)
{
    return t->is_pair ? "vocab.json" : t->is_tiktoken ? "tokenizer.tiktoken" : "tokenizer.json";
}

bool tutti__tokenizer_has_file(const tutti_tokenizer *t, const char *dir, const char *path)
{
    const char *copies[] = {name_of_copy(t), "merges.txt"};
    char file[4096];

    if (t->is_bytes || t->is_characters)
        return false;
    for (int i = 0; i < (t->is_pair ? 2 : 1); i++)
        if (tutti__path(file, dir, copies[i]) == TUTTI_OK && tutti__same_file(file, path))
            return true;
    merges_beside(t, file);
    return tutti__same_file(t->path, path) || (t->is_pair && tutti__same_file(file, path));
}

tutti_status tutti__tokenizer_copy(const char *path, const char *dir)
{
    tutti_tokenizer *t;
    char merges[4096];
    tutti_status status;

    if (!path || tutti__tokenizer_is_name(path))
        return TUTTI_OK;
    TUTTI_TRY(tutti_tokenizer_open(&t, path));
    status = copy_file(t->path, dir, name_of_copy(t));
    merges_beside(t, merges);
    if (status == TUTTI_OK && t->is_pair)
        status = copy_file(merges, dir, "merges.txt");
    tutti_tokenizer_free(t);
    return status;
}

void tutti_tokenizer_free(tutti_tokenizer *t)
{
    if (!t)
        return;
    tutti__bpe_free(&t->bpe);
    for (int i = 0; i < t->n_stages; i++)
        tutti__pattern_free(t->stages[i].pattern);
    for (size_t i = 0; i < t->n_added; i++)
        free(t->added[i].text);
    free(t->added);
    free(t);
}

/* ---- Use ----------------------------------------------------------------------------------------------------- */

int64_t tutti_tokenizer_vocab(const tutti_tokenizer *t)
{
    return t ? (int64_t)t->bpe.n : 0;
}

int64_t tutti_tokenizer_end_of_text(const tutti_tokenizer *t)
{
    return t ? t->end_of_text : TUTTI__NO_TOKEN;
}

tutti_status tutti_tokenizer_encode(tutti_tokenizer *t, const char *text, size_t bytes,
                                    int64_t **tokens_p, size_t *n_p)
{
    tutti__token_list list = {.n = 0};
    size_t valid;
    tutti_status status;

    *tokens_p = NULL;
    *n_p = 0;
    TUTTI_TRY(TUTTI__NOT_NULL(t));
    if (bytes > 0)
        TUTTI_TRY(TUTTI__NOT_NULL(text));
    valid = tutti__utf8_valid((const uint8_t *)text, bytes);
    if (valid < bytes)
        return tutti__fail(TUTTI_ERR_FORMAT, "the text is not UTF-8 at byte %zu (0x%02x)", valid,
                           (uint8_t)text[valid]);
    status = tutti__tokenizer_encode(t, text, bytes, &list);
    if (status == TUTTI_OK && !(*tokens_p = malloc((list.n + 1) * sizeof **tokens_p)))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu tokens", list.n);
    for (size_t i = 0; status == TUTTI_OK && i < list.n; i++)
        (*tokens_p)[i] = list.p[i];
    *n_p = status == TUTTI_OK ? list.n : 0;
    free(list.p);
    return status;
}

const char *tutti_tokenizer_bytes(const tutti_tokenizer *t, int64_t token, size_t *n_p)
{
    *n_p = 0;
    if (!t || token < 0 || (size_t)token >= t->bpe.n)
        return "";
    *n_p = t->bpe.at[token + 1] - t->bpe.at[token];
    return (const char *)t->bpe.bytes + t->bpe.at[token];
}

tutti_status tutti_tokenizer_decode(const tutti_tokenizer *t, const int64_t *tokens, size_t n,
                                    char **text_p, size_t *bytes_p)
{
    size_t bytes = 0, length;
    char *text;

    *text_p = NULL;
    *bytes_p = 0;
    TUTTI_TRY(TUTTI__NOT_NULL(t));
    if (n > 0)
        TUTTI_TRY(TUTTI__NOT_NULL(tokens));
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= t->bpe.n)
            return tutti__fail(TUTTI_ERR_ARG, "token %zu is %lld, expected 0 to %zu", i,
                               (long long)tokens[i], t->bpe.n - 1);
        bytes += t->bpe.at[tokens[i] + 1] - t->bpe.at[tokens[i]];
    }
    text = malloc(bytes + 1);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a text of %zu bytes", bytes);
    *text_p = text;
    *bytes_p = bytes;
    for (size_t i = 0; i < n; i++) {
        const char *from = tutti_tokenizer_bytes(t, tokens[i], &length);

        memcpy(text, from, length);
        text += length;
    }
    *text = '\0';
    return TUTTI_OK;
}
