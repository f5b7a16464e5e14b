/* text.c -- figures of language models.   SPDX-License-Identifier: MIT
 *
 * A token takes 6 FLOPs of a parameter in a product: a multiplication and an addition in forward, and twice that in backward, for the
 * gradients of the parameter and of the input. A frozen one takes 4, and those before the first that is trained, to which no gradient
 * goes back, 2. Attention takes 6 layers * width * context more: half of 12, because a token looks only at those before it; a third of that
 * in forward. */
#include "train/session/text.h"

#include "data/dataset.h"
#include "ddp/pieces.h"
#include "device/cpu/peak.h"
#include "nn/nn.h"

#include <math.h>
#include <string.h>

/* Whether a parameter is a table that is only looked up: of an embedding that is not the head as well. */
static bool is_table(size_t classes, const tutti__state *state, bool has_head)
{
    const tutti_shape shape = tutti__whole_shape(state->tensor);

    return tutti__is_embedding(state->owner) && !state->next_tied &&
           (shape.d[0] != (int64_t)classes || has_head);
}

/* Whether a layer beside the embeddings gives the logits. */
static bool has_own_head(size_t classes, const struct tutti_root *root)
{
    for (size_t i = 0; i < root->parameters.n; i++) {
        const tutti__state *state = root->parameters.p[i];

        if (!tutti__is_embedding(state->owner) && state->tensor->shape.n == 2 &&
            tutti__whole_shape(state->tensor).d[0] == (int64_t)classes)
            return true;
    }
    return false;
}

/* The width of a layer's queries, if a parameter makes them: the layers have Hugging Face's names. */
static double queries_of(const tutti_tensor *t)
{
    const size_t n = strlen(t->name);

    if (n > 13 && strcmp(t->name + n - 13, "c_attn.weight") == 0)
        return (double)t->shape.d[0];
    return n > 13 && strcmp(t->name + n - 13, "q_proj.weight") == 0
               ? (double)tutti__whole_shape(t).d[0]
               : 0;
}

static bool is_trained(const tutti__state *state)
{
    return state->parameter.requires_grad ||
           (state->adapter && state->adapter->a->parameter->requires_grad);
}

/* The first parameter that is trained, or has an adapter that is; they are in the order in which the model reads them. */
static size_t first_trained(const struct tutti_root *root)
{
    size_t i = 0;

    while (i < root->parameters.n && !is_trained(root->parameters.p[i]))
        i++;
    return i;
}

static double token_flops(const tutti__train_task *task, const struct tutti_root *root)
{
    const size_t classes = task->classes, first = first_trained(root);
    const bool has_head = has_own_head(classes, root);
    double flops = 0, attention = 0;

    for (size_t i = 0; i < root->parameters.n; i++) {
        const tutti__state *state = root->parameters.p[i];
        const bool is_last = state->next_tied; /* the head, too, which the model reads at its end */
        const bool goes_back = first < root->parameters.n && (i > first || is_last);
        const double each = 2 + 2 * state->parameter.requires_grad + 2 * goes_back;

        attention += queries_of(state->tensor) * (goes_back || i == first ? 6 : 2);
        if (!is_table(classes, state, has_head))
            flops += each * (double)tutti__whole_count(state);
    }
    return flops + attention * (double)task->positions;
}

void tutti__text_figures_set(tutti__text_figures *f, const tutti__train_task *task,
                             const tutti_module *module, bool f32)
{
    const tutti_ctx *cx = module->cx;
    tutti__cpu_peak peak;

    *f = (tutti__text_figures){.tokens = 0};
    if (!task->kind->is_language_modeling)
        return;
    f->tokens = (double)task->positions;
    f->token_flops = token_flops(task, module->root);
    if (f32 && tutti__on_host(cx->stream) && tutti__cpu_peak_measure(&peak) == TUTTI_OK)
        f->peak_flops = 1e9 * peak.gflops * cx->threads;
}

double tutti__text_rate(const tutti__text_figures *f, double samples_per_s)
{
    return f->tokens > 0 ? f->tokens * samples_per_s : NAN;
}

double tutti__text_mfu(const tutti__text_figures *f, int ranks, double tokens_per_s)
{
    return f->peak_flops > 0 ? tokens_per_s * f->token_flops / (f->peak_flops * ranks) : NAN;
}
