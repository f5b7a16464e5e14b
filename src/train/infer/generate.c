/* generate.c -- a path of weights and a prompt to text.   SPDX-License-Identifier: MIT */
#include "train/infer/generate.h"

#include "checkpoint/json_text.h"
#include "checkpoint/module_load.h"
#include "checkpoint/weights.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"
#include "nn/nn.h"
#include "pipeline/pipeline.h"
#include "train/config/agreement.h"
#include "train/config/config_language.h"
#include "train/config/hf_config.h"
#include "train/infer/generation.h"
#include "train/infer/inference.h"
#include "train/infer/run_tokenizer.h"
#include "train/session/amp.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <tutti/ddp.h>
#include <unistd.h>

typedef struct writer {
    const tutti__generate *job;
    tutti__train_config config;
    tutti__parts parts;
    char *fit; /* what the training data taught; NULL: nothing is known */
    tutti_ctx *cx;
    tutti_model *model;
    tutti_tokenizer *tokenizer;
    json_t *ends; /* tokens at which a text ends, besides the tokenizer's; NULL: none */
    tutti__generation generation;
    tutti_group *group; /* of the ranks that divide the model; NULL: it is not divided */
    tutti_peers peers;
    tutti_ddp *ddp;           /* of shares of the weights (zero 3); NULL: none */
    tutti_pipeline *pipeline; /* of which `model` is this rank's part; NULL: none */
    size_t vocab, limit;      /* tokens that the model knows; those of the tokenizer */
    int64_t context,
        positions; /* the most tokens that the model looks at; rows of its table, 0: it has none */
    FILE *out;
    tutti_text_stream stream;
    tutti__stream_text text; /* of a token */
    char last;               /* byte that was written */
    bool terminal;           /* that is what `out` is */
} writer;

/* ---- The model -------------------------------------------------------------------------------------------------- */

/* Rows of the table whose name ends so; 0: there is none. */
static int64_t rows_of(const tutti__weights *weights, const char *name)
{
    const tutti_shape shape = tutti__weights_shape(weights, name);

    return shape.n == 2 ? shape.d[0] : 0;
}

static int64_t number_of(const char *fit, const char *key)
{
    json_t *root = fit ? json_loads(fit, 0, NULL) : NULL;
    const int64_t value = (int64_t)json_integer_value(json_object_get(root, key));

    json_decref(root);
    return value;
}

/* A program's own model may be one. */
static tutti_status check_model(const writer *w)
{
    const tutti_model_kind *kind = w->parts.model;
    char text[2048];

    if ((kind->sizes & TUTTI_MODEL_TOKENS) || tutti__model_find(kind->name) != kind)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s is a %s, which is not a language model; for its predictions: tutti "
                       "predict",
                       tutti__printable(w->job->path, text, sizeof text), w->config.model);
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

static bool is_first(const writer *w)
{
    return !w->group || tutti_group_rank(w->group) == 0;
}

/* path: on rank 0, which reads tensor by tensor and sends each rank what it has; with stages each rank reads its own. */
static tutti_status load_weights(writer *w, char path[4096])
{
    static const tutti_load_opts load = {.finite = true};
    const char *lora = w->config.lora_init;
    tutti_module *m = tutti_model_module(w->model);
    char text[2048];

    if (w->job->zero)
        TUTTI_TRY(tutti_ddp_new(&w->ddp, m, w->group, &(tutti_ddp_opts){.zero = 3}));
    if (w->pipeline)
        TUTTI_TRY(tutti_broadcast(w->group, TUTTI_BUF(path, 4096, TUTTI_U8), 0, NULL));
    if (w->group && !w->pipeline)
        TUTTI_TRY(
            tutti__module_load_pieces(m, w->group, path, &load, *lora != '\0', text, sizeof text));
    else
        TUTTI_TRY(tutti_module_load_with(m, path, &load, text, sizeof text));
    return *lora ? tutti_lora_load(m, lora) : TUTTI_OK;
}

