/* replicate.c -- the same model on every rank: compared, then copied from rank 0.   SPDX-License-Identifier: MIT
 *
 * Ignored parameters and buffers are neither compared nor copied, and ranks may differ in them. Frozen parameters are compared
 * and copied once. */
#include "ddp/ddp.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Roles of parameters and buffers ---------------------------------------------------------------- */

static bool is_ignored(const tutti_ddp_opts *opts, const tutti_tensor *t)
{
    for (size_t k = 0; k < opts->n_ignored; k++)
        if (strcmp(opts->ignored[k], t->name) == 0)
            return true;
    return false;
}

/* Rejects unknown names: a typing error would be hard to find later. */
static tutti_status check_ignored(const tutti_ddp *ddp, const tutti_ddp_opts *opts)
{
    size_t n = tutti_module_n_state(ddp->module);
    const char **names;
    tutti_status status = TUTTI_OK;

    if (opts->n_ignored == 0)
        return TUTTI_OK;
    names = tutti__alloc((n + 1) * sizeof *names);
    if (!names)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        names[i] = tutti_tensor_name(tutti_module_state(ddp->module, i));
    for (size_t k = 0; k < opts->n_ignored && status == TUTTI_OK; k++)
        if (!tutti_module_find(ddp->module, opts->ignored[k])) {
            const char *nearest = tutti__nearest(opts->ignored[k], names, n);

            status = tutti__fail(TUTTI_ERR_ARG,
                                 "tutti_ddp_new: the module has no parameter or buffer \"%s\" to "
                                 "ignore%s%s%s",
                                 opts->ignored[k], nearest ? "; did you mean \"" : "",
                                 nearest ? nearest : "", nearest ? "\"?" : "");
        }
    free(names);
    return status;
}

static tutti_status take_roles(tutti_ddp *ddp, const tutti_ddp_opts *opts)
{
    size_t n_buffers = tutti_module_n_buffers(ddp->module), n_averaged = 0;

    ddp->parameters = tutti__alloc(ddp->n * sizeof *ddp->parameters);
    ddp->roles = tutti__alloc(ddp->n * sizeof *ddp->roles);
    ddp->uses = tutti__alloc(ddp->n * sizeof *ddp->uses);
    ddp->buffers = tutti__alloc((n_buffers + 1) * sizeof *ddp->buffers);
    if (!ddp->parameters || !ddp->roles || !ddp->uses || !ddp->buffers)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(check_ignored(ddp, opts));
    for (size_t i = 0; i < ddp->n; i++) {
        tutti_tensor *t = tutti_module_parameter(ddp->module, i);

        ddp->parameters[i] = t;
        ddp->roles[i] = is_ignored(opts, t)            ? TUTTI__IGNORED
                        : !t->parameter->requires_grad ? TUTTI__FROZEN
                                                       : TUTTI__AVERAGED;
        n_averaged += ddp->roles[i] == TUTTI__AVERAGED;
        if (ddp->roles[i] ==
            TUTTI__IGNORED) /* else ranks would clip what they share by different factors */
            t->parameter->counted_by_peer = true;
    }
    for (size_t i = 0; i < n_buffers; i++) {
        tutti_tensor *t = tutti_module_buffer(ddp->module, i);

        if (!is_ignored(opts, t))
            ddp->buffers[ddp->n_buffers++] = t;
    }
    if (n_averaged == 0 && !ddp->module->root->whole) /* a stage may have none */
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: none of the module's %zu parameters requires a gradient "
                           "or is to be averaged, so there is nothing for DDP to do",
                           ddp->n);
    return TUTTI_OK;
}

/* ---- Agreement -------------------------------------------------------------------------------------------------------- */

static void describe(tutti__item *item, const tutti_tensor *t, const char *more)
{
    snprintf(item->text, sizeof item->text, "\"%s\" %s %s%s", t->name, tutti__shape_text(t->shape),
             tutti_dtype_name(t->dtype), more);
}

/* items: zeroed room for all. */
static tutti_status agree_on_tensors(const tutti_ddp *ddp, tutti_status local, tutti__item *items)
{
    size_t n = 0;
    tutti_status status;

    for (size_t i = 0; i < ddp->n && local == TUTTI_OK; i++)
        if (ddp->roles[i] != TUTTI__IGNORED)
            describe(&items[n++], ddp->parameters[i],
                     ddp->roles[i] == TUTTI__FROZEN ? " frozen" : "");
    status = tutti__agree_after(ddp->group, local, "models", "parameter", items, n);
    if (status != TUTTI_OK)
        return status;
    memset(items, 0, n * sizeof *items);
    for (size_t i = 0; i < ddp->n_buffers; i++)
        describe(&items[i], ddp->buffers[i], "");
    status = tutti__agree(ddp->group, "models", "buffer", items, ddp->n_buffers);
    memset(items, 0, ddp->n_buffers * sizeof *items);
    return status;
}

