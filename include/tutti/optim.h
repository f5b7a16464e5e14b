/* optim.h -- optimizers: one fused pass over flat memory; learning-rate schedules; gradient clipping.
 * SPDX-License-Identifier: MIT
 *
 * The update rules are PyTorch's (torch.optim.SGD, Adam, AdamW), including the order of operations.
 * Threads: the thread of the module's context. */
#ifndef TUTTI_OPTIM_H
#define TUTTI_OPTIM_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_optim tutti_optim;

typedef struct tutti_sgd_opts {
    float lr;                                /* 0: 1e-3; TUTTI_ZERO: no change */
    float momentum, dampening, weight_decay; /* 0 */
    bool nesterov;                           /* needs momentum > 0 and dampening 0 */
    uint64_t reserved[4];                    /* zero */
} tutti_sgd_opts;

typedef struct tutti_adam_opts {
    float lr;           /* 0: 1e-3; TUTTI_ZERO: no change */
    float beta1, beta2; /* 0: 0.9, 0.999; TUTTI_ZERO: no memory of earlier gradients */
    /* 0: 1e-8; TUTTI_ZERO: none (an element that never had a gradient keeps its value) */
    float eps;
    float weight_decay;   /* Adam: added to the gradient. AdamW: decoupled, lr * weight_decay * p */
    uint64_t reserved[4]; /* zero */
} tutti_adam_opts;

/* opts NULL: defaults. Borrows the module until tutti_optim_free; state is allocated at the first step. Errors: ARG naming the
 * option; the module's own first error. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_sgd_new(tutti_optim **optim_p, tutti_module *m,
                                                     const tutti_sgd_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_adam_new(tutti_optim **optim_p, tutti_module *m,
                                                      const tutti_adam_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_adamw_new(tutti_optim **optim_p, tutti_module *m,
                                                       const tutti_adam_opts *opts);
TUTTI_API void tutti_optim_free(tutti_optim *optim);

/* Options of a group of parameters; 0: the optimizer's value; TUTTI_ZERO: zero. */
typedef struct tutti_optim_group_opts {
    float lr_factor; /* its rate is the optimizer's times this; 0 means 1 */
    float weight_decay;
    float momentum, dampening; /* sgd */
    float beta1, beta2, eps;   /* adam, adamw */
    uint64_t reserved[4];      /* zero */
} tutti_optim_group_opts;

/* Moves n parameters into a new group (torch's add_param_group); parameters in no group use the optimizer's options. Names of
 * the state do not change, so checkpoints fit whatever the groups. opts NULL: defaults. The same on all ranks.
 * Errors: ARG, naming the option or the place in the list; STATE: momentum for a group of an sgd without momentum that has
 * already stepped. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_add_group(tutti_optim *optim,
                                                             tutti_tensor *const *parameters,
                                                             size_t n,
                                                             const tutti_optim_group_opts *opts);
/* The usual group: every parameter of at most one dimension (biases, the weights of norms), without weight decay. It takes them
 * out of other groups, so call it first. Errors: as tutti_optim_add_group. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_no_decay(tutti_optim *optim);

/* As tutti_module_zero_grad. */
TUTTI_API void tutti_optim_zero_grad(tutti_optim *optim);
/* Updates every parameter that has a gradient since zero_grad; others keep value and state, as in PyTorch. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_step(tutti_optim *optim);
/* Sets the learning rate from the next step on, for all groups; 0 is zero. If it is negative or NaN, the next step fails (ARG). */
TUTTI_API void tutti_optim_set_lr(tutti_optim *optim, float lr);
TUTTI_API float tutti_optim_lr(const tutti_optim *optim);

/* ---- State, for checkpoints: PyTorch's names, one tensor per parameter, of its shape ---------------------- */

