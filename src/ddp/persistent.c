/* persistent.c -- lists the memory of a rank that outlasts a step, and hashes it.   SPDX-License-Identifier: MIT */
#include "ddp/persistent.h"

#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct listing {
    const tutti_ddp *ddp;
    tutti__persistent *list; /* NULL: only counts */
    size_t n;
    bool saved; /* of buffers, what an open step has saved */
} listing;

static void add(listing *l, tutti__persistent piece)
{
    if (l->list)
        l->list[l->n] = piece;
    l->n++;
}

static void add_tensor(listing *l, tutti__persistent_kind kind, const tutti_tensor *t)
{
    add(l, (tutti__persistent){.kind = kind,
                               .name = t->name,
                               .p = t->data,
                               .bytes = tutti__tensor_bytes(t),
                               .share = TUTTI__NO_SHARE});
}

/* The state of a parameter; none before the first step. */
static void add_state(listing *l, const tutti_optim *optim, const tutti_tensor *t)
{
    const size_t i = t->parameter->index;
    const char *name;

    for (size_t k = 0; (name = tutti_optim_state_name(optim, k)); k++)
        add(l,
            (tutti__persistent){.kind = TUTTI__PERSISTENT_STATE,
                                .name = name,
                                .of = t->name,
                                .p = optim->state[k] ? optim->state[k] + optim->offsets[i] : NULL,
                                .bytes = optim->state[k] ? tutti__tensor_bytes(t) : 0,
                                .on_host = optim->offloaded || !optim->state[k],
                                .share = TUTTI__NO_SHARE});
    add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_STATE,
                               .name = "the count of updates",
                               .of = t->name,
                               .p = optim->steps ? optim->steps + i : NULL,
                               .bytes = optim->steps ? sizeof *optim->steps : 0,
                               .on_host = true,
                               .share = TUTTI__NO_SHARE});
}

/* ---- Shares ---- */

/* Of which the part is: what all ranks have comes after the shares of all of them. */
static int share_of(const tutti__sharding *sharding, const tutti__range *range)
{
    const int rank = sharding->peers.rank, size = sharding->peers.size;

    return range->whole ? size : range->copy ? (rank + size - 1) % size : rank;
}

static void add_parameter_parts(listing *l, const tutti__sharding *sharding, const tutti_tensor *t)
{
    const struct tutti_root *root = l->ddp->module->root;
    const size_t begin = root->offsets[t->parameter->index],
                 end = begin + (size_t)tutti_shape_count(t->shape);

    for (tutti__range_part part = {0}; tutti__sharding_next(sharding, begin, end, &part);)
        add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_PARAMETERS,
                                   .name = "this rank's share",
                                   .of = t->name,
                                   .p = part.range->host
                                            ? part.range->host + (part.low - part.range->begin)
                                            : root->flat_parameters + part.low,
                                   .bytes = (part.high - part.low) * sizeof(float),
                                   .on_host = part.range->host != NULL,
                                   .share = share_of(sharding, part.range)});
}

static void add_state_parts(listing *l, const tutti_optim *optim, const tutti_tensor *t)
{
    const size_t begin = l->ddp->module->root->offsets[t->parameter->index],
                 end = begin + (size_t)tutti_shape_count(t->shape);
    const char *name;

    for (tutti__range_part part = {0}; tutti__sharding_next(optim->sharding, begin, end, &part);)
        for (size_t k = 0; !part.range->bare && (name = tutti_optim_state_name(optim, k)); k++)
            if (optim->state[k])
                add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_STATE,
                                           .name = name,
                                           .of = t->name,
                                           .p = optim->state[k] + part.state,
                                           .bytes = (part.high - part.low) * sizeof(float),
                                           .on_host = optim->offloaded,
                                           .share = share_of(optim->sharding, part.range)});
}

static void add_shares(listing *l, const tutti_tensor *t)
{
    const struct tutti_root *root = l->ddp->module->root;
    const tutti__sharding *sharding = root->sharding;

    if (sharding && sharding->layouts == root->layouts && root->reserved)
        add_parameter_parts(l, sharding, t);
    for (const tutti__optim_entry *e = root->optims; e; e = e->next) {
        const tutti_optim *optim = (const tutti_optim *)e;

        if (optim->sharding && optim->layouts == root->layouts)
            add_state_parts(l, optim, t);
    }
}

/* ---- The list ---- */

static void list_all(listing *l)
{
    const tutti_ddp *ddp = l->ddp;

    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->roles[i] != TUTTI__IGNORED && !ddp->parameters[i]->parameter->store)
            add_tensor(l, TUTTI__PERSISTENT_PARAMETERS, ddp->parameters[i]);
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        add_tensor(l, TUTTI__PERSISTENT_BUFFERS, ddp->buffers[i]);
        if (l->list && l->saved)
            l->list[l->n - 1].p = tutti__ddp_saved_buffer(ddp, i);
    }
    for (const tutti__optim_entry *e = ddp->module->root->optims; e; e = e->next)
        for (size_t i = 0; i < ddp->n && !((const tutti_optim *)e)->sharding; i++)
            if (ddp->roles[i] == TUTTI__AVERAGED)
                add_state(l, (const tutti_optim *)e, ddp->parameters[i]);
    for (size_t i = 0; i < ddp->n; i++)
        add_shares(l, ddp->parameters[i]);
}