static tutti_status agree_on_options(const tutti_ddp *ddp, tutti__item *items)
{
    const tutti_ddp_opts *o = &ddp->opts;
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"keep_buffers", o->keep_buffers},
                 {"buffer_hook", o->buffer_hook != NULL},
                 {"find_unused", o->find_unused},
                 {"static_graph", o->static_graph}};
    size_t n = TUTTI__COUNT_OF(flags);

    for (size_t i = 0; i < n; i++)
        snprintf(items[i].text, sizeof items[i].text, "%s %s", flags[i].name,
                 flags[i].value ? "true" : "false");
    for (size_t i = 0; i < ddp->limits.n; i++) {
        const char *name = !ddp->limits.shortens_last ? "bucket_mb_list"
                           : i == 0                   ? "first_bucket_mb"
                                                      : "bucket_mb";

        snprintf(items[n++].text, sizeof items->text, "%s %g", name, ddp->limits.mb[i]);
    }
    snprintf(items[n++].text, sizeof items->text, "check_replicas %d", o->check_replicas);
    snprintf(items[n++].text, sizeof items->text, "shards %d", o->shards);
    snprintf(items[n++].text, sizeof items->text, "zero %d", o->zero);
    snprintf(items[n++].text, sizeof items->text, "zero_ranks %d", o->zero_ranks);
    snprintf(items[n++].text, sizeof items->text, "offload_parameters %s",
             o->offload_parameters ? "true" : "false");
    snprintf(items[n++].text, sizeof items->text, "reduce_dtype %s",
             tutti_dtype_name(o->reduce_dtype));
    return tutti__agree(ddp->group, "options of tutti_ddp_new", "option", items, n);
}

/* Warns if builds differ: replicas stay equal anyway, but other ranks could not repeat the run with the same bits. */
static tutti_status compare_builds(const tutti_ddp *ddp)
{
    const int size = tutti_group_size(ddp->group);
    char mine[TUTTI__BUILD_TEXT] = "", (*all)[TUTTI__BUILD_TEXT];
    tutti_status status;
    int other = 1;

    if (size == 1)
        return TUTTI_OK;
    all = tutti__alloc((size_t)size * sizeof *all);
    if (!all) {
        tutti_group_abort(ddp->group, "no memory for the builds of %d ranks", size);
        return TUTTI_ERR_MEMORY;
    }
    snprintf(mine, sizeof mine, "%s", tutti__build_text());
    status = tutti_all_gather(ddp->group, TUTTI_CONST_BUF(mine, sizeof mine, TUTTI_U8),
                              TUTTI_BUF(all, (size_t)size * sizeof *all, TUTTI_U8), NULL);
    while (other < size && strcmp(all[other], all[0]) == 0)
        other++;
    if (status == TUTTI_OK && other < size && tutti_group_rank(ddp->group) == 0)
        tutti_log(TUTTI_LOG_WARN, "ddp",
                  "rank 0 computes with %s, but rank %d with %s: replicas stay equal, but another "
                  "number or order of ranks gives other bits; the same build everywhere and one "
                  "TUTTI_CPU_ISA (such as avx2) make the run repeatable",
                  all[0], other, all[other]);
    free(all);
    return status;
}

/* ---- Copying ---------------------------------------------------------------------------------------------------------- */

/* One broadcast per parameter, all in flight together: ignored ones may be anywhere in between. works: zeroed, one for each. */
static tutti_status copy_parameters(tutti_ddp *ddp, tutti_work **works)
{
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < ddp->n && status == TUTTI_OK; i++) {
        tutti_tensor *t = ddp->parameters[i];

        if (ddp->roles[i] != TUTTI__IGNORED)
            status = tutti_broadcast(ddp->group,
                                     (tutti_buf){t->data, (size_t)tutti_shape_count(t->shape),
                                                 t->dtype, tutti__ddp_stream(ddp)},
                                     ddp->source, &works[i]);
        t->kernel_cache_step = 0; /* it has the old values */
    }
    for (size_t i = 0; i < ddp->n; i++) {
        tutti_status done = works[i] ? tutti_work_wait(works[i]) : TUTTI_OK;

        status = status == TUTTI_OK ? done : status;
    }
    return status;
}

/* One by one, only once: later all ranks have the mean over shards. */
static tutti_status copy_buffers(tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_buffers; i++)
        TUTTI_TRY(tutti_broadcast(ddp->group,
                                  (tutti_buf){ddp->buffers[i]->data,
                                              (size_t)tutti_shape_count(ddp->buffers[i]->shape),
                                              ddp->buffers[i]->dtype, tutti__ddp_stream(ddp)},
                                  ddp->source, NULL));
    return TUTTI_OK;
}

