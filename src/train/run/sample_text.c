/* sample_text.c -- what a language model writes after an evaluation.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "nn/nn.h"
#include "train/infer/codec.h"
#include "train/infer/generation.h"
#include "train/infer/utf8_stream.h"
#include "train/run/run.h"

#include <stdlib.h>

struct tutti__sampler {
    tutti__codec codec;
    tutti__generation generation;
    bool off;   /* it cannot write */
    char *text; /* "" or NULL: none; room for `room` bytes */
    size_t n, room;
};

static tutti_status open_sampler(struct tutti__sampler *sampler, const tutti__session *s)
{
    const tutti_model_kind *kind = s->parts->model;
    const bool cached = tutti__model_find(kind->name) == kind;
    /* a token is at most that many bytes, as far as a text's end is kept */
    const size_t longest = 64;

    TUTTI_TRY(tutti__codec_open(&sampler->codec, tutti_dataset_fitted(s->data.train)));
    sampler->room = tutti__utf8_room(longest) * (size_t)s->config->sample_tokens + 64;
    sampler->text = tutti__alloc(sampler->room);
    if (!sampler->text)
        return TUTTI_ERR_MEMORY;
    return tutti__generation_open(&sampler->generation, s->cx, s->model, cached,
                                  (int64_t)s->task.positions, s->task.classes, sampler->codec.n);
}

static void put(struct tutti__sampler *sampler, tutti__utf8_stream *utf8, const char *bytes,
                size_t n, bool last)
{
    const size_t left = sampler->room - sampler->n;

    if (tutti__utf8_room(n) < left)
        sampler->n += tutti__utf8_put(utf8, bytes, n, last, sampler->text + sampler->n);
    sampler->text[sampler->n] = '\0';
}

static tutti_status write_text(struct tutti__sampler *sampler, const tutti__session *s)
{
    const tutti__sampling how = {
        .temperature = 0.8, .top_k = 200, .top_p = 1, .seed = (uint64_t)s->config->seed};
    const int64_t first = tutti__codec_first(&sampler->codec);
    tutti__utf8_stream utf8 = {.n = 0};

    TUTTI_TRY(tutti__generation_begin(&sampler->generation, &first, 1));
    for (int64_t i = 0; i < s->config->sample_tokens; i++) {
        int64_t token;
        const char *bytes;
        size_t n;

        TUTTI_TRY(tutti__generation_next(&sampler->generation, &how, 0, &token));
        if (token == sampler->codec.end)
            break;
        bytes = tutti__codec_decode(&sampler->codec, token, &n);
        put(sampler, &utf8, bytes, n, false);
    }
    put(sampler, &utf8, "", 0, true);
    return TUTTI_OK;
}

void tutti__run_sample(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    struct tutti__sampler *sampler = run->sampler;
    tutti_status status = TUTTI_OK;

    if (!s->task.kind->is_text || s->config->sample_tokens == 0 || !tutti__run_has_folder(run))
        return;
    if (!sampler) {
        sampler = run->sampler = tutti__alloc(sizeof *sampler);
        if (!sampler)
            return;
        status = open_sampler(sampler, s);
    }
    if (sampler->off)
        return;
    sampler->n = 0;
    if (status == TUTTI_OK)
        status = write_text(sampler, s);
    if (status == TUTTI_OK)
        return;
    sampler->off = true;
    if (sampler->text)
        sampler->text[0] = '\0';
    tutti_log(sampler->codec.n > 0 ? TUTTI_LOG_WARN : TUTTI_LOG_INFO, "train",
              "no sample texts: %s", tutti_last_error());
}

const char *tutti__run_sample_text(const tutti__train_run *run)
{
    return run->sampler && run->sampler->text ? run->sampler->text : "";
}

void tutti__run_sample_close(tutti__train_run *run)
{
    struct tutti__sampler *sampler = run->sampler;

    run->sampler = NULL;
    if (!sampler)
        return;
    tutti__generation_close(&sampler->generation);
    tutti__codec_close(&sampler->codec);
    free(sampler->text);
    free(sampler);
}
