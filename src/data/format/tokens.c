/* tokens.c -- .bin files of tokens, as nanoGPT and llm.c write them.   SPDX-License-Identifier: MIT
 *
 * nanoGPT's are nothing but 16-bit tokens. llm.c's have a header of 256 32-bit numbers: a magic number, a version, the number of
 * tokens, of 16 bits (GPT-2) or 32 (Llama-3), and zeros; `tutti data tokenize` writes the size of the vocabulary behind them. The
 * files of a split are one sequence, in the order of their names. */
#include "data/data_files.h"
#include "data/text/bin.h"
#include "data/file_names.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- Files of a folder --------------------------------------------------------------------------------------- */

static bool is_for_testing(const char *name)
{
    return strstr(name, "val") || strstr(name, "test");
}

static bool is_for_training(const char *name)
{
    return strstr(name, "train") && !is_for_testing(name);
}

/* The file NAME.bin alone, if there is one; else those whose names have the word. */
static bool is_chosen(const tutti__file_names *all, size_t i, bool training)
{
    static const char *const plain[] = {"val.bin", "test.bin", "validation.bin", "train.bin"};

    for (size_t k = training ? 3 : 0; k < (training ? 4 : 3); k++)
        for (size_t j = 0; j < all->n; j++)
            if (strcmp(all->of[j], plain[k]) == 0)
                return i == j;
    return training ? is_for_training(all->of[i]) : is_for_testing(all->of[i]);
}

/* ---- Opening ------------------------------------------------------------------------------------------------- */

typedef struct opening {
    tutti__tokens *t;
    const tutti_dataset_source *source;
    int vocab; /* that headers say; 0: none */
} opening;

static tutti_status add_file(opening *o, const char *path)
{
    tutti__bin bin;

    TUTTI_TRY(tutti__bin_look(&bin, path));
    o->vocab = bin.vocab > o->vocab ? bin.vocab : o->vocab;
    if (bin.count == 0)
        return TUTTI_OK;
    return tutti__tokens_add_file(o->t, path, bin.width, bin.offset, bin.count);
}

static tutti_status add_chosen(opening *o, const tutti__file_names *all, bool training, size_t *n_p)
{
    char path[4096];

    *n_p = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!is_chosen(all, i, training))
            continue;
        ++*n_p;
        TUTTI_TRY(tutti__path(path, o->source->dir, all->of[i]));
        TUTTI_TRY(add_file(o, path));
    }
    return TUTTI_OK;
}

/* All files, those for training first; sets the tokens of the split. */
static tutti_status add_folder(opening *o, const tutti__file_names *all, tutti__split split)
{
    tutti__tokens *t = o->t;
    uint64_t training;
    size_t n, n_test;

    TUTTI_TRY(add_chosen(o, all, true, &n));
    if (n == 0)
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "%s has no tokens to train on: expected train.bin, or files *train*.bin "
                           "(and val.bin, or *val*.bin)",
                           o->source->dir);
    training = t->count;
    TUTTI_TRY(add_chosen(o, all, false, &n_test));
    if (n_test == 0)
        training = tutti__split_at(t->count);
    tutti__tokens_use(t, split, training, training);
    return TUTTI_OK;
}

static tutti_status add_files(opening *o, tutti__split split)
{
    tutti__file_names all = {.n = 0};
    tutti_status status;
    tutti__tokens *t = o->t;
    uint64_t training;

    if (tutti__is_folder(o->source->dir)) {
        status = tutti__file_names_list(&all, o->source->dir, ".bin");
        if (status == TUTTI_OK)
            status = add_folder(o, &all, split);
        tutti__file_names_free(&all);
        return status;
    }
    TUTTI_TRY(add_file(o, o->source->dir));
    training = tutti__split_at(t->count);
    tutti__tokens_use(t, split, training, training);
    return TUTTI_OK;
}

/* As the caller says (0), as in training, as the files say, or one more than the largest. */
static tutti_status find_vocab(const opening *o, int *vocab_p)
{
    json_t *fit = o->source->fit ? json_loads(o->source->fit, 0, NULL) : NULL;
    const json_int_t said = json_integer_value(json_object_get(fit, "vocab"));
    uint64_t largest;

    json_decref(fit);
    *vocab_p = o->source->text->vocab                  ? 0
               : said >= 1 && said <= TUTTI__MAX_VOCAB ? (int)said
                                                       : o->vocab;
    if (*vocab_p || o->source->text->vocab)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokens_largest(o->t, &largest));
    if (largest >= TUTTI__MAX_VOCAB)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s: the largest token is %llu, expected at most %d; are these tokens of "
            "16 bits, or of 32 with llm.c's header?",
            o->source->dir, (unsigned long long)largest, TUTTI__MAX_VOCAB - 1);
    *vocab_p = (int)largest + 1;
    return TUTTI_OK;
}

/* The tokenizer that is named, or beside the files, which need none: one that cannot be used is left aside. NULL: none. */
static tutti_status find_tokenizer(const tutti_dataset_source *source,
                                   tutti_tokenizer **tokenizer_p)
{
    char dir[4096], *slash;
    tutti_status status;

    *tokenizer_p = NULL;
    if (source->text->tokenizer)
        return tutti_tokenizer_open(tokenizer_p, source->text->tokenizer);
    if (strlen(source->dir) >= sizeof dir)
        return TUTTI_OK;
    strcpy(dir, source->dir);
    if (!tutti__is_folder(dir)) {
        slash = strrchr(dir, '/');
        strcpy(slash == dir ? dir + 1 : slash ? slash : dir, slash ? "" : ".");
    }
    status = tutti__tokenizer_beside(tokenizer_p, dir);
    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    tutti_log(TUTTI_LOG_INFO, "data", "the tokenizer beside the tokens is not used: %s",
              tutti_last_error());
    return TUTTI_OK;
}

static tutti_status learn(opening *o)
{
    tutti_tokenizer *tokenizer;
    tutti_status status;
    int vocab;

    TUTTI_TRY(find_tokenizer(o->source, &tokenizer));
    if (!tokenizer) {
        TUTTI_TRY(find_vocab(o, &vocab));
        return tutti__tokens_set_vocab(o->t, o->source, "tokens", vocab, NULL);
    }
    status = tutti__tokens_set_tokenizer(o->t, o->source, "tokens", tokenizer);
    tutti_tokenizer_free(tokenizer);
    return status;
}

static tutti_status tokens_open(void **self_p, const tutti_dataset_source *source,
                                tutti_dataset_info *info)
{
    tutti__tokens *t = *self_p = tutti__alloc(sizeof *t);
    opening o = {.t = t, .source = source};
    tutti__split split;

    if (!t)
        return TUTTI_ERR_MEMORY;
    t->is_large = true;
    TUTTI_TRY(tutti__split_of(source, &split));
    TUTTI_TRY(add_files(&o, split));
    TUTTI_TRY(learn(&o));
    return tutti__tokens_describe(t, source, source->dir, info);
}

const tutti_dataset_format tutti__format_tokens = {
    .name = "tokens",
    .help = "tokens of nanoGPT or llm.c: one .bin file, or train.bin and val.bin",
    .any_split = true,
    .epoch_seed = true,
    .open = tokens_open,
    .read_arrays = tutti__tokens_sample,
    .close = tutti__tokens_close,
    .locate = tutti__tokens_locate,
    .fitted = tutti__tokens_fitted,
};
