/* join.c -- ranks with different numbers of batches: a rank that has run out takes part in the others' collectives.
 * SPDX-License-Identifier: MIT
 *
 *     rank 0   step  backward  update | joined:  zeros into every bucket ............ | the last joiner's model
 *     rank 1   step  backward  update   step  backward  update   step  backward  ...  |
 *
 * Before a sequence of collectives an active rank announces it to all (an all_gather of a few numbers, to which joined ranks
 * bring "joined"). A joined rank then runs the same functions with zeros, so that the sequence is the same by construction:
 * broadcast of buffers, the first backward's layout, buckets, hooks, parameter uses, and with ZeRO the norm and the update of
 * its share. Nothing of this is sent outside tutti_join_begin and tutti_join_end. */
#include "ddp/ddp.h"
#include "nn/nn.h"
#include "optim/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY_SHADOWS 1000 /* number after which to warn: most batches are on few ranks */

/* What a rank announces. */
typedef struct call {
    int64_t kind;   /* tutti__join_kind */
    int64_t object; /* which DDP, which optimizer */
    int64_t sends_buffers;
    double value; /* learning rate, largest norm */
} call;

struct tutti_join {
    tutti_group *group;
    tutti_join_opts opts; /* with a copy of optims */
    tutti_ddp **ddps;
    tutti_optim **optims;
    size_t n;
    call *calls;         /* of every rank, from the last announcement */
    int n_active, first; /* in it: number of active ranks, and the lowest */
    int last;            /* the largest rank in the last announcement with active ranks; -1: none */
    bool uneven;         /* a rank joined before the others */
    bool joined, over;   /* joined: this rank has; over: no rank waits for it any more */
    bool exhausted;      /* ended early because of throw_on_early_termination */
    uint64_t shadows;
};

static const char *const KINDS[] = {"has joined", "begins a step", "runs backward",
                                    "clips gradients", "updates parameters"};

/* ---- Announcements ------------------------------------------------------------------------------------------------------ */

static void note_active(tutti_join *join)
{
    const int size = tutti_group_size(join->group);
    int last = -1;

    join->n_active = 0;
    for (int r = size - 1; r >= 0; r--)
        if (join->calls[r].kind != TUTTI__JOINED) {
            join->n_active++;
            join->first = r;
            last = last < 0 ? r : last;
        }
    if (join->n_active > 0) {
        join->last = last;
        join->uneven |= join->n_active < size;
    }
}

/* Exchanges what each rank does next. All active ranks must do the same. */
static tutti_status exchange(tutti_join *join, const call *mine)
{
    const size_t size = (size_t)tutti_group_size(join->group);

    TUTTI_TRY(tutti_all_gather(join->group, TUTTI_CONST_BUF(mine, sizeof *mine, TUTTI_U8),
                               TUTTI_BUF(join->calls, size * sizeof *mine, TUTTI_U8), NULL));
    note_active(join);
    for (size_t r = 0; r < size && join->n_active > 0; r++) {
        const call *a = &join->calls[join->first], *b = &join->calls[r];

        if (b->kind != TUTTI__JOINED &&
            (a->kind != b->kind || a->object != b->object || a->sends_buffers != b->sends_buffers))
            return tutti__fail(
                TUTTI_ERR_MISMATCH,
                "ranks of a join do different things: rank %d %s (object %lld) but rank %zu %s "
                "(object %lld); all must pause, clip and update alike",
                join->first, KINDS[a->kind], (long long)a->object, r, KINDS[b->kind],
                (long long)b->object);
    }
    return TUTTI_OK;
}

static size_t index_of(void *const *list, size_t n, const void *p)
{
    size_t i = 0;

    while (i < n && list[i] != p)
        i++;
    return i;
}

/* Buffers and the order of gradients come from the lowest active rank. */
static void follow(const tutti_join *join, tutti_ddp *ddp)
{
    ddp->source = join->first;
    ddp->partial = join->n_active < tutti_group_size(join->group);
    ddp->present = join->opts.divide_by_present ? join->n_active : 0;
}

tutti_status tutti__join_announce(tutti_ddp *ddp, tutti__join_kind kind, const void *optim,
                                  double value)
{
    tutti_join *join = ddp->join;
    call mine = {.kind = kind, .value = value};

    if (join->joined || join->over)
        return TUTTI_OK;
    mine.object = (int64_t)(kind == TUTTI__JOIN_UPDATE
                                ? index_of((void *const *)join->optims, join->opts.n_optims, optim)
                                : index_of((void *const *)join->ddps, join->n, ddp));
    if (kind == TUTTI__JOIN_UPDATE && (size_t)mine.object == join->opts.n_optims)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_optim_step: an optimizer with shares of state that "
                           "tutti_join_begin was not given; add it to tutti_join_opts.optims");
    if (kind == TUTTI__JOIN_STEP)
        mine.sends_buffers = tutti__ddp_sends_buffers(ddp);
    TUTTI_TRY(exchange(join, &mine));
    follow(join, ddp);
    if (kind != TUTTI__JOIN_STEP || !join->opts.throw_on_early_termination || !join->uneven)
        return TUTTI_OK;
    join->exhausted = join->over = true;
    ddp->all_know = true;
    return tutti__fail(TUTTI_ERR_STATE,
                       "at least one rank has exhausted its inputs: training ends on all ranks "
                       "(throw_on_early_termination)");
}

