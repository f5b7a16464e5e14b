/* sample_text.c -- what a language model writes after an evaluation.   SPDX-License-Identifier: MIT
 *
 * One rank writes while the others wait in their next collective: a text ends early at a signal, and long before the group's limit. */
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
    return tutti__generation_open(&sampler->generation, s->cx, s->model, cached,
                                  (int64_t)s->task.positions, s->task.classes,
                                  (size_t)tutti_tokenizer_vocab(sampler->tokenizer));
}

/* When the text must end, of tutti__now_ns; UINT64_MAX: nobody waits for it. */
static uint64_t end_of_time(const tutti__session *s)
{
    enum {
        SHARE = 4
    }; /* of the limit: what else a rank does between two collectives takes time, too */

    return s->size > 1
               ? tutti__now_ns() + (uint64_t)tutti__group_timeout_ms(s->group) * 1000000 / SHARE
               : UINT64_MAX;
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
    for (int64_t i = 0; i < s->config->sample_tokens && !tutti__signals_seen(); i++) {
        int64_t token;

        if (tutti__now_ns() > end_ns) {
            tutti_log(TUTTI_LOG_INFO, "train",
                      "the sample text ends after %lld of %lld tokens, for which the other ranks "
                      "have waited a quarter of their time limit (timeout_s)",
                      (long long)i, (long long)s->config->sample_tokens);
            break;
        }
        TUTTI_TRY(tutti__generation_next(&sampler->generation, &how, 0, &token));
        if (token == end)
            break;
        TUTTI_TRY(tutti__tokenizer_append(sampler->tokenizer, &stream, token, &sampler->text));
    }
    return tutti__tokenizer_append(sampler->tokenizer, &stream, -1, &sampler->text);
}

void tutti__run_sample(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    struct tutti__sampler *sampler = run->sampler;
    tutti_status status = TUTTI_OK;

    if (!s->task.kind->is_language_modeling || s->config->sample_tokens == 0 || s->mesh)
        return;
    if (s->zero && s->config->zero == 3 && s->shards == 0) { /* it cannot gather parameters alone */
        if (!run->no_sample)
            tutti_log(TUTTI_LOG_INFO, "train",
                      "no sample texts: with zero=3 each rank has a share of "
                      "the weights; tutti generate writes from a checkpoint");
        run->no_sample = true;
        return;
    }
    if (!sampler) {
        sampler = run->sampler = tutti__alloc(sizeof *sampler);
        if (!sampler)
            return;
        status = open_sampler(sampler, s);
    }
    if (sampler->off)
        return;
    sampler->text.n = 0;
    if (status == TUTTI_OK)
        status = write_text(sampler, s);
    tutti__generation_rest(&sampler->generation); /* training needs it */
    if (status == TUTTI_OK)
        return;
    sampler->off = true;
    if (sampler->text.p)
        sampler->text.p[0] = '\0';
    tutti_log(sampler->tokenizer ? TUTTI_LOG_WARN : TUTTI_LOG_INFO, "train", "no sample texts: %s",
              tutti_last_error());
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