static tutti_status make_model(writer *w)
{
    const tutti__train_config *c = &w->config;
    const bool own = tutti__model_find(w->parts.model->name) != w->parts.model;
    tutti_llama_opts llama;
    tutti_model_opts opts = tutti__config_model_opts(c, w->parts.model, &llama);
    const tutti_ctx_opts ctx_opts = {.threads = (int)c->threads,
                                     .defers_parameters = w->job->zero > 0};
    tutti_device device;

    opts.channels = w->context;
    opts.height = opts.width = 1;
    opts.classes = (int64_t)w->vocab;
    opts.dropout = 0;
    opts.context = (int)(w->positions ? w->positions : w->context);
    opts.parallel = w->job->tensor > 1 ? &w->peers : NULL;
    TUTTI_TRY(tutti_device_parse(&device, c->device, 0));
    TUTTI_TRY(tutti_ctx_new(&w->cx, device, &ctx_opts));
    TUTTI_TRY(tutti__amp_check(w->cx, c));
    if (w->job->pipeline > 1) {
        TUTTI_TRY(tutti__pipeline_new_alone(&w->pipeline, w->cx, w->group, c->model, &opts, NULL));
        w->model = tutti_pipeline_model(w->pipeline);
    } else
        TUTTI_TRY(tutti_model_new(&w->model, w->cx, c->model, &opts));
    TUTTI_TRY(tutti_module_status(tutti_model_module(w->model)));
    TUTTI_TRY(tutti__config_adapt(c, tutti_model_module(w->model)));
    TUTTI_TRY(tutti__generation_open(&w->generation, w->cx, w->model, !own, w->context, w->vocab,
                                     w->limit));
    w->generation.autocast = tutti__amp_of(c);
    w->generation.pipeline = w->pipeline;
    w->generation.stages = w->group;
    return TUTTI_OK;
}

/* A tokenizer that is given may be another than that of the training. */
static tutti_status check_tokenizer(const writer *w)
{
    const int64_t n = tutti_tokenizer_vocab(w->tokenizer);
    json_t *root = w->fit ? json_loads(w->fit, 0, NULL) : NULL;
    const json_t *was = json_object_get(root, "tokenizer");
    const char *kind = json_string_value(json_object_get(was, "kind"));
    const bool differs = kind && tutti__word_in("bytes characters file", kind) &&
                         !tutti__tokenizer_is(w->tokenizer, was);

    json_decref(root);
    if (!w->job->tokenizer || !*w->job->tokenizer)
        return TUTTI_OK;
    if ((uint64_t)n > w->vocab)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--tokenizer: %s has %lld tokens, and the model knows %zu; expected the "
                           "tokenizer with which it was trained",
                           w->job->tokenizer, (long long)n, w->vocab);
    if (differs)
        tutti_log(TUTTI_LOG_WARN, "generate",
                  "%s is not the tokenizer with which the model was trained: its tokens mean "
                  "something else to it",
                  w->job->tokenizer);
    return TUTTI_OK;
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

/* A model may write what controls a terminal: each such character becomes "?". Of valid UTF-8. Returns the bytes that are left. */
static size_t make_harmless(char *text, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n;) {
        const int bytes = tutti__utf8_bytes(text + i);
        const size_t all = bytes > 0 ? (size_t)bytes : 1;

        if (text[i] != '\n' && text[i] != '\t' && tutti__is_obeyed(text + i, bytes))
            text[kept++] = '?';
        else
            for (size_t k = 0; k < all; k++)
                text[kept++] = text[i + k];
        i += all;
    }
    return kept;
}

static tutti_status put(writer *w, char *text, size_t n)
{
    if (n == 0)
        return TUTTI_OK;
    w->last = text[n - 1];
    if (w->terminal)
        n = make_harmless(text, n);
    fwrite(text, 1, n, w->out);
    if (fflush(w->out) != 0)
        return tutti__fail_errno(errno, "the text cannot be written");
    return TUTTI_OK;
}

/* Of a token, -1 for the end: the characters that are complete. */
static tutti_status put_token(writer *w, int64_t token)
{
    w->text.n = 0;
    TUTTI_TRY(tutti__tokenizer_append(w->tokenizer, &w->stream, token, &w->text));
    return put(w, w->text.p, w->text.n);
}

static tutti_status put_prompt(writer *w)
{
    const size_t n = w->job->prompt_bytes;
    char *text = n > 0 ? malloc(n) : NULL;
    tutti_status status;

    if (n == 0 || w->job->no_prompt)
        return free(text), TUTTI_OK;
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the prompt");
    memcpy(text, w->job->prompt, n);
    status = put(w, text, n);
    free(text);
    return status;
}

/* A folder of Hugging Face may name other ends of a text than its tokenizer, as of a turn in a conversation. */
static tutti_status find_ends(writer *w)
{
    tutti__weights_place place;

    TUTTI_TRY(tutti__weights_find(&place, w->job->path));
    w->ends = place.hf[0] ? tutti__hf_ends(place.hf) : NULL;
    return TUTTI_OK;
}

static bool is_end(const writer *w, int64_t token)
{
    const json_t *one;
    size_t i;

    json_array_foreach(w->ends, i, one)
    {
        if (json_integer_value(one) == token)
            return true;
    }
    return token == tutti_tokenizer_end_of_text(w->tokenizer);
}

