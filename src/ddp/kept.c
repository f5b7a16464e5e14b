/* kept.c -- lists the memory of a rank that outlasts a step, and hashes it.   SPDX-License-Identifier: MIT */
#include "ddp/kept.h"

#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct listing {
    const tutti_ddp *ddp;
    tutti__kept *list; /* NULL: only counts */
    size_t n;
} listing;

static void add(listing *l, tutti__kept kept)
{
    if (l->list)
        l->list[l->n] = kept;
    l->n++;
}

static void add_tensor(listing *l, tutti__kept_kind kind, const tutti_tensor *t)
{
    add(l, (tutti__kept){.kind = kind,
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
        add(l, (tutti__kept){.kind = TUTTI__KEPT_STATE,
                             .name = name,
                             .of = t->name,
                             .p = optim->state[k] ? optim->state[k] + optim->offsets[i] : NULL,
                             .bytes = optim->state[k] ? tutti__tensor_bytes(t) : 0,
                             .on_host = optim->offloaded || !optim->state[k],
                             .replicated = true});
    add(l, (tutti__kept){.kind = TUTTI__KEPT_STATE,
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
    add(l, (tutti__kept){.kind = TUTTI__KEPT_PARAMETERS,
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
            add(l, (tutti__kept){.kind = TUTTI__KEPT_STATE,
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
            add_tensor(l, TUTTI__KEPT_PARAMETERS, ddp->parameters[i]);
    for (size_t i = 0; i < ddp->n_buffers; i++)
        add_tensor(l, TUTTI__KEPT_BUFFERS, ddp->buffers[i]);
    for (const tutti__optim_entry *e = ddp->module->root->optims; e; e = e->next)
        for (size_t i = 0; i < ddp->n && !((const tutti_optim *)e)->sharding; i++)
            if (ddp->roles[i] == TUTTI__AVERAGED)
                add_state(l, (const tutti_optim *)e, ddp->parameters[i]);
    add_shares(l);
}

tutti_status tutti__kept_list(const tutti_ddp *ddp, tutti__kept **list_p, size_t *n_p)
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

void tutti__kept_describe(const tutti__kept *kept, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", kept->name, kept->of ? " of " : "", kept->of ? kept->of : "");
}

/* ---- Seals ---- */

/* without: not those of this kind, whose hashes are 0. */
static tutti_status hash_all(tutti_stream *stream, const tutti__kept *list, size_t n,
                             tutti__kept_kind without, uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) {
        const tutti__kept *kept = &list[i];

        hashes[i] = 0;
        if (kept->kind != without)
            TUTTI_TRY(tutti__hash_memory(kept->on_host ? &tutti__cpu_stream : stream, kept->p,
                                         kept->bytes, &hashes[i]));
    }
    return TUTTI_OK;
}

void tutti__seal_drop(tutti__seal *seal)
{
    free(seal->list);
    free(seal->hashes);
    *seal = (tutti__seal){0};
}

tutti_status tutti__seal_copy(const tutti__seal *seal, tutti__seal *copy_p)
{
    *copy_p = (tutti__seal){.list = tutti__alloc((seal->n + 1) * sizeof *seal->list),
                            .hashes = tutti__alloc((seal->n + 1) * sizeof *seal->hashes),
                            .n = seal->n};
    if (!copy_p->list || !copy_p->hashes) {
        tutti__seal_drop(copy_p);
        return TUTTI_ERR_MEMORY;
    }
    if (seal->n > 0) {
        memcpy(copy_p->list, seal->list, seal->n * sizeof *seal->list);
        memcpy(copy_p->hashes, seal->hashes, seal->n * sizeof *seal->hashes);
    }
    return TUTTI_OK;
}

static tutti_status seal_without(tutti__seal *seal, const tutti_ddp *ddp, tutti_stream *stream,
                                 tutti__kept_kind without)
{
    tutti_status status;

    tutti__seal_drop(seal);
    TUTTI_TRY(tutti__kept_list(ddp, &seal->list, &seal->n));
    seal->hashes = tutti__alloc_unset((seal->n + 1) * sizeof *seal->hashes);
    status = seal->hashes ? hash_all(stream, seal->list, seal->n, without, seal->hashes)
                          : TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK)
        tutti__seal_drop(seal);
    return status;
}

tutti_status tutti__seal_take(tutti__seal *seal, const tutti_ddp *ddp, tutti_stream *stream)
{
    return seal_without(seal, ddp, stream, TUTTI__KEPT_KINDS);
}

/* Contents stay when memory is laid out anew; state is made in the first update. */
static bool is_same_piece(const tutti__kept *a, const tutti__kept *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && strcmp(a->name, b->name) == 0 &&
           strcmp(a->of ? a->of : "", b->of ? b->of : "") == 0;
}

tutti_status tutti__seal_compare(const tutti__seal *seal, const tutti_ddp *ddp,
                                 tutti_stream *stream, const tutti__kept **changed_p)
{
    tutti__seal now = {0};
    *changed_p = NULL;
    TUTTI_TRY(seal_without(&now, ddp, stream, TUTTI__KEPT_BUFFERS)); /* forward writes those */
    for (size_t i = 0; i < seal->n && i < now.n && !*changed_p; i++)
        if (seal->list[i].kind != TUTTI__KEPT_BUFFERS &&
            is_same_piece(&seal->list[i], &now.list[i]) && seal->hashes[i] != now.hashes[i])
            *changed_p = &seal->list[i];
    tutti__seal_drop(&now);
    return TUTTI_OK;
}

tutti_status tutti__seal_broken(const tutti__kept *changed, int rank, uint64_t step)
{
    char name[256], where[96];

    tutti__kept_describe(changed, name, sizeof name);
    tutti__host_and_core(where, sizeof where);
    return tutti__fail(TUTTI_ERR_DEVICE,
                       "rank %d (%s): \"%s\" has changed in memory between the update of step %llu "
                       "and the next, when nothing writes it: the memory is faulty, or something "
                       "else has written there",
                       rank, where, name, (unsigned long long)step);
}
