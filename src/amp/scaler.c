/* scaler.c -- the loss scale, the same on all ranks.   SPDX-License-Identifier: MIT
 *
 * PyTorch's scaler agrees across ranks only because an infinity reaches all of them in the reduced gradients; here the ranks
 * exchange what they found, so that they also agree with sharded gradients and uneven inputs. */
#include "optim/optim.h"
#include <tutti/amp.h>

#include <math.h>
#include <stdlib.h>

typedef enum stage { READY, UNSCALED, STEPPED } stage;

/* What was done for an optimizer since the last update. */
typedef struct progress {
    const tutti_optim *optim;
    stage stage;
    bool found_inf;
} progress;

struct tutti_scaler {
    tutti_scaler_state state;
    bool disabled;
    tutti_peers peers;
    progress *all;
    size_t n;
};

/* ---- Making one ------------------------------------------------------------------------------------- */

static tutti_status check(const tutti_scaler_state *s)
{
    if (!(s->scale > 0) || !isfinite(s->scale))
        return tutti__fail(TUTTI_ERR_ARG, "scaler: the scale is %g, expected a number > 0",
                           (double)s->scale);
    if (!(s->growth_factor > 1) || !isfinite(s->growth_factor))
        return tutti__fail(TUTTI_ERR_ARG, "scaler: growth_factor is %g, expected more than 1",
                           (double)s->growth_factor);
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return tutti__fail(TUTTI_ERR_ARG,
                           "scaler: backoff_factor is %g, expected more than 0 and less than 1",
                           (double)s->backoff_factor);
    if (s->growth_interval < 1 || s->growth_tracker < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "scaler: growth_interval is %d and growth_tracker %d, expected at least "
                           "1 and 0",
                           s->growth_interval, s->growth_tracker);
    return TUTTI_OK;
}

tutti_status tutti_scaler_new(tutti_scaler **scaler_p, const tutti_scaler_opts *opts)
{
    const tutti_scaler_opts none = {0}, *o = opts ? opts : &none;
    const tutti_scaler_state state = {
        .scale = (float)tutti__or((double)o->init_scale, 65536),
        .growth_factor = (float)tutti__or((double)o->growth_factor, 2),
        .backoff_factor = (float)tutti__or((double)o->backoff_factor, 0.5),
        .growth_interval = o->growth_interval == 0 ? 2000 : o->growth_interval};

    *scaler_p = NULL;
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_scaler_opts, o));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_peers, &o->peers));
    TUTTI_TRY(check(&state));
    *scaler_p = tutti__alloc(sizeof **scaler_p);
    if (!*scaler_p)
        return TUTTI_ERR_MEMORY;
    **scaler_p = (tutti_scaler){.state = state, .disabled = o->disabled, .peers = o->peers};
    return TUTTI_OK;
}

void tutti_scaler_free(tutti_scaler *scaler)
{
    if (scaler)
        free(scaler->all);
    free(scaler);
}

/* ---- A step ----------------------------------------------------------------------------------------- */

tutti_tensor *tutti_scaler_scale(tutti_scaler *scaler, tutti_tensor *loss)
{
    if (TUTTI__NOT_NULL(scaler) != TUTTI_OK)
        return NULL;
    return scaler->disabled ? loss : tutti_scale(loss, scaler->state.scale);
}

/* NULL: no memory, message set. */
static progress *progress_of(tutti_scaler *scaler, const tutti_optim *optim)
{
    progress *all;

    for (size_t i = 0; i < scaler->n; i++)
        if (scaler->all[i].optim == optim)
            return &scaler->all[i];
    all = realloc(scaler->all, (scaler->n + 1) * sizeof *all);
    if (!all) {
        tutti__fail(TUTTI_ERR_MEMORY, "scaler: no memory for %zu optimizers", scaler->n + 1);
        return NULL;
    }
    scaler->all = all;
    all[scaler->n] = (progress){.optim = optim};
    return &all[scaler->n++];
}

/* The ranks exchange whether they found any, and their scales, which must equal rank 0's. */
static tutti_status agree(const tutti_peers *peers, float scale, bool *found_p)
{
    const int size = peers->size;
    float mine[2] = {*found_p ? 1 : 0, scale}, *all;
    tutti_status status;

    if (size <= 1)
        return TUTTI_OK;
    all = tutti__alloc((size_t)size * sizeof mine);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = peers->all_gather(peers->self, NULL, mine, 2, all);
    for (int r = 0; r < size && status == TUTTI_OK; r++) {
        *found_p |= all[2 * r] != 0;
        if (all[2 * r + 1] != all[1])
            status = tutti__fail(
                TUTTI_ERR_MISMATCH,
                "scaler: the scale is %g on rank 0 but %g on rank %d; load the same state on all "
                "ranks",
                (double)all[1], (double)all[2 * r + 1], r);
    }
    free(all);
    return status;
}

