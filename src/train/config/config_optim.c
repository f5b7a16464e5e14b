/* config_optim.c -- keys of the optimizer and the learning rate: defaults that depend on other keys, and what fits together.
 * SPDX-License-Identifier: MIT */
#include "train/config/config_optim.h"

#include <stdio.h>
#include <string.h>

static bool is(const char *value, const char *name)
{
    return strcmp(value, name) == 0;
}

void tutti__config_settle_optim(tutti__train_config *c, const bool *given)
{
    if (!given[TUTTI__KEY_OF_lr] && !is(c->optimizer, "sgd"))
        c->lr = is(c->optimizer, "adagrad") ? 0.01 : 0.001;
    if (!given[TUTTI__KEY_OF_momentum])
        c->momentum = is(c->optimizer, "rmsprop") ? 0
                      : is(c->optimizer, "muon")  ? 0.95
                                                  : c->momentum;
    if (!given[TUTTI__KEY_OF_nesterov] && is(c->optimizer, "muon") && c->momentum > 0)
        c->nesterov = true;
    if (!given[TUTTI__KEY_OF_warmup_epochs] && c->epochs < 8)
        c->warmup_epochs = (double)c->epochs / 8;
    if (!given[TUTTI__KEY_OF_warmup_epochs] && is(c->schedule, "onecycle"))
        c->warmup_epochs = 0;
    if (!given[TUTTI__KEY_OF_warmup_epochs] && c->warmup_steps > 0)
        c->warmup_epochs = 0;
    if (c->lr_find) { /* a line has the loss of each step; nothing is evaluated or kept */
        c->log_every = 1;
        c->eval_every = c->eval_steps = c->early_stopping = 0;
        c->ema = c->min_delta = 0;
        snprintf(c->checkpoint_best, sizeof c->checkpoint_best, "off");
    }
    if (!given[TUTTI__KEY_OF_final_lr] && is(c->schedule, "onecycle"))
        c->final_lr = c->lr / c->div_factor / 1e4;
}

int tutti__config_optim_states(const tutti__train_config *c)
{
    if (is(c->optimizer, "sgd"))
        return c->momentum > 0;
    if (is(c->optimizer, "adagrad"))
        return 1;
    if (is(c->optimizer, "rmsprop"))
        return 1 + (c->momentum > 0) + c->centered;
    if (is(c->optimizer, "muon"))
        return is(c->muon_others, "sgd") ? 1 : 3;
    return 2;
}

/* A key that only some optimizers, or schedules, have. */
typedef struct narrow_key {
    const char *name;
    bool used;
    const char *of; /* "optimizer" */
    const char *value, *list;
} narrow_key;

static tutti_status check_narrow(const narrow_key *k)
{
    char list[128];

    if (!k->used || tutti__word_in(k->list, k->value))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: it is for %s=%s, and this run has %s=%s; leave %s out, or change %s",
                       k->name, k->of, tutti__words_text(k->list, ", ", list, sizeof list), k->of,
                       k->value, k->name, k->of);
}

