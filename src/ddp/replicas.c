/* replicas.c -- checks that all replicas have the same bits; if not, names the ranks and the tensor.
 * SPDX-License-Identifier: MIT
 *
 * Each rank brings one hash of the hashes of its tensors and of its optimizers' state. If those differ, ranks exchange the hashes
 * of each, so that all return the same message: with three or more ranks the majority is right, and the others are named, with the
 * first that differs. Two ranks, or no majority, are shown side by side. Hyper-parameters of optimizers count like a tensor,
 * and are reported first, because they make the others differ. */
#include "ddp/ddp.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory that is compared: a tensor, or an optimizer's state of one. */
typedef struct compared {
    const char *name, *of; /* of: the tensor; NULL: it is one */
    const void *p;
    size_t bytes;
    bool on_host;
} compared;

/* What every rank knows after the exchange. */
typedef struct verdict {
    const tutti_ddp *ddp;
    const uint64_t *totals; /* of each rank */
    const uint64_t *hashes; /* n of each rank */
    const compared *list;
    size_t n;
    int size;
} verdict;

/* How many ranks have rank r's total. */
static int votes(const verdict *v, int r)
{
    int n = 0;

    for (int i = 0; i < v->size; i++)
        n += v->totals[i] == v->totals[r];
    return n;
}

/* A rank of the strict majority; -1: there is none, or only two ranks, of which either may be wrong. */
static int majority(const verdict *v)
{
    for (int r = 0; v->size > 2 && r < v->size; r++)
        if (2 * votes(v, r) > v->size)
            return r;
    return -1;
}

/* The first in which two ranks differ. */
static const char *first_difference(const verdict *v, int a, int b, char text[256])
{
    size_t i = 0;

    while (i < v->n && v->hashes[(size_t)a * v->n + i] == v->hashes[(size_t)b * v->n + i])
        i++;
    if (i == v->n)
        return "?";
    snprintf(text, 256, "%s%s%s", v->list[i].name, v->list[i].of ? " of " : "",
             v->list[i].of ? v->list[i].of : "");
    return text;
}

static tutti_status fail_apart(const verdict *v, int right)
{
    char ranks[256] = "", name[256];
    size_t used = 0;
    int n = 0, first = -1;

    for (int r = 0; r < v->size; r++) {
        if (v->totals[r] == v->totals[right])
            continue;
        first = first < 0 ? r : first;
        if (n++ < 8)
            used +=
                (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d (digest %016" PRIx64 ")",
                                 n > 1 ? ", " : "", r, v->totals[r]);
    }
    if (n > 8)
        snprintf(ranks + used, sizeof ranks - used, " and %d more", n - 8);
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: rank%s %s, where the other %d have %016" PRIx64
        "; \"%s\" is the first that differs on rank %d. Either its memory is faulty, or something "
        "other than the optimizer has changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(v->ddp->module)), n > 1 ? "s" : "",
        ranks, v->size - n, v->totals[right], first_difference(v, first, right, name), first);
}

static tutti_status fail_undecided(const verdict *v)
{
    char ranks[512] = "", name[256];
    size_t used = 0;
    int other = 1;

    while (v->totals[other] == v->totals[0])
        other++;
    for (int r = 0; r < v->size && r < 8; r++)
        used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%016" PRIx64 " on rank %d",
                                 r ? ", " : "", v->totals[r], r);
    if (v->size > 8)
        snprintf(ranks + used, sizeof ranks - used, " and so on");
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: the digest is %s; \"%s\" is the first that differs on ranks "
        "0 and %d. Either a rank's memory is faulty, or something other than the optimizer has "
        "changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(v->ddp->module)), ranks,
        first_difference(v, 0, other, name), other);
}

static tutti_status explain(verdict *v, const uint64_t *mine)
{
    uint64_t *hashes = tutti__alloc((size_t)v->size * v->n * sizeof *hashes);
    tutti_status status;
    int right;

    if (!hashes)
        return TUTTI_ERR_MEMORY;
    status =
        tutti_all_gather(v->ddp->group, TUTTI_CONST_BUF(mine, v->n * sizeof *mine, TUTTI_U8),
                         TUTTI_BUF(hashes, (size_t)v->size * v->n * sizeof *mine, TUTTI_U8), NULL);
    v->hashes = hashes;
    right = majority(v);
    if (status == TUTTI_OK)
        status = right >= 0 ? fail_apart(v, right) : fail_undecided(v);
    free(hashes);
    return status;
}

static compared tensor(const tutti_tensor *t)
{
    return (compared){t->name, NULL, t->data, tutti__tensor_bytes(t), false};
}

/* Adds the state that the optimizer has of a parameter; none before its first step. */
static size_t add_state(const tutti_optim *optim, const tutti_tensor *t, compared *list)
{
    const size_t i = t->parameter->index;
    const char *name;
    size_t n = 0;

    for (; (name = tutti_optim_state_name(optim, n)); n++)
        list[n] = optim->state[n] ? (compared){name, t->name, optim->state[n] + optim->offsets[i],
                                               tutti__tensor_bytes(t), optim->offloaded}
                                  : (compared){.name = name, .of = t->name, .on_host = true};
    list[n++] = (compared){"the count of updates", t->name, optim->steps ? optim->steps + i : NULL,
                           optim->steps ? sizeof *optim->steps : 0, true};
    return n;
}

