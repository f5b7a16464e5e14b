/* elastic_parts.c -- a module with its DDP, an optimizer, and an average of the weights, as parts of elastic training.   SPDX-License-Identifier: MIT
 *
 * Parameters and their state are sent one by one: ranks that join may have them in another order in memory. */
#include "ddp/ddp.h"
#include "elastic/reducer_ranges.h"
#include "elastic/settings.h"
#include "optim/ema.h"
#include "optim/optim.h"

#include <stdlib.h>

typedef tutti_status mover(void *arg, tutti_buf buf);

static tutti_status move_tensor(const tutti_tensor *t, tutti_stream *stream, mover *move, void *arg)
{
    return move(arg, (tutti_buf){t->data, tutti__tensor_bytes(t), TUTTI_U8, stream});
}

/* ---- A module ---- */

typedef struct kept_module {
    tutti_module *module;
    tutti_ddp *ddp;
    tutti__kept_ranges ranges;
    uint64_t context_step; /* being sent */
} kept_module;

/* If ranges are undone, buffers and the context are too. */
static tutti_status take_back(kept_module *k)
{
    return tutti__ranges_take_back(&k->ranges) ? tutti__ddp_take_back(k->ddp) : TUTTI_OK;
}

/* This rank's share of the state is lost with the group; with copies it is kept, if no update has been half done. */
static void leave_shares(kept_module *k)
{
    const bool unchanged = tutti__zero_is_unchanged(k->ddp);
    tutti_elastic *e = k->ranges.e;

    if (tutti__zero_regroup(k->ddp, NULL)) {
        tutti_elastic_forget(e);
    } else if (unchanged) {
        tutti__elastic_undone(e);
    } else if (!tutti__elastic_has_state(e)) {
        tutti__zero_drop(k->ddp);
    }
}

static tutti_status bring_shares(kept_module *k)
{
    tutti_elastic *e = k->ranges.e;
    const int64_t step = tutti__elastic_has_state(e) ? (int64_t)tutti_elastic_step(e) : -1;
    bool forgets;
    const tutti_status status =
        tutti__zero_recover(k->ddp, tutti__elastic_generation(e), step, &forgets);

    if (forgets)
        tutti_elastic_forget(e);
    return status;
}

static tutti_status regroup(void *self, tutti_group *group)
{
    kept_module *k = self;
    tutti_status status = group ? TUTTI_OK : take_back(k), regrouped;

    if (!group)
        leave_shares(k);
    regrouped = tutti_ddp_regroup(k->ddp, group);
    if (group && regrouped == TUTTI_OK)
        regrouped = bring_shares(k);
    return status == TUTTI_OK ? regrouped : status;
}

static tutti_status gather(void *self)
{
    return tutti__zero_gather(((const kept_module *)self)->ddp);
}

static tutti_status module_state(void *self, mover *move, void *arg)
{
    kept_module *k = self;
    tutti_stream *stream = tutti_ctx_stream(tutti_module_ctx(k->module));

    for (size_t i = 0; i < tutti_module_n_parameters(k->module); i++)
        TUTTI_TRY(move_tensor(tutti_module_parameter(k->module, i), stream, move, arg));
    for (size_t i = 0; i < tutti_module_n_buffers(k->module); i++)
        TUTTI_TRY(move_tensor(tutti_module_buffer(k->module, i), stream, move, arg));
    k->context_step = tutti_ctx_step(tutti_module_ctx(k->module));
    TUTTI_TRY(move(arg, TUTTI_BUF(&k->context_step, 1, TUTTI_I64)));
    return tutti__ranges_move(&k->ranges, move, arg);
}

static tutti_status module_loaded(void *self)
{
    const kept_module *k = self;

    tutti_ctx_set_step(tutti_module_ctx(k->module), k->context_step);
    return TUTTI_OK;
}

static tutti_status begin(void *self)
{
    kept_module *k = self;

    TUTTI_TRY(take_back(k));
    TUTTI_TRY(tutti_ddp_begin_step(k->ddp));
    tutti__ranges_begun(&k->ranges);
    return TUTTI_OK;
}

static tutti_status begin_shard(void *self, int shard, bool last)
{
    kept_module *k = self;

    TUTTI_TRY(tutti_ddp_begin_shard(k->ddp, shard, last));
    tutti__ranges_digest(&k->ranges);
    return TUTTI_OK;
}

static tutti_status finish(void *self, bool *again_p)
{
    kept_module *k = self;

    TUTTI_TRY(tutti_ddp_finish_step(k->ddp, again_p));
    tutti__ranges_finished(&k->ranges, *again_p);
    return TUTTI_OK;
}

static tutti_status compare(void *self, uint64_t *digest_p)
{
    *digest_p = ((const kept_module *)self)->ranges.digest;
    return TUTTI_OK;
}

