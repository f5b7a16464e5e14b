/* amp.h -- loss scaling: gradients of 16-bit arithmetic kept from vanishing, steps with infinities left out.
 * SPDX-License-Identifier: MIT
 *
 * The arithmetic and the constants are torch.amp.GradScaler's. Each step:
 *
 *     tutti_backward(tutti_scaler_scale(scaler, loss));
 *     tutti_scaler_unscale(scaler, optim);      only where gradients are looked at in between, as clipping does
 *     tutti_scaler_step(scaler, optim, NULL);   leaves the step out if a gradient is infinite or NaN
 *     tutti_scaler_update(scaler);              halves the scale after such a step, doubles it after 2000 without one
 *
 * With peers, ranks decide together: an infinity on one of them leaves the step out on all.
 * Threads: the optimizers' modules' context's. */
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
    bool disabled;        /* every call passes through: loss as it is, plain steps */
    tutti_peers peers;    /* tutti_group_peers(group); {0}: alone */
    uint64_t reserved[4]; /* zero */
} tutti_scaler_opts;

/* What a checkpoint keeps (state_dict). */
typedef struct tutti_scaler_state {
    float scale, growth_factor, backoff_factor;
    int growth_interval, growth_tracker;
    uint64_t reserved[4]; /* zero */
} tutti_scaler_state;

/* opts NULL: defaults. ARG naming an option that makes no sense. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_new(tutti_scaler **scaler_p,
                                                        const tutti_scaler_opts *opts);
TUTTI_API void tutti_scaler_free(tutti_scaler *scaler);

/* loss * scale */
TUTTI_API tutti_tensor *tutti_scaler_scale(tutti_scaler *scaler, tutti_tensor *loss);
/* Divides the gradients of optim's module by the scale and looks for infinities and NaN in them. Once a step, after
 * its last backward. Collective with peers. STATE: twice, or after tutti_scaler_step, since the last update. MISMATCH:
 * the ranks' scales differ, which a checkpoint loaded on some of them does. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_unscale(tutti_scaler *scaler,
                                                            tutti_optim *optim);
/* Unscales, unless done, and steps, unless a gradient of any rank is infinite or NaN. *stepped_p (may be NULL): whether.
 * STATE: twice since the last update. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_step(tutti_scaler *scaler, tutti_optim *optim,
                                                         bool *stepped_p);
/* The next step's scale. STATE if no gradients were looked at since the last update. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_update(tutti_scaler *scaler);

TUTTI_API float tutti_scaler_get_scale(const tutti_scaler *scaler); /* 1 if disabled */
/* On every rank the same, with peers. ARG as tutti_scaler_new. */
TUTTI_API tutti_scaler_state tutti_scaler_state_get(const tutti_scaler *scaler);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_scaler_state_set(tutti_scaler *scaler,
                                                              const tutti_scaler_state *state);

#ifdef __cplusplus
}
#endif
#endif
