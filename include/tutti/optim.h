/* optim.h -- optimizers: one fused pass over flat memory; learning-rate schedules; gradient clipping.
 * SPDX-License-Identifier: MIT
 *
 * The update rules are PyTorch's (torch.optim.SGD, Adam, AdamW, RMSprop, Adagrad, Muon), including the order of operations; LAMB,
 * which PyTorch does not have, is its paper's.
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

typedef struct tutti_rmsprop_opts {
    float lr;           /* 0: 1e-2; TUTTI_ZERO: no change */
    float alpha;        /* 0: 0.99; TUTTI_ZERO: no memory of earlier squares */
    float eps;          /* 0: 1e-8; TUTTI_ZERO: none */
    float momentum;     /* 0 */
    float weight_decay; /* 0; added to the gradient */
    bool centered;      /* divides by the standard deviation, not by the root of the mean square */
    uint64_t reserved[4]; /* zero */
} tutti_rmsprop_opts;

typedef struct tutti_adagrad_opts {
    float lr;                        /* 0: 1e-2; TUTTI_ZERO: no change */
    float lr_decay;                  /* 0: update k has the rate lr / (1 + (k - 1) * lr_decay) */
    float eps;                       /* 0: 1e-10; TUTTI_ZERO: none */
    float initial_accumulator_value; /* 0: of the sum of squares */
    float weight_decay;              /* 0; added to the gradient */
    uint64_t reserved[4];            /* zero */
} tutti_adagrad_opts;

/* LAMB: AdamW's direction u = m / (sqrt(v) + eps) + weight_decay * p, both means corrected for their start, times lr and the
 * parameter's trust ratio ||p|| / ||u||, which is 1 if either norm is 0. You et al., "Large Batch Optimization for Deep Learning:
 * Training BERT in 76 minutes" (ICLR 2020, arXiv:1904.00962v5), algorithm 2 with phi the identity. Parameters without weight decay
 * have the ratio 1, as in NVIDIA's Apex and timm. */
typedef struct tutti_lamb_opts {
    float lr;             /* 0: 1e-3; TUTTI_ZERO: no change */
    float beta1, beta2;   /* 0: 0.9, 0.999; TUTTI_ZERO: no memory of earlier gradients */
    float eps;            /* 0: 1e-6; TUTTI_ZERO: none */
    float weight_decay;   /* 0: 0.01; TUTTI_ZERO: none */
    bool always_adapt;    /* the trust ratio also for parameters without weight decay */
    uint64_t reserved[4]; /* zero */
} tutti_lamb_opts;

/* The factor of muon's rate for a matrix [A,B], by torch.optim.Muon's names. */
typedef enum tutti_adjust_lr {
    TUTTI_ADJUST_LR_ORIGINAL,          /* sqrt(max(1, A / B)) */
    TUTTI_ADJUST_LR_MATCH_RMS_ADAMW,   /* 0.2 * sqrt(max(A, B)): takes AdamW's rates and decay */
    TUTTI_ADJUST_LR_SPECTRAL_UNCLAMPED /* sqrt(A / B) */
} tutti_adjust_lr;

/* Muon for hidden matrices, AdamW or SGD for the other parameters. A matrix has at least two rows and two columns; a parameter of more
 * dimensions is [first, all others], as a convolution's [C_out, C_in * kh * kw]. The first and the last of them, in the order in
 * which they were made, are the input and the output layer, and go to the others, as embeddings do. Newton-Schulz is computed in F32
 * (PyTorch: in BF16), by the context's matrix products, by every rank for all matrices. */