static tutti_status drop(void *self)
{
    return tutti__ddp_drop_step(((const kept_module *)self)->ddp);
}

static void free_module(void *self)
{
    kept_module *k = self;

    tutti__ranges_destroy(&k->ranges);
    tutti_ddp_free(k->ddp);
    free(k);
}

tutti_status tutti_elastic_keep_module(tutti_elastic *e, tutti_module *module,
                                       const tutti_ddp_opts *opts, tutti_ddp **ddp_p)
{
    tutti_ddp_opts own = opts ? *opts : (tutti_ddp_opts){0};
    kept_module *k;
    bool same;
    tutti_status status;

    if (ddp_p)
        *ddp_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(module));
    own.shards = tutti_elastic_shards(e);
    k = tutti__alloc(sizeof *k);
    if (!k)
        return TUTTI_ERR_MEMORY;
    k->module = module;
    status = tutti_ddp_new(&k->ddp, module, NULL, &own);
    if (status == TUTTI_OK)
        status = tutti__ranges_init(&k->ranges, e, tutti_ddp_reducer(k->ddp));
    if (status == TUTTI_OK)
        tutti__zero_keep(k->ddp);
    if (status != TUTTI_OK) {
        free_module(k);
        return status;
    }
    same = !module->cx->nondeterministic || tutti__on_host(tutti_ctx_stream(module->cx));
    status = tutti_elastic_keep(e, &(tutti_elastic_part){.name = "module",
                                                         .regroup = regroup,
                                                         .state = module_state,
                                                         .loaded = module_loaded,
                                                         .begin = begin,
                                                         .begin_shard = begin_shard,
                                                         .finish = finish,
                                                         .gather = gather,
                                                         .compare = same ? compare : NULL,
                                                         .drop = drop,
                                                         .differs = true, /* DDP compares it */
                                                         .free = free_module,
                                                         .self = k});
    if (status == TUTTI_OK && ddp_p)
        *ddp_p = k->ddp;
    return status;
}

/* ---- An optimizer ---- */

static tutti_status optim_state(void *self, mover *move, void *arg)
{
    tutti_optim *optim = self;
    const struct tutti_root *root = optim->module->root;

    TUTTI_TRY(tutti__optim_prepare(optim, NULL));
    TUTTI_TRY(move(arg, TUTTI_BUF(&optim->lr, 1, TUTTI_F32)));
    TUTTI_TRY(move(arg, TUTTI_BUF(optim->steps, root->parameters.n, TUTTI_I64)));
    for (int k = 0; k < TUTTI__OPTIM_STATES; k++)
        for (size_t i = 0; i < root->parameters.n && optim->state[k]; i++)
            TUTTI_TRY(move(
                arg, (tutti_buf){optim->state[k] + optim->offsets[i],
                                 (size_t)tutti_shape_count(root->parameters.p[i]->tensor->shape),
                                 TUTTI_F32, tutti__optim_stream(optim)}));
    return TUTTI_OK;
}

tutti_status tutti_elastic_keep_optim(tutti_elastic *e, tutti_optim *optim)
{
    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    return tutti_elastic_keep(e, &(tutti_elastic_part){.name = optim->rule->name,
                                                       .state = optim_state,
                                                       .differs = true, /* DDP compares it */
                                                       .self = optim});
}

/* ---- An average ---- */

static tutti_status ema_state(void *self, mover *move, void *arg)
{
    tutti_ema *ema = self;
    const struct tutti_root *root = ema->module->root;

    TUTTI_TRY(tutti__ema_prepare(ema));
    TUTTI_TRY(move(arg, TUTTI_BUF(&ema->updates, 1, TUTTI_I64)));
    for (size_t i = 0; i < root->parameters.n; i++)
        TUTTI_TRY(
            move(arg, (tutti_buf){tutti__ema_at(ema, i),
                                  (size_t)tutti_shape_count(root->parameters.p[i]->tensor->shape),
                                  TUTTI_F32, tutti_ctx_stream(ema->cx)}));
    return TUTTI_OK;
}

/* A share of the averages is lost with the group, as that of the parameters is (leave_shares). */
static tutti_status ema_regroup(void *self, tutti_group *group)
{
    if (!group)
        tutti__ema_drop_share(self);
    return TUTTI_OK;
}

static tutti_status ema_gather(void *self)
{
    return tutti__zero_gather_average(self);
}

tutti_status tutti_elastic_keep_ema(tutti_elastic *e, tutti_ema *ema)
{
    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(ema));
    return tutti_elastic_keep(
        e, &(tutti_elastic_part){.name = "ema",
                                 .regroup = ema_regroup,
                                 .state = ema_state,
                                 .gather = ema_gather,
                                 .differs = ema->module->root->reserved, /* shares */
                                 .self = ema});
}
