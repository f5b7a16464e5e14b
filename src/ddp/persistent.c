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
                               .replicated = true});
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
                                .replicated = true});
    add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_STATE,
                               .name = "the count of updates",
                               .of = t->name,
                               .p = optim->steps ? optim->steps + i : NULL,
                               .bytes = optim->steps ? sizeof *optim->steps : 0,
                               .on_host = true,
                               .replicated = true});
}

/* ---- Shares ---- */

/* Calls f for the part of each parameter that is in a range; `at`: the elements of state before the range. */
static void each_share(listing *l, const tutti__sharding *sharding, const void *arg,
                       void (*f)(listing *l, const void *arg, const tutti__range *range, size_t at,
                                 const tutti_tensor *t, size_t low, size_t high))
{
    const struct tutti_root *root = l->ddp->module->root;
    size_t at = 0;

    for (size_t r = 0; r < sharding->n; r++) {
        const tutti__range *range = &sharding->ranges[r];

        for (size_t i = 0; i < l->ddp->n; i++) {
            const tutti_tensor *t = l->ddp->parameters[i];
            const size_t begin = root->offsets[t->parameter->index],
                         end = begin + (size_t)tutti_shape_count(t->shape);
            size_t low, high;

            if (tutti__range_meets(range, begin, end, &low, &high))
                f(l, arg, range, at, t, low, high);
        }
        at += tutti__range_state(range);
    }
}

static void add_share(listing *l, const void *arg, const tutti__range *range, size_t at,
                      const tutti_tensor *t, size_t low, size_t high)
{
    float *flat = l->ddp->module->root->flat_parameters;

    (void)arg;
    (void)at;
    add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_PARAMETERS,
                               .name = "this rank's share",
                               .of = t->name,
                               .p = range->host ? range->host + (low - range->begin) : flat + low,
                               .bytes = (high - low) * sizeof *flat,
                               .on_host = range->host != NULL});
}

static void add_state_share(listing *l, const void *arg, const tutti__range *range, size_t at,
                            const tutti_tensor *t, size_t low, size_t high)
{
    const tutti_optim *optim = arg;
    const char *name;

    for (size_t k = 0; !range->bare && (name = tutti_optim_state_name(optim, k)); k++)
        if (optim->state[k])
            add(l, (tutti__persistent){.kind = TUTTI__PERSISTENT_STATE,
                                       .name = name,
                                       .of = t->name,
                                       .p = optim->state[k] + at + (low - range->begin),
                                       .bytes = (high - low) * sizeof(float),
                                       .on_host = optim->offloaded});
}

static void add_shares(listing *l)
{
    const struct tutti_root *root = l->ddp->module->root;
    const tutti__sharding *sharding = root->sharding;

    if (sharding && sharding->layouts == root->layouts && root->reserved)
        each_share(l, sharding, NULL, add_share);
    for (const tutti__optim_entry *e = root->optims; e; e = e->next) {
        const tutti_optim *optim = (const tutti_optim *)e;

        if (optim->sharding && optim->layouts == root->layouts)
            each_share(l, optim->sharding, optim, add_state_share);
    }
}

/* ---- The list ---- */

static void list_all(listing *l)
{
    const tutti_ddp *ddp = l->ddp;

    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->roles[i] != TUTTI__IGNORED && !ddp->parameters[i]->parameter->store)
            add_tensor(l, TUTTI__PERSISTENT_PARAMETERS, ddp->parameters[i]);
    for (size_t i = 0; i < ddp->n_buffers; i++)
        add_tensor(l, TUTTI__PERSISTENT_BUFFERS, ddp->buffers[i]);
    for (const tutti__optim_entry *e = ddp->module->root->optims; e; e = e->next)
        for (size_t i = 0; i < ddp->n && !((const tutti_optim *)e)->sharding; i++)
            if (ddp->roles[i] == TUTTI__AVERAGED)
                add_state(l, (const tutti_optim *)e, ddp->parameters[i]);
    add_shares(l);
}

tutti_status tutti__persistent_list(const tutti_ddp *ddp, tutti__persistent **list_p, size_t *n_p)
{
    listing l = {.ddp = ddp};

    list_all(&l);
    *list_p = l.list = tutti__alloc((l.n + 1) * sizeof *l.list);
    if (!l.list)
        return TUTTI_ERR_MEMORY;
    l.n = 0;
    list_all(&l);
    *n_p = l.n;
    return TUTTI_OK;
}

void tutti__persistent_describe(const tutti__persistent *piece, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", piece->name, piece->of ? " of " : "",
             piece->of ? piece->of : "");
}

/* ---- Checksums ---- */

/* without: not those of this kind, whose hashes are 0. */
static tutti_status hash_all(tutti_stream *stream, const tutti__persistent *list, size_t n,
                             tutti__persistent_kind without, uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) {
        const tutti__persistent *piece = &list[i];

        hashes[i] = 0;
        if (piece->kind != without)
            TUTTI_TRY(tutti__hash_memory(piece->on_host ? &tutti__cpu_stream : stream, piece->p,
                                         piece->bytes, &hashes[i]));
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

static tutti_status checksums_without(tutti__checksums *checksums, const tutti_ddp *ddp,
                                      tutti_stream *stream, tutti__persistent_kind without)
{
    tutti_status status;

    tutti__checksums_drop(checksums);
    TUTTI_TRY(tutti__persistent_list(ddp, &checksums->list, &checksums->n));
    checksums->hashes = tutti__alloc_unset((checksums->n + 1) * sizeof *checksums->hashes);
    status = checksums->hashes
                 ? hash_all(stream, checksums->list, checksums->n, without, checksums->hashes)
                 : TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK)
        tutti__checksums_drop(checksums);
    return status;
}

tutti_status tutti__checksums_take(tutti__checksums *checksums, const tutti_ddp *ddp,
                                   tutti_stream *stream)
{
    return checksums_without(checksums, ddp, stream, TUTTI__PERSISTENT_KINDS);
}

/* Contents stay when memory is laid out anew; state is made in the first update. */
static bool is_same_piece(const tutti__persistent *a, const tutti__persistent *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && strcmp(a->name, b->name) == 0 &&
           strcmp(a->of ? a->of : "", b->of ? b->of : "") == 0;
}

tutti_status tutti__checksums_compare(const tutti__checksums *checksums, const tutti_ddp *ddp,
                                      tutti_stream *stream, const tutti__persistent **changed_p)
{
    tutti__checksums now = {0};
    *changed_p = NULL;
    TUTTI_TRY(
        checksums_without(&now, ddp, stream, TUTTI__PERSISTENT_BUFFERS)); /* forward writes those */
    for (size_t i = 0; i < checksums->n && i < now.n && !*changed_p; i++)
        if (checksums->list[i].kind != TUTTI__PERSISTENT_BUFFERS &&
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
