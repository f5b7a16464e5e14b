/* text.c -- figures of language models.   SPDX-License-Identifier: MIT
 *
 * A token takes 6 FLOPs of a parameter in a product: a multiplication and an addition in forward, and twice that in backward.
 * Attention takes 6 layers * width * context more: half of 12, because a token looks only at those before it. */
#include "train/session/text.h"

#include "data/dataset.h"
#include "device/cpu/peak.h"
#include "nn/nn.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>

/* Whether a parameter is a table that is only looked up: of an embedding that is not the head as well. */
static bool is_table(const tutti__session *s, const tutti__state *state, bool has_head)
{
    const tutti_shape shape = state->tensor->shape;

    return tutti__is_embedding(state->owner) && !state->next_tied &&
           (shape.d[0] != (int64_t)s->task.classes || has_head);
}

/* Whether a layer beside the embeddings gives the logits. */
static bool has_own_head(const tutti__session *s, const struct tutti_root *root)
{
    for (size_t i = 0; i < root->parameters.n; i++) {
        const tutti__state *state = root->parameters.p[i];

        if (!tutti__is_embedding(state->owner) && state->tensor->shape.n == 2 &&
            state->tensor->shape.d[0] == (int64_t)s->task.classes)
            return true;
    }
    return false;
}

static double token_flops(const tutti__session *s)
{
    const struct tutti_root *root = s->module->root;
    const bool has_head = has_own_head(s, root);
    double n = 0;

    for (size_t i = 0; i < root->parameters.n; i++)
        if (!is_table(s, root->parameters.p[i], has_head))
            n += (double)tutti_shape_count(root->parameters.p[i]->tensor->shape);
    return 6 * n;
}

void tutti__text_figures_set(tutti__session *s)
{
    tutti__cpu_peak peak;

    s->text = (tutti__text_figures){.tokens = 0};
    if (!s->task.kind->is_text)
        return;
    s->text.tokens = (double)s->task.positions;
    s->text.token_flops = token_flops(s);
    if (tutti__on_host(s->cx->stream) && strcmp(s->config->amp, "off") == 0 &&
        tutti__cpu_peak_measure(&peak) == TUTTI_OK)
        s->text.peak_flops = 1e9 * peak.gflops * s->cx->threads;
}

double tutti__text_rate(const tutti__text_figures *f, double samples_per_s)
{
    return f->tokens > 0 ? f->tokens * samples_per_s : NAN;
}

double tutti__text_mfu(const tutti__text_figures *f, int ranks, double tokens_per_s)
{
    return f->peak_flops > 0 ? tokens_per_s * f->token_flops / (f->peak_flops * ranks) : NAN;
}
