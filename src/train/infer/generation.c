/* generation.c -- a language model that continues a text.   SPDX-License-Identifier: MIT */
#include "train/infer/generation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tutti_status tutti__generation_open(tutti__generation *g, tutti_ctx *cx, tutti_model *model,
                                    bool cached, int64_t context, size_t vocab, size_t limit)
{
    *g = (tutti__generation){.cx = cx,
                             .model = model,
                             .cached = cached,
                             .context = context,
                             .vocab = vocab,
                             .limit = limit > 0 && limit < vocab ? limit : vocab};
    tutti__kv_cache_open(&g->cache, context);
    g->logits = tutti__alloc(vocab * sizeof *g->logits);
    g->choices = tutti__choices_new(vocab);
    return g->logits && g->choices ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__generation_close(tutti__generation *g)
{
    tutti__kv_cache_close(&g->cache);
    free(g->tokens);
    free(g->logits);
    free(g->choices);
    *g = (tutti__generation){.cx = NULL};
}

static tutti_status append(tutti__generation *g, const int64_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= g->vocab)
            return tutti__fail(TUTTI_ERR_ARG,
                               "token %lld of the text: the model knows %zu, from 0 on; use the "
                               "tokenizer that it was trained with",
                               (long long)tokens[i], g->vocab);
    if (g->n + n > g->room) {
        const size_t room = 2 * g->room > g->n + n ? 2 * g->room : g->n + n;
        int64_t *more = realloc(g->tokens, room * sizeof *more);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu tokens", room);
        g->tokens = more;
        g->room = room;
    }
    memcpy(g->tokens + g->n, tokens, n * sizeof *tokens);
    g->n += n;
    return TUTTI_OK;
}

tutti_status tutti__generation_begin(tutti__generation *g, const int64_t *tokens, size_t n)
{
    g->n = g->begin = 0;
    g->cache.length = 0;
    if (n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "a text without tokens; expected at least one");
    return append(g, tokens, n);
}

size_t tutti__generation_window(size_t n, int64_t context)
{
    const size_t all = (size_t)context, step = (all + 1) / 2;

    return n <= all ? 0 : (n - all + step - 1) / step * step;
}

void tutti__generation_rest(tutti__generation *g)
{
    tutti__kv_cache_close(&g->cache);
    tutti__kv_cache_open(&g->cache, g->context);
}

int64_t tutti__generation_first(const tutti_tokenizer *tokenizer)
{
    const int64_t end = tutti_tokenizer_end_of_text(tokenizer),
                  n = tutti_tokenizer_vocab(tokenizer);
    size_t bytes;

    if (end > 0)
        return end;
    for (int64_t i = 0; i < n && i < 256; i++)
        if (*tutti_tokenizer_bytes(tokenizer, i, &bytes) == '\n' && bytes == 1)
            return i;
    return 0;
}

/* Of the output for t tokens, which only a pipeline's last rank has. */
static tutti_status read_logits(tutti__generation *g, tutti_tensor *y, int64_t t)
{
    tutti_shape shape;

    if (!y)
        return tutti__fail(TUTTI_ERR_ARG, "the model's forward function returned NULL");
    TUTTI_TRY(tutti_tensor_status(y));
    shape = tutti_tensor_shape(y);
    if (shape.n != 3 || shape.d[2] != (int64_t)g->vocab || shape.d[1] < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the model's output for %lld tokens is %s; expected logits "
                           "[1,%lld,%zu] of a language model",
                           (long long)t, tutti__shape_text(shape), (long long)t, g->vocab);
    if (shape.d[1] > 1)
        y = tutti_narrow(y, 1, -1, 1);
    return tutti_tensor_read(tutti_cast(y, TUTTI_F32), g->logits);
}

/* The last stage's logits, on all ranks: each draws the same token. */
static tutti_status compute_in_stages(tutti__generation *g, tutti_array x, int64_t t)
{
    tutti_tensor *y;

    TUTTI_TRY(tutti_pipeline_forward(g->pipeline, x, &y));
    if (tutti_pipeline_is_last(g->pipeline))
        TUTTI_TRY(read_logits(g, y, t));
    return tutti_broadcast(g->stages, TUTTI_BUF(g->logits, g->vocab, TUTTI_F32),
                           tutti_group_size(g->stages) - 1, NULL);
}

/* The logits of the last of t tokens, in a step. */
static tutti_status compute(tutti__generation *g, const int64_t *tokens, int64_t t)
{
    const tutti_array x = {(void *)(uintptr_t)tokens, TUTTI_SHAPE(1, t), TUTTI_I64};

    return g->pipeline ? compute_in_stages(g, x, t)
                       : read_logits(g, tutti_model_forward(g->model, tutti_input(g->cx, x)), t);
}

/* Reads what the window has and the cache does not. */
static tutti_status read_on(tutti__generation *g)
{
    const size_t begin = tutti__generation_window(g->n, g->context);
    size_t from;
    tutti_status status;

    if (begin != g->begin || !g->cached)
        g->cache.length = 0;
    g->begin = begin;
    from = begin + (size_t)g->cache.length;
    tutti_step_begin(g->cx, &(tutti_step_opts){.autocast = g->autocast, .eval = true});
    g->cx->kv_cache = g->cached ? &g->cache : NULL;
    g->cache.next = 0;
    status = compute(g, g->tokens + from, (int64_t)(g->n - from));
    g->cx->kv_cache = NULL;
    tutti_step_end(g->cx);
    if (status == TUTTI_OK && g->cached)
        tutti__kv_cache_advance(&g->cache, (int64_t)(g->n - from));
    return status;
}

tutti_status tutti__generation_next(tutti__generation *g, const tutti__sampling *s, uint64_t sample,
                                    int64_t *token_p)
{
    TUTTI_TRY(read_on(g));
    for (size_t i = 0; i < g->limit; i++)
        if (isnan(g->logits[i]))
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "the model's logits after %zu token%s are NaN (the first of token "
                               "%zu): look for very large numbers in the weights, and for keys "
                               "that are not those of its training (rope_theta, rope_scaling)",
                               g->n, tutti__s(g->n), i);
    *token_p = (int64_t)tutti__sample_token(s, g->logits, g->limit, sample, g->n, g->choices);
    return append(g, token_p, 1);
}