typedef struct tutti_muon_opts {
    float lr;                 /* 0: 1e-3; TUTTI_ZERO: no change */
    float momentum;           /* 0: 0.95; TUTTI_ZERO: none */
    float weight_decay;       /* 0: 0.1; TUTTI_ZERO: none; decoupled, of all parameters */
    float ns_coefficients[3]; /* all 0: 3.4445, -4.775, 2.0315 */
    float eps;                /* 0: 1e-7; the smallest norm by which an update is divided */
    int ns_steps;             /* 0: 5; at most 99 */
    tutti_adjust_lr adjust_lr;
    bool no_nesterov;
    bool normalize; /* before each update a matrix of A rows is scaled to the norm sqrt(A) */
    /* The others by SGD, with the same nesterov, and weight decay added to the gradient; sgd_momentum 0: 0.9 */
    bool others_by_sgd;
    float sgd_momentum;
    /* AdamW's: its rate, or SGD's, is lr times the factor; 0: 1, 0.9, 0.999, 1e-8 */
    float adamw_lr_factor, beta1, beta2, adamw_eps;
    /* What AdamW or SGD updates, in place of the first and last matrix: names of parameters or modules, or patterns, separated by commas, as
     * tutti_module_freeze takes; NULL: those two. Read by tutti_muon_new only. */
    const char *adamw;
    uint64_t reserved[4]; /* zero */
} tutti_muon_opts;

/* opts NULL: defaults. Borrows the module until tutti_optim_free; state is allocated at the first step. Errors: ARG naming the
 * option; the module's own first error. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_sgd_new(tutti_optim **optim_p, tutti_module *m,
                                                     const tutti_sgd_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_adam_new(tutti_optim **optim_p, tutti_module *m,
                                                      const tutti_adam_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_adamw_new(tutti_optim **optim_p, tutti_module *m,
                                                       const tutti_adam_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_rmsprop_new(tutti_optim **optim_p, tutti_module *m,
                                                         const tutti_rmsprop_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_adagrad_new(tutti_optim **optim_p, tutti_module *m,
                                                         const tutti_adagrad_opts *opts);
/* These two update whole parameters: with ZeRO, which divides them over ranks, tutti_optim_step is UNSUPPORTED. Muon: ARG if no
 * parameter is left for it, or a pattern of `adamw` is none of the module's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_lamb_new(tutti_optim **optim_p, tutti_module *m,
                                                      const tutti_lamb_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_muon_new(tutti_optim **optim_p, tutti_module *m,
                                                      const tutti_muon_opts *opts);
TUTTI_API void tutti_optim_free(tutti_optim *optim);
/* From now on the state is in pinned memory of the host, and updates are computed there by the context's threads, with the bits of
 * device cpu: parameters and gradients are copied there in parts, and parameters back, while others are computed. Takes none of the
 * device's memory, and up to 16 MiB of the host's beside the state. Call it before there is state. Errors: ARG on a device whose memory
 * is the host's, where all of it is there already; STATE once there is state; UNSUPPORTED for lamb and muon. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_offload(tutti_optim *optim);

/* Options of a group of parameters; 0: the optimizer's value; TUTTI_ZERO: zero. */
typedef struct tutti_optim_group_opts {
    float lr_factor; /* its rate is the optimizer's times this; 0 means 1 */
    float weight_decay;
    float momentum, dampening; /* sgd; momentum also rmsprop, muon's matrices */
    float beta1, beta2, eps;   /* adam, adamw, lamb, muon's others; eps also rmsprop, adagrad */
    float alpha;               /* rmsprop */
    float lr_decay;            /* adagrad */
    uint64_t reserved[3];      /* zero */
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

/* Rates by name: "PATTERN=FACTOR,..." multiplies the rate of the parameters that a pattern (a name of a parameter or module, or one
 * with * and ?, as tutti_module_freeze takes) selects; of several, the last counts. Other options stay, so call it after
 * tutti_optim_no_decay. Factor 0: their rate is 0. The same on all ranks. Errors: ARG, naming the pattern that is none of the
 * module's parameters, or that has no factor of at least 0. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_lr_groups(tutti_optim *optim,
                                                             const char *patterns);

/* The same of weight decay: "PATTERN=FACTOR,..." multiplies it. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_decay_groups(tutti_optim *optim,
                                                                const char *patterns);

/* As tutti_module_zero_grad. */
TUTTI_API void tutti_optim_zero_grad(tutti_optim *optim);
/* Updates every parameter that has a gradient since zero_grad; others keep value and state, as in PyTorch. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_optim_step(tutti_optim *optim);
/* Sets the learning rate from the next step on, for all groups; 0 is zero. If it is negative or NaN, the next step fails (ARG). */
TUTTI_API void tutti_optim_set_lr(tutti_optim *optim, float lr);
TUTTI_API float tutti_optim_lr(const tutti_optim *optim);

/* ---- State, for checkpoints: PyTorch's names, one tensor per parameter, of its shape ---------------------- */

/* "momentum_buffer" of sgd with momentum; "exp_avg" and "exp_avg_sq" of adam, adamw and lamb; "square_avg", with momentum
 * "momentum_buffer", and if centered "grad_avg" of rmsprop; "sum" of adagrad; "momentum_buffer" (of matrices), "exp_avg" and
 * "exp_avg_sq" (of others) of muon, with others_by_sgd "momentum_buffer" of all; NULL past the last. */
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
 * does). *norm_p (may be NULL): the norm before. max_norm 0: only measures. The bits depend on the gradients alone: not on the
 * order of parameters, threads or ZeRO. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_clip_grad_norm(tutti_module *m, float max_norm,
                                                            float *norm_p);

