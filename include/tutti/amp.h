/* amp.h -- loss scaling: keeps gradients of 16-bit arithmetic from vanishing, and skips steps with infinities.
 * SPDX-License-Identifier: MIT
 *
 * The arithmetic and the constants are torch.amp.GradScaler's. Each step:
 *
 *     tutti_backward(tutti_scaler_scale(scaler, loss));
 *     tutti_scaler_unscale(scaler, optim);      only if gradients are used in between, as by clipping
 *     tutti_scaler_step(scaler, optim, NULL);   skips the step if a gradient is infinite or NaN
 *     tutti_scaler_update(scaler);              halves the scale after such a step, doubles it after 2000 without one
 *
 * With peers, ranks decide together: if one has an infinity, all skip the step.
 * Threads: the thread of the optimizers' context. */
#ifndef TUTTI_AMP_H
#define TUTTI_AMP_H

#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_scaler tutti_scaler;

/* Zero means default. */
typedef struct tutti_scaler_opts {
    float init_scale;     /* 65536 */
    float growth_factor;  /* 2; more than 1 */
    float backoff_factor; /* 0.5; less than 1 */
    int growth_interval;  /* 2000 updates without an infinity */
    bool disabled;        /* no scaling: the loss is unchanged, steps are plain */
    tutti_peers peers;    /* tutti_group_peers(group); {0}: alone */
    uint64_t reserved[4]; /* zero */
} tutti_scaler_opts;

/* What a checkpoint keeps (state_dict). */
typedef struct tutti_scaler_state {
    float scale, growth_factor, backoff_factor;
    int growth_interval, growth_tracker;
    uint64_t reserved[4]; /* zero */
} tutti_scaler_state;

/* opts NULL: defaults. Errors: ARG, naming an option that is out of range. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_new(tutti_scaler **scaler_p,
                                                        const tutti_scaler_opts *opts);
TUTTI_API void tutti_scaler_free(tutti_scaler *scaler);

/* loss * scale */
TUTTI_API tutti_tensor *tutti_scaler_scale(tutti_scaler *scaler, tutti_tensor *loss);
/* Divides the gradients of optim's module by the scale and looks for infinities and NaN in them. Once per step, after
 * its last backward. Collective with peers. STATE: called twice, or after tutti_scaler_step, since the last update. MISMATCH:
 * the ranks' scales differ, for example because only some ranks loaded a checkpoint. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_unscale(tutti_scaler *scaler,
                                                            tutti_optim *optim);
/* Unscales, unless already done, and steps, unless a gradient of any rank is infinite or NaN. *stepped_p (may be NULL):
 * whether it stepped. STATE: called twice since the last update. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_step(tutti_scaler *scaler, tutti_optim *optim,
                                                         bool *stepped_p);
/* Sets the next step's scale. STATE if no gradients were checked since the last update. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_update(tutti_scaler *scaler);

TUTTI_API float tutti_scaler_get_scale(const tutti_scaler *scaler); /* 1 if disabled */
/* The same on every rank, with peers. ARG as in tutti_scaler_new. */
TUTTI_API tutti_scaler_state tutti_scaler_state_get(const tutti_scaler *scaler);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_state_set(tutti_scaler *scaler,
                                                              const tutti_scaler_state *state);

#ifdef __cplusplus
}
#endif
#endif
