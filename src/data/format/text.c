/* text.c -- UTF-8 text: one file, DIR/train.txt and DIR/val.txt, or all DIR/NAME.txt.   SPDX-License-Identifier: MIT
 *
 * Without a file for testing the last tenth of the text is. The files of a folder are documents, in the order of their names, with
 * an end-of-text token between two: among bytes that is 0, which text does not have. */
#include "data/data_files.h"
#include "data/file_names.h"
#include "data/text/text_data.h"
#include "data/text/tokenize.h"
#include "data/text/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint8_t END_OF_TEXT = 0;

/* ---- Documents ------------------------------------------------------------------------------------------------ */

/* Of text that begins at byte `at`. */
static tutti_status check_text(const char *path, uint64_t at, const uint8_t *text, size_t n,
                               size_t valid)
{
    const uint8_t *nul = memchr(text, 0, valid);

    if (nul)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: byte %llu is 0, which text does not have; is it a binary file, or "
                           "UTF-16?",
                           path, (unsigned long long)(at + (uint64_t)(nul - text)));
    if (n - valid >= 4)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is not UTF-8 at byte %llu (0x%02x); convert it, for example with "
                           "iconv -t UTF-8",
                           path, (unsigned long long)(at + valid), text[valid]);
    return TUTTI_OK;
}

static tutti_status check_file(int fd, const char *path, uint64_t begin, uint64_t bytes)
{
    enum { AT_ONCE = 1 << 16 };
    uint8_t text[AT_ONCE];
    uint64_t at = begin;

    while (at < bytes) {
        const size_t n = bytes - at < AT_ONCE ? (size_t)(bytes - at) : AT_ONCE;
        size_t valid;

        TUTTI_TRY(tutti__read_at(fd, path, at, text, n));
        valid = tutti__utf8_valid(text, n);
        TUTTI_TRY(check_text(path, at, text, n, valid));
        if (valid < n && at + n == bytes)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s is not UTF-8 at byte %llu (0x%02x), near its end; convert it, "
                               "for example with iconv -t UTF-8",
                               path, (unsigned long long)(at + valid), text[valid]);
        at += valid;
    }
    return TUTTI_OK;
}

/* Appends a file, without its byte order mark; after others as another document. */
static tutti_status add_document(tutti__tokens *t, const char *path)
{
    uint8_t mark[3] = {0};
    uint64_t bytes, begin = 0;
    tutti_status status;
    int fd;

    TUTTI_TRY(tutti__open_file(path, &fd, &bytes));
    status = bytes >= 3 ? tutti__read_at(fd, path, 0, mark, 3) : TUTTI_OK;
    if (status == TUTTI_OK && memcmp(mark, "\xef\xbb\xbf", 3) == 0)
        begin = 3;
    if (status == TUTTI_OK)
        status = check_file(fd, path, begin, bytes);
    close(fd);
    TUTTI_TRY(status);
    if (bytes == begin)
        return TUTTI_OK;
    if (t->n)
        TUTTI_TRY(tutti__tokens_add_memory(t, NULL, &END_OF_TEXT, 1, 1, false));
    return tutti__tokens_add_file(t, path, 1, begin, bytes - begin);
}

/* ---- Splits --------------------------------------------------------------------------------------------------- */

/* The test file of a folder with a train.txt; "": there is none. */
static tutti_status find_test(char path[4096], const char *dir)
{
    static const char *const names[] = {"val.txt", "test.txt", "validation.txt"};

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        TUTTI_TRY(tutti__path(path, dir, names[i]));
        if (access(path, F_OK) == 0)
            return TUTTI_OK;
    }
    *path = '\0';
    return TUTTI_OK;
}

static tutti_status add_all(tutti__tokens *t, const char *dir)
{
    tutti__file_names all = {.n = 0};
    char path[4096];
    tutti_status status = tutti__file_names_list(&all, dir, ".txt");

    if (status == TUTTI_OK && all.n == 0)
        status = tutti__fail(TUTTI_ERR_NOT_FOUND,
                             "%s has no text: expected train.txt (and val.txt), or any files "
                             "NAME.txt",
                             dir);
    for (size_t i = 0; status == TUTTI_OK && i < all.n; i++) {
        status = tutti__path(path, dir, all.of[i]);
        if (status == TUTTI_OK)
            status = add_document(t, path);
    }
    tutti__file_names_free(&all);
    return status;
}

tutti_status tutti__text_add(tutti__tokens *t, const char *path)
{
    return tutti__is_folder(path) ? add_all(t, path) : add_document(t, path);
}