tutti_status tutti_scaler_unscale(tutti_scaler *scaler, tutti_optim *optim)
{
    const tutti__flat_span *spans;
    tutti_stream *stream;
    float factor;
    size_t n;
    bool finite;
    progress *p;

    TUTTI_TRY(TUTTI__NOT_NULL(scaler));
    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    stream = optim->cx->stream;
    factor = (float)(1 / (double)scaler->state.scale);
    if (scaler->disabled)
        return TUTTI_OK;
    TUTTI_TRY(tutti_module_status(optim->module));
    p = progress_of(scaler, optim);
    if (!p)
        return TUTTI_ERR_MEMORY;
    if (p->stage != READY)
        return tutti__fail(TUTTI_ERR_STATE, "%s",
                           p->stage == UNSCALED
                               ? "tutti_scaler_unscale was already called for this optimizer since "
                                 "the last tutti_scaler_update"
                               : "tutti_scaler_unscale is called after tutti_scaler_step; unscale "
                                 "first, or call tutti_scaler_update in between");
    TUTTI_TRY(tutti__gradient_spans(optim->module, &spans, &n));
    TUTTI_TRY(stream->ops->flat->unscale(stream, spans, n, factor, &finite));
    p->found_inf |= !finite;
    TUTTI_TRY(agree(&scaler->peers, scaler->state.scale, &p->found_inf));
    for (size_t i = 0; i < TUTTI__COUNT_OF(optim->module->root->norm_peers); i++)
        TUTTI_TRY(agree(&optim->module->root->norm_peers[i], scaler->state.scale, &p->found_inf));
    p->stage = UNSCALED;
    return TUTTI_OK;
}

tutti_status tutti_scaler_step(tutti_scaler *scaler, tutti_optim *optim, bool *stepped_p)
{
    bool stepped = true;
    progress *p;

    TUTTI_TRY(TUTTI__NOT_NULL(scaler));
    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    if (!scaler->disabled) {
        p = progress_of(scaler, optim);
        if (!p)
            return TUTTI_ERR_MEMORY;
        if (p->stage == STEPPED)
            return tutti__fail(TUTTI_ERR_STATE,
                               "tutti_scaler_step was already called for this optimizer since the "
                               "last tutti_scaler_update");
        if (p->stage == READY)
            TUTTI_TRY(tutti_scaler_unscale(scaler, optim));
        p->stage = STEPPED;
        stepped = !p->found_inf;
    }
    if (stepped_p)
        *stepped_p = stepped;
    return stepped ? tutti_optim_step(optim) : TUTTI_OK;
}

tutti_status tutti_scaler_update(tutti_scaler *scaler)
{
    tutti_scaler_state *s;
    bool looked = false, found_inf = false;
    float grown;

    TUTTI_TRY(TUTTI__NOT_NULL(scaler));
    s = &scaler->state;
    grown = s->scale * s->growth_factor;
    if (scaler->disabled)
        return TUTTI_OK;
    for (size_t i = 0; i < scaler->n; i++) {
        looked |= scaler->all[i].stage != READY;
        found_inf |= scaler->all[i].found_inf;
    }
    if (!looked)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "tutti_scaler_update: no gradients were looked at since the last update; "
            "call tutti_scaler_step first");
    if (found_inf) {
        s->scale *= s->backoff_factor;
        s->growth_tracker = 0;
    } else if (++s->growth_tracker == s->growth_interval) {
        s->scale = isfinite(grown) ? grown : s->scale;
        s->growth_tracker = 0;
    }
    scaler->n = 0;
    return TUTTI_OK;
}

/* ---- State ------------------------------------------------------------------------------------------ */

float tutti_scaler_get_scale(const tutti_scaler *scaler)
{
    return !scaler || scaler->disabled ? 1 : scaler->state.scale;
}

tutti_scaler_state tutti_scaler_state_get(const tutti_scaler *scaler)
{
    return scaler ? scaler->state : (tutti_scaler_state){0};
}

tutti_status tutti_scaler_state_set(tutti_scaler *scaler, const tutti_scaler_state *state)
{
    TUTTI_TRY(TUTTI__NOT_NULL(scaler));
    TUTTI_TRY(TUTTI__NOT_NULL(state));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_scaler_state, state));
    TUTTI_TRY(check(state));
    scaler->state = *state;
    return TUTTI_OK;
}
