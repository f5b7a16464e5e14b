/* sample_text.c -- what a language model writes after an evaluation.   SPDX-License-Identifier: MIT
 *
 * One rank writes while the others wait in their next collective: a text ends early at a signal, and long before the group's limit. If ranks
 * have stages or parts of the layers, all compute it, each draws the same tokens, and rank 0 says before each whether there is one. */
#include "comm/comm.h"
#include "data/dataset.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"
#include "nn/nn.h"
#include "train/infer/generation.h"
#include "train/machine/signals.h"
#include "train/run/run.h"

#include <stdlib.h>

struct tutti__sampler {
    tutti_tokenizer *tokenizer;
    tutti__generation generation;
    bool off; /* it cannot write */
    tutti__stream_text text;
};

static tutti_status open_tokenizer(tutti_tokenizer **tokenizer_p, const tutti__session *s)
{
    const char *const places[] = {tutti__dataset_tokenizer(s->data.train)};

    return tutti__tokenizer_of_fit(tokenizer_p, tutti_dataset_fitted(s->data.train), NULL, places,
                                   TUTTI__COUNT_OF(places));
}

static tutti_status open_sampler(struct tutti__sampler *sampler, const tutti__session *s)
{
    const tutti_model_kind *kind = s->parts->model;
    const bool cached = tutti__model_find(kind->name) == kind;

    TUTTI_TRY(open_tokenizer(&sampler->tokenizer, s));
    TUTTI_TRY(tutti__generation_open(&sampler->generation, s->cx, s->model, cached,
                                     (int64_t)s->task.positions, s->task.classes,
                                     (size_t)tutti_tokenizer_vocab(sampler->tokenizer)));
    sampler->generation.pipeline = s->pipeline;
    sampler->generation.stages = tutti_mesh_group(s->mesh, "pipeline");
    return TUTTI_OK;
}

/* When the text must end, of tutti__now_ns; UINT64_MAX: nobody waits for it. */
static uint64_t end_of_time(const tutti__session *s)
{
    enum {
        SHARE = 4
    }; /* of the limit: what else a rank does between two collectives takes time, too */

    return s->size > 1 && !s->mesh
               ? tutti__now_ns() + (uint64_t)tutti__group_timeout_ms(s->group) * 1000000 / SHARE
               : UINT64_MAX;
}

/* Whether there is a next token: rank 0's answer. */
static tutti_status goes_on(const tutti__session *s, uint64_t end_ns, int64_t i, bool *goes_p)
{
    int64_t goes = i < s->config->sample_tokens && !tutti__signals_seen();

    if (goes && tutti__now_ns() > end_ns) {
        tutti_log(TUTTI_LOG_INFO, "train",
                  "the sample text ends after %lld of %lld tokens, for which the other ranks "
                  "have waited a quarter of their time limit (timeout_s)",
                  (long long)i, (long long)s->config->sample_tokens);
        goes = false;
    }
    if (s->mesh)
        TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(&goes, 1, TUTTI_I64), 0, NULL));
    *goes_p = goes != 0;
    return TUTTI_OK;
}

static tutti_status write_text(struct tutti__sampler *sampler, const tutti__session *s)
{
    const tutti__sampling how = {
        .temperature = 0.8, .top_k = 200, .top_p = 1, .seed = (uint64_t)s->config->seed};
    const int64_t first = tutti__generation_first(sampler->tokenizer);
    const int64_t end = tutti_tokenizer_end_of_text(sampler->tokenizer);
    const uint64_t end_ns = end_of_time(s);
    tutti_text_stream stream = {.n = 0};

    TUTTI_TRY(tutti__generation_begin(&sampler->generation, &first, 1));
    for (int64_t i = 0;; i++) {
        int64_t token;
        bool goes;

        TUTTI_TRY(goes_on(s, end_ns, i, &goes));
        if (!goes)
            break;
        TUTTI_TRY(tutti__generation_next(&sampler->generation, &how, 0, &token));
        if (token == end)
            break;
        TUTTI_TRY(tutti__tokenizer_append(sampler->tokenizer, &stream, token, &sampler->text));
    }
    return tutti__tokenizer_append(sampler->tokenizer, &stream, -1, &sampler->text);
}

const char *tutti__run_writes_none(const tutti__session *s)
{
    return s->zero && s->config->zero == 3 && s->shards == 0 && tutti__session_data_size(s) > 1
               ? "with zero=3 each token would gather all weights"
           : s->config->sequence_parallel
               ? "with sequence_parallel ranks divide tokens, and here is one at a time"
               : NULL;
}

/* With a mesh all ranks go on, or none. */
static tutti_status begin(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    tutti_status status = TUTTI_OK;

    if (run->sampler)
        return TUTTI_OK;
    run->sampler = tutti__alloc(sizeof *run->sampler);
    status = run->sampler ? open_sampler(run->sampler, s) : TUTTI_ERR_MEMORY;
    return s->mesh ? tutti__group_agree(s->group, status) : status;
}

void tutti__run_sample(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    struct tutti__sampler *sampler;
    tutti_status status;

    if (!s->task.kind->is_language_modeling || s->config->sample_tokens == 0 ||
        tutti__run_writes_none(s))
        return;
    status = begin(run);
    if (!(sampler = run->sampler) || sampler->off)
        return;
    sampler->text.n = 0;
    if (status == TUTTI_OK)
        status = write_text(sampler, s);
    tutti__generation_rest(&sampler->generation); /* training needs it */
    if (status == TUTTI_OK)
        return;
    if (s->mesh && status == TUTTI_ERR_MEMORY) /* the others compute on */
        (void)!tutti__session_fail_alone(&run->session, status);
    sampler->off = true;
    if (sampler->text.p)
        sampler->text.p[0] = '\0';
    if (s->rank == 0 || !s->mesh)
        tutti_log(sampler->tokenizer ? TUTTI_LOG_WARN : TUTTI_LOG_INFO, "train",
                  "no sample texts: %s", tutti_last_error());
}

const char *tutti__run_sample_text(const tutti__train_run *run)
{
    return run->sampler && run->sampler->text.p ? run->sampler->text.p : "";
}

void tutti__run_sample_close(tutti__train_run *run)
{
    struct tutti__sampler *sampler = run->sampler;

    run->sampler = NULL;
    if (!sampler)
        return;
    tutti__generation_close(&sampler->generation);
    tutti_tokenizer_free(sampler->tokenizer);
    free(sampler->text.p);
    free(sampler);
}
