/* tokens.c -- a sequence of tokens, and windows of it as samples.   SPDX-License-Identifier: MIT
 *
 * Files are read by pread and not mapped: a file that is cut while it is open is then an error with its name, where a mapping
 * would end the process with SIGBUS. The pages that ranks share are the same. */
#include "data/text/tokens.h"

#include "data/data_files.h"
#include "data/text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AT_ONCE = 16384, /* bytes of one read */
    MOST_OPEN = 128  /* files */
};

/* ---- Parts ------------------------------------------------------------------------------------------------- */

static tutti_status add(tutti__tokens *t, const tutti__token_part *part, const char *path)
{
    tutti__token_part *parts = t->parts;
    char *copy = path ? strdup(path) : NULL;

    if (t->n == t->room) {
        parts = realloc(parts, (2 * t->room + 4) * sizeof *parts);
        t->room = parts ? 2 * t->room + 4 : t->room;
    }
    if (!parts || (path && !copy)) {
        t->parts = parts ? parts : t->parts;
        free(copy);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the list of token files");
    }
    t->parts = parts;
    parts[t->n] = *part;
    parts[t->n].path = copy;
    parts[t->n].first = t->count;
    t->count += part->count;
    t->n++;
    return TUTTI_OK;
}

tutti_status tutti__tokens_add_file(tutti__tokens *t, const char *path, int width, uint64_t offset,
                                    uint64_t count)
{
    tutti__token_part part = {.width = width, .offset = offset, .count = count};
    char *absolute = NULL; /* the working directory may be another one when it is read */
    tutti_status status;

    TUTTI_TRY(tutti__open_file(path, &part.fd, &part.size));
    if (t->n_open >= MOST_OPEN) {
        close(part.fd);
        part.fd = -1;
        if (!(absolute = realpath(path, NULL)))
            return tutti__fail_errno(errno, "cannot open %s", path);
    }
    status = add(t, &part, absolute ? absolute : path);
    free(absolute);
    if (status == TUTTI_OK)
        t->n_open += part.fd >= 0;
    else if (part.fd >= 0)
        close(part.fd);
    return status;
}

tutti_status tutti__tokens_add_memory(tutti__tokens *t, const char *path, const void *bytes,
                                      int width, uint64_t count, bool owned)
{
    tutti__token_part part = {.fd = -1, .bytes = bytes, .width = width, .count = count};
    void *to_free = owned ? (void *)(uintptr_t)bytes : NULL;
    tutti_status status;

    part.owned = to_free;
    status = add(t, &part, path);
    if (status != TUTTI_OK)
        free(to_free);
    return status;
}