/* Moves every gradient element of m into [-limit, limit] (torch's clip_grad_value_); NaN stays NaN. Not collective: ZeRO or not, the
 * bits are the same. ARG: limit is not a number above 0. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_clip_grad_value(tutti_module *m, float limit);

typedef enum tutti_schedule_kind {
    TUTTI_SCHEDULE_CONSTANT,
    TUTTI_SCHEDULE_STEP, /* times gamma every `period` steps after the warm-up; period 0: never */
    /* These from lr to final_lr over total_steps - warmup_steps; total_steps 0: constant. */
    TUTTI_SCHEDULE_COSINE,
    TUTTI_SCHEDULE_LINEAR,
    /* torch's OneCycleLR with cosines: from lr / div_factor up to lr in the first pct_start of total_steps - warmup_steps, then down to
     * final_lr in the last of them. Momentum is not changed. total_steps 0: constant */
    TUTTI_SCHEDULE_ONECYCLE,
    /* Cosines from lr to final_lr (torch's CosineAnnealingWarmRestarts): the first takes `period` steps after the warm-up, each other one
     * t_mult times as many as the one before. period 0: constant */
    TUTTI_SCHEDULE_RESTARTS
} tutti_schedule_kind;

/* Not an options struct: each field is taken literally, zero included. */
typedef struct tutti_schedule {
    tutti_schedule_kind kind;
    float lr, final_lr, gamma;
    uint64_t total_steps, warmup_steps, period;
    uint64_t t_mult;             /* restarts: 1 or more */
    float pct_start, div_factor; /* onecycle: 0 to 1, above 0 */
    uint64_t reserved[2];        /* zero */
} tutti_schedule;
/* The rate of step 0, 1, ...: linear from lr/warmup_steps up to lr in the warm-up, then the schedule's own. NaN, with
 * tutti_last_error(), if an option of its kind or reserved is wrong. */
TUTTI_API float tutti_schedule_lr(const tutti_schedule *schedule, uint64_t step);

/* ---- Exponential moving average of the weights ----------------------------------------------------------------
 * PyTorch's AveragedModel with get_ema_multi_avg_fn (torch.optim.swa_utils): the first update copies the parameters, and each
 * later one, after an optimizer step, makes average = decay * average + (1 - decay) * parameter. Buffers are not averaged: a
 * batch norm's statistics are the module's, as with PyTorch's use_buffers=False. Each rank has all averages; with zero 3 those of its shares, and all ranks call tutti_ema_swap.
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