static tutti_status check_optimizer(const tutti__train_config *c)
{
    const char *o = c->optimizer;
    const narrow_key all[] = {
        {"eps", c->eps != 0, "optimizer", o, "adam adamw rmsprop adagrad lamb muon"},
        {"beta1", c->beta1 != 0.9, "optimizer", o, "adam adamw lamb"},
        {"beta2", c->beta2 != 0.999, "optimizer", o, "adam adamw lamb"},
        {"alpha", c->alpha != 0.99, "optimizer", o, "rmsprop"},
        {"centered", c->centered, "optimizer", o, "rmsprop"},
        {"lr_decay", c->lr_decay != 0, "optimizer", o, "adagrad"},
        {"initial_accumulator_value", c->initial_accumulator_value != 0, "optimizer", o, "adagrad"},
        {"ns_steps", c->ns_steps != 5, "optimizer", o, "muon"},
        {"muon_others", !is(c->muon_others, "adamw"), "optimizer", o, "muon"},
        {"muon_others_momentum", c->muon_others_momentum != 0.9, "muon_others",
         is(o, "muon") ? c->muon_others : "adamw", "sgd"},
        {"muon_normalize", c->muon_normalize, "optimizer", o, "muon"},
        {"adjust_lr_fn", !is(c->adjust_lr_fn, "match_rms_adamw"), "optimizer", o, "muon"},
    };

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        TUTTI_TRY(check_narrow(&all[i]));
    if (c->nesterov && (!tutti__word_in("sgd muon", o) || c->momentum == 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "nesterov: needs optimizer=sgd or muon, and a momentum above 0");
    if (c->alpha == 1)
        return tutti__fail(TUTTI_ERR_ARG, "alpha: it is 1, expected a number below 1");
    if (strcmp(c->offload, "none") != 0 && tutti__word_in("lamb muon", o))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "offload: optimizer=%s updates whole parameters, which it reads on the "
            "GPU; use offload=none, or optimizer=sgd, adam, adamw, rmsprop or adagrad",
            o);
    if (c->shard_copies > 1 && tutti__word_in("lamb muon", o))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "shard_copies: optimizer=%s needs other ranks in the middle of an update, which with "
            "copies each must be able to end alone; use shard_copies=1, or optimizer=sgd, adam, "
            "adamw, rmsprop or adagrad",
            o);
    return c->clip_grad_value > 0 && c->clip_grad_norm > 0
               ? tutti__fail(TUTTI_ERR_ARG, "clip_grad_value: clip_grad_norm is set too; use one")
               : TUTTI_OK;
}

static tutti_status check_schedule(const tutti__train_config *c)
{
    const char *s = c->schedule;
    const narrow_key all[] = {
        {"final_lr", c->final_lr != 0, "schedule", s, "cosine linear onecycle restarts"},
        {"pct_start", c->pct_start != 0.3, "schedule", s, "onecycle"},
        {"div_factor", c->div_factor != 25, "schedule", s, "onecycle"},
        {"restart_epochs", c->restart_epochs != 0, "schedule", s, "restarts"},
        {"restart_mult", c->restart_mult != 1, "schedule", s, "restarts"},
    };

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        TUTTI_TRY(check_narrow(&all[i]));
    if (is(s, "restarts") && c->restart_epochs == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "restart_epochs: schedule=restarts needs the number of epochs of its "
                           "first cosine; give --restart-epochs N");
    if (is(s, "onecycle") && (c->warmup_epochs != 0 || c->warmup_steps != 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: schedule=onecycle begins with a rising learning rate (pct_start); "
                           "leave %s out",
                           c->warmup_steps ? "warmup_steps" : "warmup_epochs",
                           c->warmup_steps ? "warmup_steps" : "warmup_epochs");
    if (c->warmup_epochs != 0 && c->warmup_steps != 0)
        return tutti__fail(TUTTI_ERR_ARG, "warmup_steps: warmup_epochs is given, too; use one");
    return TUTTI_OK;
}

static tutti_status check_lr_find(const tutti__train_config *c)
{
    if (c->lr_find && c->shards)
        return tutti__fail(TUTTI_ERR_ARG,
                           "lr_find: it tests a step of fixed ranks; leave shards out, and give "
                           "batch_size so that all ranks have the samples of those shards");
    if (c->lr_find && !is(c->resume, "no"))
        return tutti__fail(TUTTI_ERR_ARG,
                           "lr_find: it begins anew, and resume is %.100s; to test from a run's "
                           "weights, give --init RUN",
                           c->resume);
    return TUTTI_OK;
}

tutti_status tutti__config_check_optim(const tutti__train_config *c)
{
    TUTTI_TRY(check_lr_find(c));
    TUTTI_TRY(check_optimizer(c));
    return check_schedule(c);
}