static tutti_status copy_from_rank_0(tutti_ddp *ddp, tutti_work **works)
{
    if (tutti_group_size(ddp->group) == 1)
        return TUTTI_OK;
    if (!tutti__zero_has_parameters(ddp) || ddp->shards) /* else shares, which have been copied */
        TUTTI_TRY(copy_parameters(ddp, works));
    if (ddp->shards)
        return copy_buffers(ddp);
    for (size_t i = 0; i < ddp->n_buffers; i++)
        ddp->packed_bytes += tutti__tensor_bytes(ddp->buffers[i]);
    if (ddp->packed_bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_group_alloc_on(ddp->group, tutti__ddp_stream(ddp), ddp->packed_bytes,
                                   (void **)&ddp->packed));
    return tutti_ddp_broadcast_buffers(ddp);
}

tutti_status tutti__ddp_enter(tutti_ddp *ddp, tutti_status local)
{
    tutti__item *items = NULL;
    tutti_status status;

    if (local == TUTTI_OK) {
        items = tutti__alloc((ddp->n + ddp->n_buffers + ddp->limits.n + 10) * sizeof *items);
        local = items ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    status = agree_on_tensors(ddp, local, items);
    if (status == TUTTI_OK)
        status = agree_on_options(ddp, items);
    if (status == TUTTI_OK && !ddp->shards)
        status = compare_builds(ddp);
    free(items);
    if (status == TUTTI_OK)
        status = tutti__agree_number(ddp->group, &ddp->number);
    if (status == TUTTI_OK && ddp->shards)
        status = tutti_reducer_regroup(ddp->reducer, ddp->group);
    return status;
}

/* The local part: roles, flat memory, and allocations. */
static tutti_status take(tutti_ddp *ddp, const tutti_ddp_opts *opts, tutti_work ***works_p)
{
    tutti_flat flat;

    TUTTI_TRY(take_roles(ddp, opts));
    if (ddp->opts.zero < 3)
        TUTTI_TRY(tutti_module_flat(ddp->module, &flat));
    TUTTI_TRY(tutti__zero_check(ddp));
    if (ddp->opts.shards > 0)
        TUTTI_TRY(tutti__ddp_shards_new(ddp));
    if (ddp->opts.zero > 0)
        TUTTI_TRY(tutti__zero_open(ddp));
    *works_p = tutti__alloc(ddp->n * sizeof(tutti_work *));
    return *works_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__ddp_replicate(tutti_ddp *ddp, const tutti_ddp_opts *opts, tutti_status local)
{
    tutti_work **works = NULL;
    tutti_status status;

    if (local == TUTTI_OK)
        local = take(ddp, opts, &works);
    status = ddp->group ? tutti__ddp_enter(ddp, local) : local;
    if (status == TUTTI_OK)
        status = tutti__zero_part(ddp);
    if (status == TUTTI_OK && tutti__zero_has_parameters(ddp))
        status = tutti__zero_lay_out(ddp);
    if (status == TUTTI_OK && ddp->group)
        status = copy_from_rank_0(ddp, works);
    free(works);
    return status;
}

tutti_status tutti__ddp_copy(tutti_ddp *ddp)
{
    tutti_work **works = tutti__alloc(ddp->n * sizeof(tutti_work *));
    tutti_status status = works ? copy_parameters(ddp, works) : TUTTI_ERR_MEMORY;

    free(works);
    return status == TUTTI_OK ? tutti_ddp_broadcast_buffers(ddp) : status;
}

bool tutti__ddp_sends_buffers(const tutti_ddp *ddp)
{
    return !ddp->opts.keep_buffers && !ddp->paused && ddp->n_buffers > 0;
}

/* Copies all buffers into the message, or out of it. */
static tutti_status copy_packed(const tutti_ddp *ddp, bool in)
{
    unsigned char *at = ddp->packed;

    for (size_t i = 0; i < ddp->n_buffers; i++) {
        tutti_tensor *t = ddp->buffers[i];
        const size_t bytes = tutti__tensor_bytes(t);

        TUTTI_TRY(tutti__copy(tutti__ddp_stream(ddp), in ? at : t->data, in ? t->data : at, bytes));
        at += bytes;
    }
    return TUTTI_OK;
}

/* Packs rank 0's buffers into one message. */
tutti_status tutti_ddp_broadcast_buffers(tutti_ddp *ddp)
{
    bool is_source;

    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    if (!ddp->packed)
        return TUTTI_OK;
    is_source = tutti_group_rank(ddp->group) == ddp->source;
    if (is_source)
        TUTTI_TRY(copy_packed(ddp, true));
    TUTTI_TRY(tutti_broadcast(
        ddp->group, (tutti_buf){ddp->packed, ddp->packed_bytes, TUTTI_U8, tutti__ddp_stream(ddp)},
        ddp->source, NULL));
    if (!is_source)
        TUTTI_TRY(copy_packed(ddp, false));
    ddp->buffers_round = tutti_module_ctx(ddp->module)->round;
    return TUTTI_OK;
}
