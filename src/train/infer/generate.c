/* generate.c -- a path of weights and a prompt to text.   SPDX-License-Identifier: MIT */
#include "train/infer/generate.h"

#include "checkpoint/json_text.h"
#include "checkpoint/weights.h"
#include "data/text/tokens.h"
#include "nn/nn.h"
#include "train/config/config_language.h"
#include "train/infer/codec.h"
#include "train/infer/generation.h"
#include "train/infer/inference.h"
#include "train/infer/utf8_stream.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

typedef struct writer {
    const tutti__generate *job;
    tutti__train_config config;
    tutti__parts parts;
    char *fit; /* what the training data taught; NULL: nothing is known */
    tutti_ctx *cx;
    tutti_model *model;
    tutti__codec codec;
    tutti__generation generation;
    size_t vocab;
    int64_t context,
        positions; /* the most tokens that the model looks at; rows of its table, 0: it has none */
    FILE *out;
    tutti__utf8_stream utf8;
    char last;     /* byte that was written */
    bool terminal; /* that is what `out` is */
} writer;

/* ---- The model -------------------------------------------------------------------------------------------------- */

/* Rows of the table whose name ends so; 0: there is none. */
static int64_t rows_of(const tutti__weights *weights, const char *name)
{
    for (size_t i = 0; i < tutti__weights_count(weights); i++) {
        const tutti__safetensors_entry *entry = tutti__weights_at(weights, i);

        if (tutti__ends_in(entry->name, name) && entry->shape.n == 2)
            return entry->shape.d[0];
    }
    return 0;
}

static int64_t number_of(const char *fit, const char *key)
{
    json_t *root = fit ? json_loads(fit, 0, NULL) : NULL;
    const int64_t value = (int64_t)json_integer_value(json_object_get(root, key));

    json_decref(root);
    return value;
}

/* The vocabulary and the positions are those of the tables in the file; of a program's own model, those of its data. */
static tutti_status find_sizes(writer *w, const char *path)
{
    const tutti__train_config *c = &w->config;
    int64_t vocab;
    tutti__weights *weights;

    TUTTI_TRY(tutti__weights_open(&weights, path));
    vocab = rows_of(weights, "wte.weight") + rows_of(weights, "embed_tokens.weight");
    w->positions = rows_of(weights, "wpe.weight");
    tutti__weights_close(weights);
    if (vocab == 0)
        vocab = c->vocab ? c->vocab : number_of(w->fit, "vocab");
    if (vocab == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "vocab: the weights of %s do not tell how many tokens the model knows; "
                           "give --vocab",
                           c->model);
    w->vocab = (size_t)vocab;
    /* Samples of text have TUTTI__CONTEXT tokens by default, also where the table has more rows: the others have learned nothing. */
    w->context = c->context                   ? c->context
                 : number_of(w->fit, "vocab") ? TUTTI__CONTEXT
                 : w->positions               ? w->positions
                                              : 1024;
    if (w->positions > 0 && w->context > w->positions)
        return tutti__fail(TUTTI_ERR_ARG,
                           "context: it is %lld, and the weights have %lld positions; expected at "
                           "most those",
                           (long long)w->context, (long long)w->positions);
    return TUTTI_OK;
}

static tutti_status open_model(writer *w, const char *path)
{
    const tutti__train_config *c = &w->config;
    const bool own = tutti__model_find(w->parts.model->name) != w->parts.model;
    tutti_llama_opts llama;
    tutti_model_opts opts = tutti__config_model_opts(c, w->parts.model, &llama);
    const tutti_ctx_opts ctx_opts = {.threads = (int)c->threads};
    const tutti_load_opts load = {.finite = true};
    tutti_device device;
    char text[2048];

    opts.channels = w->context;
    opts.height = opts.width = 1;
    opts.classes = (int64_t)w->vocab;
    opts.dropout = 0;
    opts.context = (int)(w->positions ? w->positions : w->context);
    if (!own && !(w->parts.model->sizes & TUTTI_MODEL_TOKENS))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is a %s, which is not a language model; for its predictions: tutti "
                           "predict",
                           tutti__printable(w->job->path, text, sizeof text), c->model);
    TUTTI_TRY(tutti_device_parse(&device, c->device, 0));
    TUTTI_TRY(tutti_ctx_new(&w->cx, device, &ctx_opts));
    TUTTI_TRY(tutti_model_new(&w->model, w->cx, c->model, &opts));
    TUTTI_TRY(tutti_module_status(tutti_model_module(w->model)));
    TUTTI_TRY(tutti_module_load_with(tutti_model_module(w->model), path, &load, text, sizeof text));
    return tutti__generation_open(&w->generation, w->cx, w->model, !own, w->context, w->vocab,
                                  w->codec.n);
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

/* A model may write what controls a terminal. */
static void make_harmless(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t') ||
            text[i] == 0x7f)
            text[i] = '?';
}