static tutti_status list(const tutti_ddp *ddp, bool saved, tutti__persistent **list_p, size_t *n_p)
{
    listing l = {.ddp = ddp, .saved = saved};

    list_all(&l);
    *list_p = l.list = tutti__alloc((l.n + 1) * sizeof *l.list);
    if (!l.list)
        return TUTTI_ERR_MEMORY;
    l.n = 0;
    list_all(&l);
    *n_p = l.n;
    return TUTTI_OK;
}

tutti_status tutti__persistent_list(const tutti_ddp *ddp, tutti__persistent **list_p, size_t *n_p)
{
    return list(ddp, false, list_p, n_p);
}

void tutti__persistent_describe(const tutti__persistent *piece, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", piece->name, piece->of ? " of " : "",
             piece->of ? piece->of : "");
}

/* ---- Checksums ---- */

/* Those of buffers that are left out are 0. */
static tutti_status hash_all(const tutti__checksums *c, tutti_stream *stream, bool buffers)
{
    for (size_t i = 0; i < c->n; i++) {
        const tutti__persistent *piece = &c->list[i];

        c->hashes[i] = 0;
        if (buffers || piece->kind != TUTTI__PERSISTENT_BUFFERS)
            TUTTI_TRY(tutti__hash_memory(piece->on_host ? &tutti__cpu_stream : stream, piece->p,
                                         piece->bytes, &c->hashes[i]));
    }
    return TUTTI_OK;
}

void tutti__checksums_drop(tutti__checksums *checksums)
{
    free(checksums->list);
    free(checksums->hashes);
    *checksums = (tutti__checksums){0};
}

tutti_status tutti__checksums_copy(const tutti__checksums *checksums, tutti__checksums *copy_p)
{
    *copy_p =
        (tutti__checksums){.list = tutti__alloc((checksums->n + 1) * sizeof *checksums->list),
                           .hashes = tutti__alloc((checksums->n + 1) * sizeof *checksums->hashes),
                           .n = checksums->n};
    if (!copy_p->list || !copy_p->hashes) {
        tutti__checksums_drop(copy_p);
        return TUTTI_ERR_MEMORY;
    }
    if (checksums->n > 0) {
        memcpy(copy_p->list, checksums->list, checksums->n * sizeof *checksums->list);
        memcpy(copy_p->hashes, checksums->hashes, checksums->n * sizeof *checksums->hashes);
    }
    return TUTTI_OK;
}

static tutti_status take(tutti__checksums *c, const tutti_ddp *ddp, tutti_stream *stream,
                         bool buffers, bool saved)
{
    tutti_status status;

    tutti__checksums_drop(c);
    TUTTI_TRY(list(ddp, saved, &c->list, &c->n));
    c->hashes = tutti__alloc_unset((c->n + 1) * sizeof *c->hashes);
    status = c->hashes ? hash_all(c, stream, buffers) : TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK)
        tutti__checksums_drop(c);
    return status;
}

tutti_status tutti__checksums_take(tutti__checksums *checksums, const tutti_ddp *ddp,
                                   tutti_stream *stream)
{
    return take(checksums, ddp, stream, true, false);
}

/* Contents stay when memory is laid out anew; state is made in the first update. */
static bool is_same_piece(const tutti__persistent *a, const tutti__persistent *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && strcmp(a->name, b->name) == 0 &&
           strcmp(a->of ? a->of : "", b->of ? b->of : "") == 0;
}

tutti_status tutti__checksums_compare(const tutti__checksums *checksums, const tutti_ddp *ddp,
                                      tutti_stream *stream, bool saved,
                                      const tutti__persistent **changed_p)
{
    tutti__checksums now = {0};

    *changed_p = NULL;
    TUTTI_TRY(take(&now, ddp, stream, saved, saved));
    for (size_t i = 0; i < checksums->n && i < now.n && !*changed_p; i++)
        if ((saved || checksums->list[i].kind != TUTTI__PERSISTENT_BUFFERS) &&
            is_same_piece(&checksums->list[i], &now.list[i]) &&
            checksums->hashes[i] != now.hashes[i])
            *changed_p = &checksums->list[i];
    tutti__checksums_drop(&now);
    return TUTTI_OK;
}

tutti_status tutti__checksums_differ(const tutti__persistent *changed, int rank, uint64_t step)
{
    char name[256], where[96];

    tutti__persistent_describe(changed, name, sizeof name);
    tutti__host_and_core(where, sizeof where);
    return tutti__fail(TUTTI_ERR_DEVICE,
                       "rank %d (%s): \"%s\" has changed in memory between the update of step %llu "
                       "and the next, when nothing writes it: the memory is faulty, or something "
                       "else has written there",
                       rank, where, name, (unsigned long long)step);
}
