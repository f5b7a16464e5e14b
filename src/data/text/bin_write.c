/* bin_write.c -- text files to a .bin of tokens.   SPDX-License-Identifier: MIT */
#include "data/text/bin.h"
#include "data/text/text_data.h"
#include "data/text/tokenize.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFERED = 1 << 16 }; /* tokens */

/* One file. */
typedef struct writer {
    const char *path;
    tutti__replacement file;
    bool open, raw;
    int width;
    uint64_t count;
    uint8_t *buffer;
} writer;

static tutti_status put(void *user, const uint32_t *tokens, size_t n)
{
    writer *w = user;

    w->count += n;
    if (!w->raw && w->count > INT32_MAX)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s would have more than %d tokens, the most that llm.c's header can say; "
            "write several files, NAME_train_1.bin, NAME_train_2.bin, ...",
            w->path, INT32_MAX);
    for (size_t done = 0; done < n;) {
        const size_t now = n - done < BUFFERED ? n - done : BUFFERED;

        for (size_t i = 0; i < now; i++) {
            const uint16_t two = (uint16_t)tokens[done + i];

            if (w->width == 2)
                memcpy(w->buffer + 2 * i, &two, 2);
            else
                memcpy(w->buffer + 4 * i, &tokens[done + i], 4);
        }
        TUTTI_TRY(
            tutti__write_all(w->file.fd, w->file.temporary, w->buffer, now * (size_t)w->width));
        done += now;
    }
    return TUTTI_OK;
}

static tutti_status begin(writer *w, int vocab)
{
    uint8_t header[TUTTI__BIN_HEADER];

    w->buffer = malloc(BUFFERED * sizeof(uint32_t));
    if (!w->buffer)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to write %s", w->path);
    TUTTI_TRY(tutti__replace_begin(&w->file, w->path));
    w->open = true;
    if (w->raw)
        return TUTTI_OK;
    if (!w->file.target[0])
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is no file: the header, which has the number of tokens, cannot be "
                           "written; use --raw",
                           w->path);
    tutti__bin_header(header, w->width, 0, vocab);
    return tutti__write_all(w->file.fd, w->file.temporary, header, sizeof header);
}

/* The header again, with the number of tokens. */
static tutti_status complete(const writer *w, int vocab)
{
    uint8_t header[TUTTI__BIN_HEADER];

    if (w->raw)
        return TUTTI_OK;
    tutti__bin_header(header, w->width, w->count, vocab);
    if (pwrite(w->file.fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        return tutti__fail_errno(errno, "cannot write %s", w->file.temporary);
    return TUTTI_OK;
}

/* ---- Both files ---------------------------------------------------------------------------------------------- */

static const char *folder_of(const char *path, char dir[4096])
{
    const char *slash = strrchr(path, '/');

    snprintf(dir, 4096, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return dir;
}

/* A folder has one tokenizer; one with a device or a pipe (/dev) gets none. *copy_p: it has none yet. */
static tutti_status check_beside(const tutti_tokenizer *t, const char *path, const char *dir,
                                 bool *copy_p)
{
    struct stat info;
    tutti_tokenizer *there;
    tutti_status status = TUTTI_OK;

    *copy_p = false;
    if (!tutti__is_folder(dir) || /* writing will say so */
        (stat(path, &info) == 0 && !S_ISREG(info.st_mode)))
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokenizer_beside(&there, dir));
    *copy_p = there == NULL;
    if (there && strcmp(there->digest, t->digest) != 0)
        status =
            tutti__fail(TUTTI_ERR_ARG,
                        "folder %s has tokens of another tokenizer, %s; write to another folder, "
                        "or remove it",
                        dir, there->path);
    tutti_tokenizer_free(there);
    return status;
}

static tutti_status add_sources(tutti__tokens *text, const tutti__bin_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        TUTTI_TRY(tutti__text_add(text, job->sources[i]));
    if (text->count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has no text", job->sources[0]);
    return TUTTI_OK;
}

/* A file that is written is none of those that are read, and not the other. */
static tutti_status check_file(const tutti__bin_job *job, const tutti_tokenizer *t,
                               const tutti__tokens *text, const char *path)
{
    char dir[4096];

    if (tutti__tokenizer_has_file(t, folder_of(job->out, dir), path))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is the tokenizer, or where its copy goes, and would be overwritten "
                           "with tokens; write to another file, as DIR/train.bin",
                           path);
    for (size_t i = 0; i < text->n; i++)
        if (text->parts[i].fd >= 0 && tutti__same_file(text->parts[i].path, path))
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s is also the text %s, which would be overwritten with tokens; "
                               "write to another file, as DIR/train.bin",
                               path, text->parts[i].path);
    return TUTTI_OK;
}

static tutti_status check_files(const tutti__bin_job *job, const tutti_tokenizer *t,
                                const tutti__tokens *text)
{
    TUTTI_TRY(check_file(job, t, text, job->out));
    if (!job->val)
        return TUTTI_OK;
    if (tutti__same_file(job->out, job->val))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--out %s and --val %s are the same file; name two, as DIR/train.bin "
                           "and DIR/val.bin",
                           job->out, job->val);
    return check_file(job, t, text, job->val);
}