/* ---- Shadows ---------------------------------------------------------------------------------------------------------------- */

static tutti_status shadow(tutti_join *join)
{
    const call *c = &join->calls[join->first];
    tutti_ddp *ddp = c->kind == TUTTI__JOIN_UPDATE ? NULL : join->ddps[c->object];

    if (++join->shadows == MANY_SHADOWS + 1)
        tutti_log(TUTTI_LOG_WARN, "ddp",
                  "this rank ran out of inputs, and has since followed the others' collectives %d "
                  "times; divide the data more evenly",
                  MANY_SHADOWS);
    if (ddp)
        follow(join, ddp);
    switch ((tutti__join_kind)c->kind) {
    case TUTTI__JOIN_STEP:
        return c->sends_buffers ? tutti_ddp_broadcast_buffers(ddp) : TUTTI_OK;
    case TUTTI__JOIN_BACKWARD:
        return tutti__ddp_shadow_backward(ddp);
    case TUTTI__JOIN_CLIP:
        return tutti_clip_grad_norm(ddp->module, (float)c->value, NULL);
    case TUTTI__JOIN_UPDATE:
        tutti_optim_set_lr(join->optims[c->object], (float)c->value);
        return tutti_optim_step(join->optims[c->object]);
    case TUTTI__JOINED:
        break;
    }
    return TUTTI_OK;
}

/* ---- The end: all ranks get the last joiner's model --------------------------------------------------------------------- */

static tutti_status copy_optim(const tutti_join *join, tutti_optim *optim)
{
    const struct tutti_root *root = optim->module->root;
    float lr = optim->lr;

    if (root->sharding) /* joined ranks updated their shares like the others */
        return TUTTI_OK;
    TUTTI_TRY(tutti__optim_prepare(optim, NULL));
    TUTTI_TRY(tutti_broadcast(join->group, TUTTI_BUF(&lr, 1, TUTTI_F32), join->last, NULL));
    TUTTI_TRY(tutti_broadcast(join->group, TUTTI_BUF(optim->steps, root->parameters.n, TUTTI_I64),
                              join->last, NULL));
    for (int k = 0; k < TUTTI__OPTIM_STATES && optim->state[k]; k++)
        TUTTI_TRY(tutti_broadcast(
            join->group,
            (tutti_buf){optim->state[k], optim->n_state, TUTTI_F32, tutti__optim_stream(optim)},
            join->last, NULL));
    optim->lr = lr;
    return TUTTI_OK;
}

static tutti_status copy_models(tutti_join *join)
{
    if (!join->uneven)
        return TUTTI_OK;
    for (size_t i = 0; i < join->n; i++) {
        join->ddps[i]->source = join->last;
        TUTTI_TRY(tutti__ddp_copy(join->ddps[i]));
    }
    for (size_t i = 0; i < join->opts.n_optims; i++)
        TUTTI_TRY(copy_optim(join, join->optims[i]));
    return TUTTI_OK;
}

static tutti_status end(tutti_join *join)
{
    join->joined = true;
    for (;;) {
        TUTTI_TRY(exchange(join, &(call){.kind = TUTTI__JOINED}));
        if (join->n_active == 0)
            return copy_models(join);
        if (join->opts.throw_on_early_termination) {
            join->exhausted = true;
            return tutti__fail(TUTTI_ERR_STATE,
                               "rank %d has exhausted its inputs before the others: training ends "
                               "on all ranks (throw_on_early_termination)",
                               tutti_group_rank(join->group));
        }
        TUTTI_TRY(shadow(join));
    }
}

tutti_status tutti_join_end(tutti_join *join)
{
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(join));
    if (join->over)
        return tutti__fail(TUTTI_ERR_STATE, "tutti_join_end: this join is over already");
    status = end(join);
    if (status != TUTTI_OK && !join->exhausted)
        tutti__abort_peers(join->group, status, tutti_last_error());
    join->over = true;
    return status;
}

/* ---- Construction -------------------------------------------------------------------------------------------------------- */

static bool normalises_together(const tutti_module *m)
{
    bool any = m->peers.size > 1;

    for (const tutti_module *child = m->first_child; child && !any; child = child->next)
        any = normalises_together(child);
    return any;
}

