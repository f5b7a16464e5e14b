/* amp.c -- mixed precision in a run.   SPDX-License-Identifier: MIT
 *
 * bf16 has F32's range and needs no scale. In fp16 gradients below 6e-8 vanish, so the loss is multiplied by the scaler's
 * scale, and a step whose gradients overflow is skipped on all ranks: it counts for the data and the schedule, but parameters
 * and optimizer state do not change. */
#include "train/session/amp.h"

#include "checkpoint/files.h"
#include "train/run/run.h"

#include <math.h>
#include <string.h>

/* 2^30 below the first scale: if even this overflows, the gradients are infinite without scaling. */
#define SMALLEST_SCALE 0x1p-14f

tutti_dtype tutti__amp_dtype(const tutti__run *run)
{
    return strcmp(run->config->amp, "bf16") == 0   ? TUTTI_BF16
           : strcmp(run->config->amp, "fp16") == 0 ? TUTTI_F16
                                                   : TUTTI_F32;
}

tutti_status tutti__amp_check(const tutti__run *run)
{
    const tutti_dtype dtype = tutti__amp_dtype(run);

    if (dtype == TUTTI_F32 || tutti_ctx_half_kernels_name(run->cx, dtype))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "amp %s: %s", run->config->amp, tutti_last_error());
}

tutti_status tutti__amp_open(tutti__run *run)
{
    if (tutti__amp_dtype(run) != TUTTI_F16)
        return TUTTI_OK;
    if (run->shards > 0) /* all ranks have the same gradients */
        return tutti_scaler_new(&run->scaler, NULL);
    return tutti_scaler_new(&run->scaler,
                            &(tutti_scaler_opts){.peers = tutti_group_peers(run->group)});
}

/* ---- A step --------------------------------------------------------------------------------------------- */

static const char *not_finite(float value)
{
    return isnan(value) ? "NaN" : "infinite";
}

static tutti_status scaled_update(tutti__run *run)
{
    const float scale = tutti_scaler_get_scale(run->scaler);
    bool stepped;

    TUTTI_TRY(tutti_scaler_step(run->scaler, run->optim, &stepped));
    TUTTI_TRY(tutti_scaler_update(run->scaler));
    if (stepped)
        return TUTTI_OK;
    run->at.skipped_steps++;
    if (scale > SMALLEST_SCALE)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "the gradient is infinite or NaN in step %llu, even with a loss scale of %g "
                       "after %llu skipped steps: training has diverged; lower the learning rate, "
                       "set clip_grad_norm, or use amp bf16",
                       (unsigned long long)run->at.step + 1, (double)scale,
                       (unsigned long long)run->at.skipped_steps);
}

tutti_status tutti__amp_update(tutti__run *run, float clip, float *norm_p)
{
    if (run->scaler)
        TUTTI_TRY(tutti_scaler_unscale(run->scaler, run->optim));
    if (norm_p) {
        TUTTI_TRY(tutti_clip_grad_norm(run->module, clip, norm_p));
        if (!isfinite(*norm_p) && !run->scaler)
            return tutti__fail(
                TUTTI_ERR_STATE,
                "the gradient's norm is %s in step %llu: training has diverged; lower the "
                "learning rate or set clip_grad_norm",
                not_finite(*norm_p), (unsigned long long)run->at.step + 1);
    }
    return run->scaler ? scaled_update(run) : tutti_optim_step(run->optim);
}

/* ---- Checkpoints ---------------------------------------------------------------------------------------- */

json_t *tutti__amp_json(const tutti__run *run)
{
    json_t *o = tutti__scaler_json(run->scaler);

    if (json_is_object(o) &&
        json_object_set_new(o, "skipped_steps", json_integer((json_int_t)run->at.skipped_steps)) !=
            0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

tutti_status tutti__amp_restore(tutti__run *run, const json_t *state)
{
    const json_t *o = json_object_get(state, "scaler");
    const tutti_scaler_state s = tutti__scaler_of_json(o);

    if (!run->scaler)
        return TUTTI_OK;
    if (tutti_scaler_state_set(run->scaler, &s) != TUTTI_OK)
        return tutti__fail(TUTTI_ERR_FORMAT, "the checkpoint's state.json: %s", tutti_last_error());
    run->at.skipped_steps = (uint64_t)json_integer_value(json_object_get(o, "skipped_steps"));
    return TUTTI_OK;
}