/* The part that holds a token. */
static const tutti__token_part *part_of(const tutti__tokens *t, uint64_t token)
{
    size_t low = 0, high = t->n;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (t->parts[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &t->parts[low];
}

static void widen(const uint8_t *from, int width, size_t n, int64_t *to)
{
    uint16_t two;
    uint32_t four;

    if (width == 1)
        for (size_t i = 0; i < n; i++)
            to[i] = from[i];
    else if (width == 2)
        for (size_t i = 0; i < n; i++) {
            memcpy(&two, from + 2 * i, 2);
            to[i] = two;
        }
    else
        for (size_t i = 0; i < n; i++) {
            memcpy(&four, from + 4 * i, 4);
            to[i] = four;
        }
}

tutti_status tutti__token_part_read(const tutti__token_part *part, uint64_t at, void *p,
                                    size_t bytes)
{
    tutti_status status;
    uint64_t size;
    int fd;

    if (part->fd >= 0)
        return tutti__read_at(part->fd, part->path, part->offset + at, p, bytes);
    TUTTI_TRY(tutti__open_file(part->path, &fd, &size));
    status = size == part->size ? tutti__read_at(fd, part->path, part->offset + at, p, bytes)
                                : tutti__fail(TUTTI_ERR_FORMAT,
                                              "%s has %llu bytes, and had %llu when the data were "
                                              "opened; was it changed since?",
                                              part->path, (unsigned long long)size,
                                              (unsigned long long)part->size);
    close(fd);
    return status;
}

static tutti_status read_part(const tutti__token_part *part, uint64_t first, size_t n, int64_t *to)
{
    const size_t width = (size_t)part->width;
    uint8_t some[AT_ONCE];

    if (part->bytes) {
        widen(part->bytes + first * width, part->width, n, to);
        return TUTTI_OK;
    }
    for (size_t done = 0; done < n;) {
        const size_t now = n - done < AT_ONCE / width ? n - done : AT_ONCE / width;

        TUTTI_TRY(tutti__token_part_read(part, (first + done) * width, some, now * width));
        widen(some, part->width, now, to + done);
        done += now;
    }
    return TUTTI_OK;
}

tutti_status tutti__tokens_read(const tutti__tokens *t, uint64_t first, size_t n, int64_t *to)
{
    const tutti__token_part *part = part_of(t, first);

    for (size_t done = 0; done < n; part++) {
        const uint64_t at = first + done - part->first, left = part->count - at;
        const size_t now = left < n - done ? (size_t)left : n - done;

        TUTTI_TRY(read_part(part, at, now, to + done));
        done += now;
    }
    return TUTTI_OK;
}

tutti_status tutti__tokens_largest(const tutti__tokens *t, uint64_t *largest_p)
{
    int64_t some[AT_ONCE / 4], largest = 0;
    size_t n;

    for (uint64_t first = 0; first < t->count; first += n) {
        n = t->count - first < TUTTI__COUNT_OF(some) ? (size_t)(t->count - first)
                                                     : TUTTI__COUNT_OF(some);
        TUTTI_TRY(tutti__tokens_read(t, first, n, some));
        for (size_t i = 0; i < n; i++)
            largest = some[i] > largest ? some[i] : largest;
    }
    *largest_p = (uint64_t)largest;
    return TUTTI_OK;
}

/* ---- The vocabulary ----------------------------------------------------------------------------------------- */

/* Of the split's tokens; of more than BLOCKS * BLOCK in .bin files, those of blocks that are spread evenly, because all would take
 * too long. Text is read whole anyway, when it is opened. */
static tutti_status digest_of(const tutti__tokens *t, char digits[33])
{
    enum { BLOCKS = 256, BLOCK = 1 << 14 };
    const bool is_all = !t->is_large || t->used / BLOCK < BLOCKS;
    const uint64_t blocks = is_all ? (t->used + BLOCK - 1) / BLOCK : BLOCKS;
    const uint64_t last = t->used > BLOCK ? t->used - BLOCK : 0;
    int64_t *tokens = tutti__alloc(BLOCK * sizeof *tokens);
    tutti__hash128_state *hash = tutti__hash128_new();
    tutti_status status =
        tokens && hash ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory to read tokens");

    for (uint64_t i = 0; status == TUTTI_OK && i < blocks; i++) {
        const uint64_t at = blocks > 1 ? last * i / (blocks - 1) : 0;
        const size_t n = t->used < BLOCK ? (size_t)t->used : BLOCK;

        status = tutti__tokens_read(t, t->from + at, n, tokens);
        if (status == TUTTI_OK)
            tutti__hash128_add(hash, tokens, n * sizeof *tokens);
    }
    if (hash)
        tutti__hash128_end(hash, digits);
    free(tokens);
    return status;
}

tutti_status tutti__tokens_set_vocab(tutti__tokens *t, const tutti_dataset_source *source,
                                     const char *format, int own, const char *tokenizer)
{
    const int asked = source->text->vocab;
    char digits[33];

    if (asked < 0 || asked > TUTTI__MAX_VOCAB || (asked && asked < own))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "vocab is %d, and the data have %d tokens; expected as many, or more (up "
            "to %d), or none",
            asked, own, TUTTI__MAX_VOCAB);
    t->vocab = asked ? asked : own;
    TUTTI_TRY(digest_of(t, digits));
    if (asprintf(&t->fit, "{\"format\":\"%s\",\"vocab\":%d,\"digest\":\"%s\"%s%s}", format,
                 t->vocab, digits, tokenizer ? ",\"tokenizer\":" : "",
                 tokenizer ? tokenizer : "") < 0) {
        t->fit = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open data set %s", format);
    }
    return TUTTI_OK;
}

tutti_status tutti__tokens_set_tokenizer(tutti__tokens *t, const tutti_dataset_source *source,
                                         const char *format, const tutti_tokenizer *tokenizer)
{
    char *json = tutti__tokenizer_json(tokenizer);
    tutti_status status = TUTTI_ERR_MEMORY;

    if (json)
        status =
            tutti__tokens_set_vocab(t, source, format, (int)tutti_tokenizer_vocab(tokenizer), json);
    free(json);
    if (status == TUTTI_OK && !(t->tokenizer = strdup(tokenizer->path)))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory to open data set %s", format);
    return status;
}

/* ---- Samples ----------------------------------------------------------------------------------------------- */

tutti_status tutti__tokens_describe(tutti__tokens *t, const tutti_dataset_source *source,
                                    const char *name, tutti_dataset_info *info)
{
    const int context = source->text->context ? source->text->context : TUTTI__CONTEXT;

    if (context < 1 || context > TUTTI__MAX_CONTEXT)
        return tutti__fail(TUTTI_ERR_ARG, "context is %d, expected 1 to %d", context,
                           TUTTI__MAX_CONTEXT);
    if (t->used < (uint64_t)context + 1)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: the %s split has %llu token%s, and a sample needs %d (context, and "
                           "one more to predict); use more text, or a smaller context",
                           name, source->split, (unsigned long long)t->used, tutti__s(t->used),
                           context + 1);
    t->context = (size_t)context;
    t->fields[0] = (tutti_field){.name = "x", .dtype = TUTTI_I64, .shape = TUTTI_SHAPE(context)};
    t->fields[1] = (tutti_field){.name = "y", .dtype = TUTTI_I64, .shape = TUTTI_SHAPE(context)};
    info->count = (size_t)((t->used - 1) / t->context);
    info->classes = t->vocab;
    info->fields = t->fields;
    info->n_fields = 2;
    return TUTTI_OK;
}

tutti_status tutti__tokens_check(const tutti__tokens *t, uint64_t first, size_t n,
                                 const int64_t *tokens)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= t->vocab) {
            const tutti__token_part *part = part_of(t, first + i);

            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s: token %llu is %lld, expected 0 to %d, by the vocabulary of %d; "
                               "was it written with another tokenizer?",
                               part->path ? part->path : "the text",
                               (unsigned long long)(first + i - part->first), (long long)tokens[i],
                               t->vocab - 1, t->vocab);
        }
    return TUTTI_OK;
}