static tutti_status write_both(const tutti__bin_job *job, tutti_tokenizer *t, tutti__tokens *text,
                               writer w[2])
{
    const int vocab = (int)tutti_tokenizer_vocab(t);
    uint64_t training = text->count;

    if (job->val)
        TUTTI_TRY(tutti__text_divide(text, &training));
    for (int i = 0; i < (job->val ? 2 : 1); i++) {
        text->from = i ? training : 0;
        text->used = i ? text->count - training : training;
        TUTTI_TRY(begin(&w[i], vocab));
        TUTTI_TRY(tutti__tokenize(t, text, &(tutti__token_sink){put, &w[i]}, job->tick));
        TUTTI_TRY(complete(&w[i], vocab));
    }
    return TUTTI_OK;
}

static tutti_status tokenize_to(const tutti__bin_job *job, tutti_tokenizer *t, tutti__tokens *text,
                                writer w[2])
{
    tutti_status status;
    char dir[4096];
    bool copy;

    w[0].width = w[1].width = tutti_tokenizer_vocab(t) <= 65536 ? 2 : 4;
    if (job->raw && w[0].width == 4)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "--raw: files without a header have tokens of 16 bits, and the vocabulary "
            "is %lld; leave --raw out",
            (long long)tutti_tokenizer_vocab(t));
    TUTTI_TRY(check_beside(t, job->out, folder_of(job->out, dir), &copy));
    TUTTI_TRY(add_sources(text, job));
    TUTTI_TRY(check_files(job, t, text));
    status = write_both(job, t, text, w);
    if (status == TUTTI_OK && copy)
        status = tutti__tokenizer_copy(t->path, dir);
    for (int i = 0; i < 2; i++) {
        if (w[i].open)
            status = tutti__replace_end(&w[i].file, status, true);
        free(w[i].buffer);
    }
    return status;
}

tutti_status tutti__bin_write(const tutti__bin_job *job, tutti__bin_report *report_p)
{
    writer w[2] = {{.path = job->out, .raw = job->raw}, {.path = job->val, .raw = job->raw}};
    tutti__tokens *text = tutti__alloc(sizeof *text);
    tutti_tokenizer *t = NULL;
    tutti_status status = text ? tutti_tokenizer_open(&t, job->tokenizer) : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        status = tokenize_to(job, t, text, w);
    if (status == TUTTI_OK)
        *report_p = (tutti__bin_report){.bytes = text->count - text->n / 2,
                                        .documents = text->n / 2 + 1,
                                        .tokens = w[0].count,
                                        .val_tokens = w[1].count,
                                        .vocab = tutti_tokenizer_vocab(t),
                                        .width = w[0].width};
    tutti_tokenizer_free(t);
    if (text)
        tutti__tokens_close(text);
    return status;
}