/* Only rank 0 knows the tokenizer. */
static tutti_status text_ends(const writer *w, int64_t token, bool *ends_p)
{
    int64_t ends = is_first(w) && !w->job->no_stop && is_end(w, token);

    if (w->group && !w->job->no_stop)
        TUTTI_TRY(tutti_broadcast(w->group, TUTTI_BUF(&ends, 1, TUTTI_I64), 0, NULL));
    *ends_p = ends != 0;
    return TUTTI_OK;
}

/* One text: the prompt, and up to `tokens` more. */
static tutti_status write_text(writer *w, uint64_t sample)
{
    const tutti__generate *job = w->job;

    for (int64_t i = 0; i < job->tokens; i++) {
        int64_t token;
        bool ends;

        TUTTI_TRY(tutti__generation_next(&w->generation, &job->sampling, sample, &token));
        TUTTI_TRY(text_ends(w, token, &ends));
        if (ends)
            break;
        if (is_first(w))
            TUTTI_TRY(put_token(w, token));
    }
    return is_first(w) ? put_token(w, -1) : TUTTI_OK;
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
    char line[] = "\n---------------\n", end[] = "\n";
    double seconds;
    size_t made = 0;

    if (is_first(w))
        warn_of_length(w, n);
    for (int64_t i = 0; i < job->samples; i++) {
        TUTTI_TRY(tutti__generation_begin(&w->generation, tokens, n));
        if (i > 0 && is_first(w))
            TUTTI_TRY(put(w, line + (w->last == '\n'), sizeof line - 1 - (w->last == '\n')));
        if (is_first(w))
            TUTTI_TRY(put_prompt(w));
        TUTTI_TRY(write_text(w, (uint64_t)i));
        made += w->generation.n - n;
    }
    if (w->last != '\n' && w->last && w->terminal)
        TUTTI_TRY(put(w, end, 1));
    seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    if (job->stats && is_first(w))
        fprintf(stderr, "%zu tokens in %.3f s, %.1f tokens/s, after a prompt of %zu\n", made,
                seconds, (double)made / seconds, n);
    return TUTTI_OK;
}

/* The prompt's tokens, or the one with which a text begins. */
static tutti_status encode(writer *w, int64_t **tokens_p, size_t *n_p)
{
    const tutti__generate *job = w->job;

    const tutti_status status = tutti_tokenizer_encode(w->tokenizer, job->prompt ? job->prompt : "",
                                                       job->prompt_bytes, tokens_p, n_p);

    if (status == TUTTI_ERR_FORMAT)
        return tutti__fail(TUTTI_ERR_ARG, "prompt: %s", tutti_last_error());
    TUTTI_TRY(status);
    if (*n_p > 0)
        return TUTTI_OK;
    free(*tokens_p);
    *tokens_p = tutti__alloc(sizeof **tokens_p);
    if (!*tokens_p)
        return TUTTI_ERR_MEMORY;
    (*tokens_p)[(*n_p)++] = tutti__generation_first(w->tokenizer);
    return TUTTI_OK;
}

/* ---- The whole -------------------------------------------------------------------------------------------------- */

/* What rank 0 finds: the configuration, the weights' file in `path`, sizes, the tokenizer and the prompt. */
static tutti_status prepare(writer *w, char path[4096], int64_t **tokens_p, size_t *n_p)
{
    const tutti__generate *job = w->job;
    const tutti__inference which = {.command = "tutti generate",
                                    .path = job->path,
                                    .weights = job->weights,
                                    .argc = job->argc,
                                    .argv = job->argv,
                                    .no_data = true};
    tutti__inference_setup setup = {.job = &which, .config = &w->config, .parts = &w->parts};
    tutti_status status;

    w->parts.title = which.command;
    status = tutti__inference_choose(&setup);
    w->fit = setup.fit;
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__inference_average(&setup, path));
    if (!path[0])
        snprintf(path, 4096, "%s", job->path);
    TUTTI_TRY(check_model(w));
    TUTTI_TRY(find_sizes(w, path));
    TUTTI_TRY(tutti__tokenizer_for_run(&w->tokenizer, job->path, w->fit, job->tokenizer,
                                       w->config.tokenizer));
    TUTTI_TRY(find_ends(w));
    TUTTI_TRY(check_tokenizer(w));
    w->limit = (size_t)tutti_tokenizer_vocab(w->tokenizer);
    return encode(w, tokens_p, n_p);
}