/* Tokens of the split, which is a ring. */
static tutti_status read_ring(const tutti__tokens *t, uint64_t at, size_t n, int64_t *to)
{
    for (size_t done = 0; done < n;) {
        const uint64_t place = (at + done) % t->used, left = t->used - place;
        const size_t now = left < n - done ? (size_t)left : n - done;

        TUTTI_TRY(tutti__tokens_read(t, t->from + place, now, to + done));
        TUTTI_TRY(tutti__tokens_check(t, t->from + place, now, to + done));
        done += now;
    }
    return TUTTI_OK;
}

tutti_status tutti__tokens_sample(const void *self, size_t index, const uint64_t *chance,
                                  void *const *arrays)
{
    const tutti__tokens *t = self;
    const size_t n = t->context;
    const uint64_t at = (uint64_t)index * n + (chance ? *chance % n : 0);
    int64_t *x = arrays[0], *y = arrays[1];

    TUTTI_TRY(read_ring(t, at, n, x));
    memcpy(y, x + 1, (n - 1) * sizeof *y);
    return read_ring(t, at + n, 1, y + n - 1);
}

void tutti__tokens_locate(const void *self, size_t index, char *text, size_t size)
{
    const tutti__tokens *t = self;
    const uint64_t at = t->from + (uint64_t)index * t->context;
    const tutti__token_part *part = part_of(t, at);

    snprintf(text, size, "%s, token %llu", part->path ? part->path : "memory",
             (unsigned long long)(at - part->first));
}

const char *tutti__tokens_fitted(const void *self)
{
    return ((const tutti__tokens *)self)->fit;
}

void tutti__tokens_clear(tutti__tokens *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->parts[i].fd >= 0)
            close(t->parts[i].fd);
        free(t->parts[i].path);
        free(t->parts[i].owned);
    }
    t->n = 0;
    t->n_open = 0;
    t->count = 0;
}

void tutti__tokens_close(void *self)
{
    tutti__tokens *t = self;

    tutti__tokens_clear(t);
    free(t->parts);
    free(t->fit);
    free(t->tokenizer);
    free(t);
}

const char *tutti__dataset_tokenizer(const tutti_dataset *dataset)
{
    const bool is_tokens = dataset && dataset->format && dataset->self &&
                           dataset->format->read_arrays == tutti__tokens_sample;

    return is_tokens ? ((const tutti__tokens *)dataset->self)->tokenizer : NULL;
}

/* ---- Splits ------------------------------------------------------------------------------------------------ */

tutti_status tutti__split_of(const tutti_dataset_source *source, tutti__split *split_p)
{
    const char *name = source->split;

    *split_p = strcmp(name, "train") == 0 ? TUTTI__SPLIT_TRAIN
               : strcmp(name, "all") == 0 ? TUTTI__SPLIT_ALL
                                          : TUTTI__SPLIT_TEST;
    if (*split_p != TUTTI__SPLIT_TEST || strcmp(name, "test") == 0 || strcmp(name, "val") == 0 ||
        strcmp(name, "validation") == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "there is no split \"%.60s\" of a text; it is train, test (or val, or "
                       "validation) or all",
                       name);
}

void tutti__tokens_use(tutti__tokens *t, tutti__split split, uint64_t training, uint64_t testing)
{
    t->from = split == TUTTI__SPLIT_TEST ? testing : 0;
    t->used = split == TUTTI__SPLIT_TEST    ? t->count - testing
              : split == TUTTI__SPLIT_TRAIN ? training
                                            : t->count;
}

uint64_t tutti__split_at(uint64_t n)
{
    return n - n / 10 - (n % 10 ? 1 : 0);
}