static tutti_status put(writer *w, const char *bytes, size_t n, bool last)
{
    char some[1024];

    do {
        const size_t now = n < 256 ? n : 256;
        const size_t written = tutti__utf8_put(&w->utf8, bytes, now, last && now == n, some);

        if (w->terminal)
            make_harmless(some, written);
        if (written > 0) {
            w->last = some[written - 1];
            fwrite(some, 1, written, w->out);
        }
        bytes += now;
        n -= now;
    } while (n > 0);
    if (fflush(w->out) != 0)
        return tutti__fail(TUTTI_ERR_IO, "the text cannot be written: %s", strerror(errno));
    return TUTTI_OK;
}

/* One text: the prompt, and up to `tokens` more. */
static tutti_status write_text(writer *w, uint64_t sample)
{
    const tutti__generate *job = w->job;
    size_t bytes;

    for (int64_t i = 0; i < job->tokens; i++) {
        int64_t token;
        const char *text;

        TUTTI_TRY(tutti__generation_next(&w->generation, &job->sampling, sample, &token));
        if (token == w->codec.end && !job->no_stop)
            break;
        text = tutti__codec_decode(&w->codec, token, &bytes);
        TUTTI_TRY(put(w, text, bytes, false));
    }
    return put(w, "", 0, true);
}

static void warn_of_length(const writer *w, size_t n)
{
    if (n > (size_t)w->context)
        tutti_log(TUTTI_LOG_WARN, "generate",
                  "the prompt has %zu tokens and the model looks back over %lld: it reads the last "
                  "%zu",
                  n, (long long)w->context, n - tutti__generation_window(n, w->context));
}

static tutti_status write_all(writer *w, const int64_t *tokens, size_t n)
{
    const tutti__generate *job = w->job;
    const uint64_t begin_ns = tutti__now_ns();
    double seconds;
    size_t made = 0;

    warn_of_length(w, n);
    for (int64_t i = 0; i < job->samples; i++) {
        if (i > 0)
            TUTTI_TRY(put(w, w->last == '\n' ? "---------------\n" : "\n---------------\n",
                          w->last == '\n' ? 16 : 17, false));
        if (!job->no_prompt)
            TUTTI_TRY(put(w, job->prompt, job->prompt_bytes, false));
        TUTTI_TRY(tutti__generation_begin(&w->generation, tokens, n));
        TUTTI_TRY(write_text(w, (uint64_t)i));
        made += w->generation.n - n;
    }
    if (w->last != '\n' && w->last && w->terminal)
        TUTTI_TRY(put(w, "\n", 1, true));
    seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    if (job->stats)
        fprintf(stderr, "%zu tokens in %.3f s, %.1f tokens/s, after a prompt of %zu\n", made,
                seconds, (double)made / seconds, n);
    return TUTTI_OK;
}

/* The prompt's tokens, or the one with which a text begins. */
static tutti_status encode(writer *w, int64_t **tokens_p, size_t *n_p)
{
    const tutti__generate *job = w->job;

    TUTTI_TRY(tutti__codec_encode(&w->codec, job->prompt ? job->prompt : "", job->prompt_bytes,
                                  tokens_p, n_p));
    if (*n_p == 0)
        (*tokens_p)[(*n_p)++] = tutti__codec_first(&w->codec);
    return TUTTI_OK;
}

/* ---- The whole -------------------------------------------------------------------------------------------------- */

static tutti_status generate(writer *w)
{
    const tutti__generate *job = w->job;
    const tutti__inference which = {.command = "tutti generate",
                                    .path = job->path,
                                    .argc = job->argc,
                                    .argv = job->argv,
                                    .no_data = true};
    char average[4096];
    int64_t *tokens = NULL;
    tutti_status status;
    const char *path = job->path;
    size_t n = 0;

    w->parts.title = which.command;
    TUTTI_TRY(tutti__inference_choose(&which, &w->config, &w->parts, &w->fit));
    if ((!job->weights || strcmp(job->weights, "ema") == 0) &&
        tutti__weights_find_ema(job->path, average))
        path = average;
    else if (job->weights && strcmp(job->weights, "ema") == 0)
        return tutti__fail(TUTTI_ERR_NOT_FOUND, "--weights ema: %s has no ema.safetensors", path);
    TUTTI_TRY(find_sizes(w, path));
    TUTTI_TRY(tutti__codec_open(&w->codec, w->fit));
    TUTTI_TRY(open_model(w, path));
    status = encode(w, &tokens, &n);
    if (status == TUTTI_OK)
        status = write_all(w, tokens, n);
    free(tokens);
    return status;
}

tutti_status tutti__generate_text(const tutti__generate *job, FILE *out)
{
    writer *w = tutti__alloc(sizeof *w);
    tutti_status status;

    if (!w)
        return TUTTI_ERR_MEMORY;
    w->job = job;
    w->out = out;
    w->terminal = isatty(fileno(out));
    status = generate(w);
    tutti__generation_close(&w->generation);
    tutti__codec_close(&w->codec);
    tutti_model_free(w->model);
    tutti_ctx_free(w->cx);
    free(w->fit);
    free(w);
    return status;
}
