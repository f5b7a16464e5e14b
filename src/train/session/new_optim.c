/* new_optim.c -- the optimizer of a run, by its keys.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"
#include "tensor/tensor.h"
#include "train/session/session.h"

#include <string.h>

/* A key of 0 means zero, not the default. */
static float literal(double value)
{
    return value == 0 ? TUTTI_ZERO : (float)value;
}

static tutti_status new_rmsprop(tutti__session *s)
{
    const tutti__train_config *c = s->config;

    return tutti_rmsprop_new(&s->optim, s->module,
                             &(tutti_rmsprop_opts){.lr = literal(c->lr),
                                                   .alpha = literal(c->alpha),
                                                   .eps = (float)c->eps,
                                                   .momentum = (float)c->momentum,
                                                   .weight_decay = (float)c->weight_decay,
                                                   .centered = c->centered});
}

static tutti_status new_adagrad(tutti__session *s)
{
    const tutti__train_config *c = s->config;

    return tutti_adagrad_new(
        &s->optim, s->module,
        &(tutti_adagrad_opts){.lr = literal(c->lr),
                              .lr_decay = (float)c->lr_decay,
                              .eps = (float)c->eps,
                              .initial_accumulator_value = (float)c->initial_accumulator_value,
                              .weight_decay = (float)c->weight_decay});
}

static tutti_status new_lamb(tutti__session *s)
{
    const tutti__train_config *c = s->config;

    return tutti_lamb_new(&s->optim, s->module,
                          &(tutti_lamb_opts){.lr = literal(c->lr),
                                             .beta1 = literal(c->beta1),
                                             .beta2 = literal(c->beta2),
                                             .eps = (float)c->eps,
                                             .weight_decay = literal(c->weight_decay)});
}

static tutti_status new_muon(tutti__session *s)
{
    const tutti__train_config *c = s->config;
    const char *adjust = c->adjust_lr_fn;

    return tutti_muon_new(
        &s->optim, s->module,
        &(tutti_muon_opts){.lr = literal(c->lr),
                           .momentum = literal(c->momentum),
                           .weight_decay = literal(c->weight_decay),
                           .ns_steps = (int)c->ns_steps,
                           .adjust_lr = strcmp(adjust, "match_rms_adamw") == 0
                                            ? TUTTI_ADJUST_LR_MATCH_RMS_ADAMW
                                        : strcmp(adjust, "spectral_unclamped") == 0
                                            ? TUTTI_ADJUST_LR_SPECTRAL_UNCLAMPED
                                            : TUTTI_ADJUST_LR_ORIGINAL,
                           .no_nesterov = !c->nesterov,
                           .normalize = c->muon_normalize,
                           .others_by_sgd = strcmp(c->muon_others, "sgd") == 0,
                           .sgd_momentum = literal(c->muon_others_momentum),
                           .adamw_eps = (float)c->eps});
}

static tutti_status new_sgd(tutti__session *s)
{
    const tutti__train_config *c = s->config;

    return tutti_sgd_new(&s->optim, s->module,
                         &(tutti_sgd_opts){.lr = literal(c->lr),
                                           .momentum = (float)c->momentum,
                                           .weight_decay = (float)c->weight_decay,
                                           .nesterov = c->nesterov});
}

static tutti_status new_optim(tutti__session *s)
{
    const tutti__train_config *c = s->config;
    const tutti_adam_opts adam = {.lr = literal(c->lr),
                                  .beta1 = literal(c->beta1),
                                  .beta2 = literal(c->beta2),
                                  .eps = (float)c->eps,
                                  .weight_decay = (float)c->weight_decay};

    if (strcmp(c->optimizer, "adam") == 0)
        return tutti_adam_new(&s->optim, s->module, &adam);
    if (strcmp(c->optimizer, "adamw") == 0)
        return tutti_adamw_new(&s->optim, s->module, &adam);
    if (strcmp(c->optimizer, "rmsprop") == 0)
        return new_rmsprop(s);
    if (strcmp(c->optimizer, "adagrad") == 0)
        return new_adagrad(s);
    if (strcmp(c->optimizer, "lamb") == 0)
        return new_lamb(s);
    if (strcmp(c->optimizer, "muon") == 0)
        return new_muon(s);
    return new_sgd(s);
}

tutti_status tutti__session_check_offload(const tutti__session *s)
{
    if (strcmp(s->config->offload, "none") == 0 || !s->cx->device_ops->is_host)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "offload: it moves the optimizer's state from a GPU to the host, where it "
                       "is with device=cpu; use offload=none, or device=cuda");
}

tutti_status tutti__session_new_optim(tutti__session *s)
{
    TUTTI_TRY(new_optim(s));
    TUTTI_TRY(tutti__session_check_offload(s));
    if (strcmp(s->config->offload, "none") != 0)
        TUTTI_TRY(tutti_optim_offload(s->optim));
    if (!s->config->decay_biases)
        TUTTI_TRY(tutti_optim_no_decay(s->optim));
    TUTTI_TRY(tutti_optim_decay_groups(s->optim, s->config->decay_groups));
    TUTTI_TRY(tutti_optim_lr_groups(s->optim, s->config->lr_groups));
    return tutti__optim_lengths(s->optim, s->config->lr_group_epochs);
}