/* "momentum_buffer" of sgd with momentum, "exp_avg" and "exp_avg_sq" of adam and adamw; NULL past the last. */
TUTTI_API const char *tutti_optim_state_name(const tutti_optim *optim, size_t k);
/* How many updates a parameter has had ("step"). */
TUTTI_API uint64_t tutti_optim_updates(const tutti_optim *optim, const tutti_tensor *parameter);
/* State k of a parameter, row-major F32; zeros before its first update. With ZeRO only on the rank where
 * tutti_zero_consolidate has gathered it since the last step, else STATE. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_state_read(tutti_optim *optim, size_t k,
                                                              const tutti_tensor *parameter,
                                                              float *dst);
/* Sets it. With ZeRO pass all of it on every rank; each keeps its share from the next step on. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_state_write(tutti_optim *optim, size_t k,
                                                               const tutti_tensor *parameter,
                                                               const float *src);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_set_updates(tutti_optim *optim,
                                                               const tutti_tensor *parameter,
                                                               uint64_t updates);
/* Bytes of state that this rank holds: 0 before the first step. */
TUTTI_API size_t tutti_optim_state_bytes(const tutti_optim *optim);

/* Scales all gradients of m so that their joint L2 norm is at most max_norm (by max_norm / (norm + 1e-6), as PyTorch
 * does). *norm_p (may be NULL): the norm before. max_norm 0: only measures. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_clip_grad_norm(tutti_module *m, float max_norm,
                                                            float *norm_p);

typedef enum tutti_schedule_kind {
    TUTTI_SCHEDULE_CONSTANT,
    TUTTI_SCHEDULE_STEP, /* times gamma every `period` steps after the warm-up; period 0: never */
    TUTTI_SCHEDULE_COSINE /* from lr to final_lr over total_steps - warmup_steps; total_steps 0: constant */
} tutti_schedule_kind;

/* Not an options struct: each field is taken literally, zero included. */
typedef struct tutti_schedule {
    tutti_schedule_kind kind;
    float lr, final_lr, gamma;
    uint64_t total_steps, warmup_steps, period;
    uint64_t reserved[4]; /* zero */
} tutti_schedule;
/* The rate of step 0, 1, ...: linear from lr/warmup_steps up to lr in the warm-up, then the schedule's own. NaN, with
 * tutti_last_error(), if reserved is not zero. */
TUTTI_API float tutti_schedule_lr(const tutti_schedule *schedule, uint64_t step);

/* ---- Exponential moving average of the weights ----------------------------------------------------------------
 * PyTorch's AveragedModel with get_ema_multi_avg_fn (torch.optim.swa_utils): the first update copies the parameters, and each
 * later one, after an optimizer step, makes average = decay * average + (1 - decay) * parameter. Buffers are not averaged: a
 * batch norm's statistics are the module's, as with PyTorch's use_buffers=False. With ZeRO, too, each rank has all averages.
 *
 *     tutti_optim_step(optim);
 *     tutti_ema_update(ema);
 *     ...
 *     tutti_ema_swap(ema);    the module has the averages: evaluate, or tutti_module_save
 *     tutti_ema_swap(ema);    it has its own weights again */
typedef struct tutti_ema tutti_ema;

typedef struct tutti_ema_opts {
    float decay;          /* 0: 0.999; from 0 to less than 1; TUTTI_ZERO: the last weights */
    uint64_t reserved[4]; /* zero */
} tutti_ema_opts;

/* opts NULL: defaults. m: a root module, borrowed until tutti_ema_free; 4 bytes an element of its parameters, from the first use on.
 * Errors: ARG; the module's own first error. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_new(tutti_ema **ema_p, tutti_module *m,
                                                     const tutti_ema_opts *opts);
TUTTI_API void tutti_ema_free(tutti_ema *ema);
/* One pass over all parameters, on the context's threads. Errors: STATE, if the module has the averages. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_update(tutti_ema *ema);
/* Exchanges the values of the module's parameters and the averages; before the first update these are the parameters' values at
 * the first use. No optimizer step in between. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_swap(tutti_ema *ema);
/* For checkpoints: the updates so far; the average of a parameter, row-major F32, of its shape. While the module has the
 * averages, read and write are STATE. */
TUTTI_API uint64_t tutti_ema_updates(const tutti_ema *ema);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_set_updates(tutti_ema *ema, uint64_t updates);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_read(tutti_ema *ema, const tutti_tensor *parameter,
                                                      float *dst);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ema_write(tutti_ema *ema,
                                                       const tutti_tensor *parameter,
                                                       const float *src);

#ifdef __cplusplus
}
#endif
#endif
