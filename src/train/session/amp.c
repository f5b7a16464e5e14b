/* amp.c -- mixed precision in a run.   SPDX-License-Identifier: MIT
 *
 * bf16 has F32's range and needs no scale. In fp16 gradients below 6e-8 vanish, so the loss is multiplied by the scaler's
 * scale, and a step whose gradients overflow is skipped on all ranks: it counts for the data and the schedule, but parameters
 * and optimizer state do not change. */
#include "train/session/amp.h"

#include "train/session/digests.h"

#include <math.h>
#include <string.h>

/* 2^30 below the first scale: if even this overflows, the gradients are infinite without scaling. */
#define SMALLEST_SCALE 0x1p-14f

tutti_dtype tutti__amp_of(const tutti__train_config *c)
{
    return strcmp(c->amp, "bf16") == 0   ? TUTTI_BF16
           : strcmp(c->amp, "fp16") == 0 ? TUTTI_F16
                                         : TUTTI_F32;
}

tutti_dtype tutti__amp_dtype(const tutti__session *s)
{
    return tutti__amp_of(s->config);
}

tutti_status tutti__amp_check(tutti_ctx *cx, const tutti__train_config *c)
{
    const tutti_dtype dtype = tutti__amp_of(c);

    if (dtype == TUTTI_F32 || tutti_ctx_half_kernels_name(cx, dtype))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "amp %s: %s", c->amp, tutti_last_error());
}

tutti_status tutti__amp_open(tutti__session *s)
{
    if (tutti__amp_dtype(s) != TUTTI_F16)
        return TUTTI_OK;
    if (s->shards > 0) /* all ranks have the same gradients */
        return tutti_scaler_new(&s->scaler, NULL);
    return tutti_scaler_new(&s->scaler, &(tutti_scaler_opts){.peers = tutti_group_peers(s->group)});
}

/* ---- A step --------------------------------------------------------------------------------------------- */

static const char *not_finite(float value)
{
    return isnan(value) ? "NaN" : "infinite";
}

static tutti_status scaled_update(tutti__session *s, uint64_t *skipped_steps)
{
    const float scale = tutti_scaler_get_scale(s->scaler);
    bool stepped;

    TUTTI_TRY(tutti_scaler_step(s->scaler, s->optim, &stepped));
    TUTTI_TRY(tutti_scaler_update(s->scaler));
    if (stepped)
        return TUTTI_OK;
    (*skipped_steps)++;
    if (scale > SMALLEST_SCALE || s->config->lr_find)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "the gradient is infinite or NaN in step %llu, even with a loss scale of %g "
                       "after %llu skipped steps: training has diverged; lower the learning rate, "
                       "set clip_grad_norm, or use amp bf16",
                       (unsigned long long)s->step.number, (double)scale,
                       (unsigned long long)*skipped_steps);
}

tutti_status tutti__amp_update(tutti__session *s, float clip, uint64_t *skipped_steps,
                               float *norm_p)
{
    if (s->scaler)
        TUTTI_TRY(tutti_scaler_unscale(s->scaler, s->optim));
    tutti__digests_gradients(s, "reduced");
    if (tutti__session_hooks(s))
        TUTTI_TRY(tutti__session_hook(s, tutti__session_hooks(s)->on_gradients));
    if (norm_p) {
        TUTTI_TRY(tutti_clip_grad_norm(s->module, clip, norm_p));
        if (!isfinite(*norm_p) && !s->scaler && !s->config->lr_find)
            return tutti__fail(
                TUTTI_ERR_STATE,
                "the gradient's norm is %s in step %llu: training has diverged; lower the "
                "learning rate or set clip_grad_norm",
                not_finite(*norm_p), (unsigned long long)s->step.number);
    }
    if (s->config->clip_grad_value > 0) /* after the norm, which tells what the gradients were */
        TUTTI_TRY(tutti_clip_grad_value(s->module, (float)s->config->clip_grad_value));
    if (clip > 0 || s->config->clip_grad_value > 0)
        tutti__digests_gradients(s, "clipped");
    return s->scaler ? scaled_update(s, skipped_steps) : tutti_optim_step(s->optim);
}