static tutti_status check(const tutti_join *join)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_join_opts, &join->opts));
    for (size_t i = 0; i < join->n; i++) {
        const tutti_ddp *ddp = join->ddps[i];

        if (ddp->group != join->group)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_join_begin: the DDPs are of different groups; join those of "
                               "one group");
        if (ddp->join)
            return tutti__fail(TUTTI_ERR_STATE,
                               "tutti_join_begin: this DDP is in a join already; end that first");
        if (normalises_together(ddp->module) && !join->opts.throw_on_early_termination)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_join_begin: the model has batch norm over all ranks, and a "
                               "rank without inputs cannot take part in its forward; set "
                               "throw_on_early_termination, or convert back");
        if (ddp->shards)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_join_begin: with logical shards a rank without inputs just "
                               "computes none (tutti_ddp_begin_step, tutti_ddp_finish_step); there "
                               "is nothing to join");
        if (ddp->opts.buffer_hook)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_join_begin: a rank without inputs cannot take part in a "
                               "buffer_hook; let rank 0's buffers be broadcast, or keep_buffers");
        if (ddp->opts.zero >= 2)
            return tutti__fail(
                TUTTI_ERR_UNSUPPORTED,
                "tutti_join_begin: with zero %d a rank without inputs has no gradients "
                "to bring; use zero 0 or 1",
                ddp->opts.zero);
        if (ddp->module->root->sharding && join->opts.n_optims == 0)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_join_begin: with ZeRO a rank without inputs still updates "
                               "its share; give its optimizers in tutti_join_opts.optims");
    }
    return TUTTI_OK;
}

static tutti_status agree(const tutti_join *join, tutti_status local)
{
    tutti__item items[4] = {{{0}}, {{0}}, {{0}}, {{0}}};

    snprintf(items[0].text, sizeof items[0].text, "%zu DDPs", join->n);
    snprintf(items[1].text, sizeof items[1].text, "%zu optimizers", join->opts.n_optims);
    snprintf(items[2].text, sizeof items[2].text, "divide_by_present %s",
             join->opts.divide_by_present ? "true" : "false");
    snprintf(items[3].text, sizeof items[3].text, "throw_on_early_termination %s",
             join->opts.throw_on_early_termination ? "true" : "false");
    return tutti__agree_after(join->group, local, "options of tutti_join_begin", "option", items,
                              4);
}

static tutti_status build(tutti_join *join, tutti_ddp *const *ddps)
{
    join->ddps = tutti__alloc(join->n * sizeof(tutti_ddp *));
    join->optims = tutti__alloc((join->opts.n_optims + 1) * sizeof(tutti_optim *));
    join->calls = tutti__alloc((size_t)tutti_group_size(join->group) * sizeof *join->calls);
    if (!join->ddps || !join->optims || !join->calls)
        return TUTTI_ERR_MEMORY;
    memcpy(join->ddps, ddps, join->n * sizeof(tutti_ddp *));
    if (join->opts.n_optims > 0)
        memcpy(join->optims, join->opts.optims, join->opts.n_optims * sizeof(tutti_optim *));
    return check(join);
}

tutti_status tutti_join_begin(tutti_join **join_p, tutti_ddp *const *ddps, size_t n,
                              const tutti_join_opts *opts)
{
    tutti_join *join;
    tutti_status status;

    *join_p = NULL;
    if (n == 0 || !ddps || !ddps[0])
        return tutti__fail(TUTTI_ERR_ARG, "tutti_join_begin: no DDP, expected at least one");
    join = tutti__alloc(sizeof *join);
    if (!join)
        return tutti__agree_after(ddps[0]->group, TUTTI_ERR_MEMORY, "options of tutti_join_begin",
                                  "option", NULL, 0);
    *join = (tutti_join){.group = ddps[0]->group, .n = n, .last = -1};
    if (opts)
        join->opts = *opts;
    status = agree(join, build(join, ddps));
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        ddps[i]->join = join;
    if (status == TUTTI_OK) {
        *join_p = join;
        return TUTTI_OK;
    }
    join->over = true;
    tutti_join_free(join);
    return status;
}

bool tutti_join_exhausted(const tutti_join *join)
{
    return join && join->exhausted;
}

void tutti_join_free(tutti_join *join)
{
    char message[128];

    if (!join)
        return;
    if (!join->over && tutti_group_size(join->group) > 1) { /* the others wait for this rank */
        snprintf(message, sizeof message, "rank %d left a join before tutti_join_end",
                 tutti_group_rank(join->group));
        tutti_group_abort(join->group, "%s", message);
    }
    for (size_t i = 0; join->ddps && i < join->n; i++)
        if (join->ddps[i]->join == join) {
            join->ddps[i]->join = NULL;
            join->ddps[i]->source = 0;
            join->ddps[i]->present = 0;
            join->ddps[i]->training_steps = 0; /* joined ranks began fewer */
            join->ddps[i]->partial = false;
        }
    free(join->ddps);
    free(join->optims);
    free(join->calls);
    free(join);
}