tutti_status tutti__text_divide(const tutti__tokens *t, uint64_t *training_p)
{
    uint64_t at = tutti__split_at(t->count);
    int64_t byte;

    for (; at > 0 && at < t->count; at--) {
        TUTTI_TRY(tutti__tokens_read(t, at, 1, &byte));
        if ((byte & 0xc0) != 0x80)
            break;
    }
    *training_p = at;
    return TUTTI_OK;
}

tutti_status tutti__text_open(tutti__tokens *t, const char *dir, tutti__split split)
{
    char train[4096], test[4096] = "";
    uint64_t training, testing;
    bool has_train = false;

    if (tutti__is_folder(dir)) {
        TUTTI_TRY(tutti__path(train, dir, "train.txt"));
        has_train = access(train, F_OK) == 0;
    }
    if (has_train)
        TUTTI_TRY(find_test(test, dir));
    TUTTI_TRY(tutti__text_add(t, has_train ? train : dir));
    TUTTI_TRY(tutti__text_divide(t, &training));
    testing = training;
    if (*test) {
        training = t->count;
        TUTTI_TRY(add_document(t, test));
        testing = training + (training > 0 && t->count > training); /* behind the end of text */
    }
    tutti__tokens_use(t, split, training, testing);
    return TUTTI_OK;
}

/* ---- The format ----------------------------------------------------------------------------------------------- */

/* More than this takes too long at each start, of each rank. */
#define MOST_TOKENIZED ((uint64_t)256 << 20)

static tutti_status put_tokens(void *user, const uint32_t *tokens, size_t n)
{
    tutti__token_list *list = user;

    TUTTI_TRY(tutti__token_list_reserve(list, n));
    if (n)
        memcpy(list->p + list->n, tokens, n * sizeof *tokens);
    list->n += n;
    return TUTTI_OK;
}

/* Replaces the bytes of the split by its tokens. */
static tutti_status use_tokens(tutti__tokens *t, tutti_tokenizer *tokenizer,
                               const tutti_dataset_source *source)
{
    tutti__token_list list = {.n = 0};
    const tutti__token_sink sink = {put_tokens, &list};
    tutti_status status = tutti__tokenize(tokenizer, t, &sink, NULL);

    if (status != TUTTI_OK) {
        free(list.p);
        return status;
    }
    tutti__tokens_clear(t);
    t->from = 0;
    t->used = list.n;
    if (list.n)
        TUTTI_TRY(tutti__tokens_add_memory(t, source->dir, list.p, sizeof *list.p, list.n, true));
    return tutti__tokens_set_tokenizer(t, source, "text", tokenizer);
}

static tutti_status tokenize_text(tutti__tokens *t, const tutti_dataset_source *source)
{
    tutti_tokenizer *tokenizer;
    tutti_status status;

    if (t->used > MOST_TOKENIZED)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: the %s split has %llu MiB of text, and each rank would tokenize them "
            "at each start (at most %llu MiB); do it once, with tutti data tokenize, "
            "and train on data=tokens",
            source->dir, source->split, (unsigned long long)(t->used >> 20),
            (unsigned long long)(MOST_TOKENIZED >> 20));
    TUTTI_TRY(tutti_tokenizer_open(&tokenizer, source->text->tokenizer));
    status = use_tokens(t, tokenizer, source);
    tutti_tokenizer_free(tokenizer);
    return status;
}

static tutti_status text_open(void **self_p, const tutti_dataset_source *source,
                              tutti_dataset_info *info)
{
    tutti__tokens *t = *self_p = tutti__alloc(sizeof *t);
    const char *tokenizer = source->text->tokenizer;
    tutti__split split;

    if (!t)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__split_of(source, &split));
    TUTTI_TRY(tutti__text_open(t, source->dir, split));
    if (tokenizer && strcmp(tokenizer, "bytes") != 0)
        TUTTI_TRY(tokenize_text(t, source));
    else
        TUTTI_TRY(tutti__tokens_set_vocab(t, source, "text", 256, "{\"kind\":\"bytes\"}"));
    return tutti__tokens_describe(t, source, source->dir, info);
}

const tutti_dataset_format tutti__format_text = {
    .name = "text",
    .help = "UTF-8 text: one file, or a folder of .txt files",
    .any_split = true,
    .epoch_seed = true,
    .open = text_open,
    .read_arrays = tutti__tokens_sample,
    .close = tutti__tokens_close,
    .locate = tutti__tokens_locate,
    .fitted = tutti__tokens_fitted,
};