/* Parameters that are not ignored, buffers, and the state of optimizers, except those of which each rank has a share. */
static size_t make_list(const tutti_ddp *ddp, bool buffers, compared *list)
{
    size_t n = 0;

    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->roles[i] != TUTTI__IGNORED && !ddp->parameters[i]->parameter->store)
            list[n++] = tensor(ddp->parameters[i]);
    for (size_t i = 0; buffers && i < ddp->n_buffers; i++)
        list[n++] = tensor(ddp->buffers[i]);
    for (const tutti__optim_entry *e = ddp->module->root->optims; e; e = e->next)
        for (size_t i = 0; i < ddp->n && !((const tutti_optim *)e)->sharding; i++)
            if (ddp->roles[i] == TUTTI__AVERAGED)
                n += add_state((const tutti_optim *)e, ddp->parameters[i], list + n);
    return n;
}

/* Of that list. */
static size_t most_compared(const tutti_ddp *ddp)
{
    size_t each = 1;

    for (const tutti__optim_entry *e = ddp->module->root->optims; e; e = e->next)
        each += TUTTI__OPTIM_STATES + 1;
    return ddp->n * each + ddp->n_buffers;
}

/* Memory of a device is copied to the host. */
static tutti_status hash_all(const verdict *v, uint64_t *hashes)
{
    tutti_stream *stream = tutti__ddp_stream(v->ddp);
    const bool on_host = tutti__on_host(stream);
    size_t largest = 0;
    void *copy = NULL;
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < v->n && !on_host; i++)
        largest = v->list[i].bytes > largest ? v->list[i].bytes : largest;
    if (largest > 0 && !(copy = tutti__alloc_unset(largest)))
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < v->n && status == TUTTI_OK; i++) {
        const compared *c = &v->list[i];
        const bool direct = on_host || c->on_host;

        if (!direct)
            status = tutti__read(stream, copy, c->p, c->bytes);
        hashes[i] = status == TUTTI_OK ? tutti__hash64(direct ? c->p : copy, c->bytes) : 0;
    }
    free(copy);
    return status;
}

/* Of this rank's own: the others, who would wait for it, hear of it. */
static tutti_status fail_alone(const tutti_ddp *ddp, tutti_status status)
{
    if (status != TUTTI_OK)
        tutti_group_abort(ddp->group, "%s", tutti_last_error());
    return status;
}

/* mine: room for a hash of each and one more. */
static tutti_status compare(verdict *v, uint64_t *mine, uint64_t *totals, const tutti__item *items,
                            size_t n_items)
{
    bool differ = false;

    TUTTI_TRY(fail_alone(v->ddp, hash_all(v, mine)));
    mine[v->n] = tutti__hash64(items, n_items * sizeof *items);
    totals[v->size] = tutti__hash64(mine, (v->n + 1) * sizeof *mine);
    TUTTI_TRY(
        tutti_all_gather(v->ddp->group, TUTTI_CONST_BUF(&totals[v->size], sizeof *totals, TUTTI_U8),
                         TUTTI_BUF(totals, (size_t)v->size * sizeof *totals, TUTTI_U8), NULL));
    v->totals = totals;
    for (int r = 1; r < v->size; r++)
        differ |= totals[r] != totals[0];
    if (!differ)
        return TUTTI_OK;
    TUTTI_TRY(tutti__agree_on_items(v->ddp->group, items, n_items));
    return explain(v, mine);
}

/* Buffers are the same only until a step computes with them. With shards every step ends with their mean; ranks that have just
 * joined have computed none. */
static bool buffers_are_shared(const tutti_ddp *ddp)
{
    if (ddp->shards)
        return !tutti__ddp_shards_open(ddp);
    return !ddp->opts.keep_buffers && !ddp->opts.buffer_hook &&
           ddp->buffers_round == tutti_module_ctx(ddp->module)->round;
}

static tutti_status check_replicas(tutti_ddp *ddp)
{
    const size_t most = most_compared(ddp);
    verdict v = {.ddp = ddp, .size = tutti_group_size(ddp->group)};
    compared *list = tutti__alloc((most + 1) * sizeof *list);
    uint64_t *mine = tutti__alloc((most + 1) * sizeof *mine);
    uint64_t *totals = tutti__alloc(((size_t)v.size + 1) * sizeof *totals);
    tutti__item *items = NULL;
    size_t n_items;
    tutti_status status = tutti__optim_items(ddp->module->root->optims, NULL, &items, &n_items);

    if (!list || !mine || !totals)
        status = TUTTI_ERR_MEMORY;
    if (fail_alone(ddp, status) == TUTTI_OK) {
        v.n = make_list(ddp, buffers_are_shared(ddp), list);
        v.list = list;
        status = compare(&v, mine, totals, items, n_items);
    }
    free(list);
    free(mine);
    free(totals);
    free(items);
    return status;
}

tutti_status tutti_ddp_check_replicas(tutti_ddp *ddp)
{
    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    return check_replicas(ddp);
}