/* What the other ranks need of it. */
static tutti_status share(writer *w, int64_t **tokens_p, size_t *n_p)
{
    int64_t sizes[] = {(int64_t)w->vocab, (int64_t)w->limit, w->context, w->positions,
                       (int64_t)*n_p};
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(
        tutti_broadcast(w->group, TUTTI_BUF(&w->config, sizeof w->config, TUTTI_U8), 0, NULL));
    TUTTI_TRY(
        tutti_broadcast(w->group, TUTTI_BUF(sizes, TUTTI__COUNT_OF(sizes), TUTTI_I64), 0, NULL));
    w->vocab = (size_t)sizes[0];
    w->limit = (size_t)sizes[1];
    w->context = sizes[2];
    w->positions = sizes[3];
    *n_p = (size_t)sizes[4];
    if (!is_first(w)) {
        w->parts.title = "tutti generate";
        status = tutti__parts_find(&w->parts, &w->config);
        if (status == TUTTI_OK && !(*tokens_p = tutti__alloc(*n_p * sizeof **tokens_p)))
            status = TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(tutti__fail_together(w->group, status));
    return tutti_broadcast(w->group, TUTTI_BUF(*tokens_p, *n_p, TUTTI_I64), 0, NULL);
}

static tutti_status generate_alone(writer *w, char path[4096], int64_t **tokens_p, size_t *n_p)
{
    TUTTI_TRY(prepare(w, path, tokens_p, n_p));
    TUTTI_TRY(make_model(w));
    TUTTI_TRY(load_weights(w, path));
    return write_all(w, *tokens_p, *n_p);
}

static tutti_status check_group(const writer *w)
{
    const char *flag = w->job->pipeline > 1 ? "--pipeline" : "--tensor";
    const int64_t n = w->job->pipeline > 1 ? w->job->pipeline : w->job->tensor;

    return w->job->zero || tutti_group_size(w->group) == n
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "%s %lld on %d ranks: all of them divide the model, so expected "
                             "%s %d",
                             flag, (long long)n, tutti_group_size(w->group), flag,
                             tutti_group_size(w->group));
}

static tutti_status check_device(const writer *w)
{
    tutti_device device;

    TUTTI_TRY(tutti_device_parse(&device, w->config.device, 0));
    return device.kind == TUTTI_CPU
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_UNSUPPORTED,
                             "%s: a model can be divided among ranks on the CPU only; use --device "
                             "cpu",
                             w->job->zero           ? "zero"
                             : w->job->pipeline > 1 ? "pipeline"
                                                    : "tensor");
}

static tutti_status generate_together(writer *w, char path[4096], int64_t **tokens_p, size_t *n_p)
{
    tutti_status status = tutti_group_init(&w->group, NULL);

    if (status != TUTTI_OK) {
        tutti__report_error(0, 1);
        return status;
    }
    w->peers = tutti_group_peers(w->group);
    TUTTI_TRY(tutti__fail_together(w->group, check_group(w)));
    TUTTI_TRY(
        tutti__fail_together(w->group, is_first(w) ? prepare(w, path, tokens_p, n_p) : TUTTI_OK));
    TUTTI_TRY(share(w, tokens_p, n_p));
    TUTTI_TRY(tutti__fail_together(w->group, check_device(w)));
    TUTTI_TRY(tutti__fail_together(w->group, make_model(w)));
    if (w->pipeline)
        TUTTI_TRY(tutti__pipeline_agree(w->pipeline, w->group, TUTTI_OK));
    TUTTI_TRY(tutti__fail_together(w->group, load_weights(w, path)));
    status = write_all(w, *tokens_p, *n_p);
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_alone(w->group, status);
}

tutti_status tutti__generate_text(const tutti__generate *job, FILE *out)
{
    writer *w = tutti__alloc(sizeof *w);
    char path[4096] = "";
    int64_t *tokens = NULL;
    size_t n = 0;
    tutti_status status;

    if (!w)
        return TUTTI_ERR_MEMORY;
    w->job = job;
    w->out = out;
    w->terminal = isatty(fileno(out));
    tutti__report_as("tutti generate");
    status = (tutti__generate_is_divided(job) ? generate_together : generate_alone)(w, path,
                                                                                    &tokens, &n);
    tutti__report_as(NULL);
    free(tokens);
    tutti__generation_close(&w->generation);
    tutti_tokenizer_free(w->tokenizer);
    json_decref(w->ends);
    free(w->text.p);
    tutti_ddp_free(w->ddp);
    if (w->pipeline)
        tutti_pipeline_free(w->pipeline);
    else
        tutti_model_free(w->model);
    tutti_ctx_free(w->cx);
    tutti_group_free(w->group);
    free(w->fit);
    free(w);
    return status;
}
