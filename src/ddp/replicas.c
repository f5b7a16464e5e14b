/* replicas.c -- checks that all replicas have the same bits; if not, names the ranks and the tensor.
 * SPDX-License-Identifier: MIT
 *
 * Each rank brings one hash of the hashes of its tensors and of its optimizers' state. If those differ, ranks exchange the hashes
 * of each, so that all return the same message: with three or more ranks the majority is right, and the others are named, with the
 * first that differs. Two ranks, or no majority, are shown side by side. Hyper-parameters of optimizers count like a tensor,
 * and are reported first, because they make the others differ. */
#include "ddp/kept.h"
#include "nn/nn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    char text[96]; /* "host a, core 3" */
} place;

/* What every rank knows after the exchange. */
typedef struct verdict {
    const tutti_ddp *ddp;
    const uint64_t *totals; /* of each rank */
    const uint64_t *hashes; /* n of each rank */
    const tutti__kept *list;
    size_t n;
    const place *places; /* of each rank */
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
    tutti__kept_describe(&v->list[i], text, 256);
    return text;
}

static tutti_status fail_apart(const verdict *v, int right)
{
    char ranks[1200] = "", name[256];
    size_t used = 0;
    int n = 0, first = -1;

    for (int r = 0; r < v->size; r++) {
        if (v->totals[r] == v->totals[right])
            continue;
        first = first < 0 ? r : first;
        if (n++ < 8)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used,
                                     "%s%d (%s, digest %016" PRIx64 ")", n > 1 ? ", " : "", r,
                                     v->places[r].text, v->totals[r]);
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
    char ranks[1200] = "", name[256];
    size_t used = 0;
    int other = 1;

    while (v->totals[other] == v->totals[0])
        other++;
    for (int r = 0; r < v->size && r < 8; r++)
        used +=
            (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%016" PRIx64 " on rank %d (%s)",
                             r ? ", " : "", v->totals[r], r, v->places[r].text);
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

static tutti_status gather(const verdict *v, const void *mine, void *all, size_t bytes)
{
    return tutti_all_gather(v->ddp->group, TUTTI_CONST_BUF(mine, bytes, TUTTI_U8),
                            TUTTI_BUF(all, (size_t)v->size * bytes, TUTTI_U8), NULL);
}

/* Of this rank's own: the others, who would wait for it, hear of it. */
static tutti_status fail_alone(const tutti_ddp *ddp, tutti_status status)
{
    if (status != TUTTI_OK)
        tutti_group_abort(ddp->group, "%s", tutti_last_error());
    return status;
}

static tutti_status explain(verdict *v, const uint64_t *mine, tutti__replicas_verdict *verdict_p)
{
    uint64_t *hashes = tutti__alloc((size_t)v->size * v->n * sizeof *hashes);
    place *places = tutti__alloc((size_t)v->size * sizeof *places), here = {{0}};
    tutti_status status = fail_alone(v->ddp, hashes && places ? TUTTI_OK : TUTTI_ERR_MEMORY);
    const int rank = tutti_group_rank(v->ddp->group);
    int right = -1;

    tutti__host_and_core(here.text, sizeof here.text);
    if (status == TUTTI_OK)
        status = gather(v, mine, hashes, v->n * sizeof *mine);
    if (status == TUTTI_OK)
        status = gather(v, &here, places, sizeof here);
    if (status == TUTTI_OK) {
        v->hashes = hashes;
        v->places = places;
        right = majority(v);
        verdict_p->named = right < 0 || v->totals[rank] != v->totals[right];
        status = right >= 0 ? fail_apart(v, right) : fail_undecided(v);
    }
    free(hashes);
    free(places);
    return status;
}

/* mine: the hash of each, and room for one more; totals: room for one of each rank, and one more. */
static tutti_status compare(verdict *v, uint64_t *mine, uint64_t *totals, const tutti__item *items,
                            size_t n_items, tutti__replicas_verdict *verdict_p)
{
    bool differ = false;

    mine[v->n] = tutti__hash64(items, n_items * sizeof *items);
    totals[v->size] = tutti__hash64(mine, (v->n + 1) * sizeof *mine);
    TUTTI_TRY(gather(v, &totals[v->size], totals, sizeof *totals));
    v->totals = totals;
    for (int r = 1; r < v->size; r++)
        differ |= totals[r] != totals[0];
    if (!differ)
        return TUTTI_OK;
    TUTTI_TRY(tutti__agree_on_items(v->ddp->group, items, n_items));
    verdict_p->apart =
        true; /* known from here on, even if those that know more end before this rank does */
    return explain(v, mine, verdict_p);
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

/* Copies what ranks must have in common now. */
static size_t keep_replicated(const tutti_ddp *ddp, const tutti__seal *seal, tutti__kept *list,
                              uint64_t *hashes)
{
    const bool buffers = buffers_are_shared(ddp);
    size_t n = 0;

    for (size_t i = 0; i < seal->n; i++)
        if (seal->list[i].replicated && (buffers || seal->list[i].kind != TUTTI__KEPT_BUFFERS)) {
            list[n] = seal->list[i];
            hashes[n++] = seal->hashes[i];
        }
    return n;
}

tutti_status tutti__compare_replicas(const tutti_ddp *ddp, const tutti__seal *seal,
                                     tutti_status local, tutti__replicas_verdict *verdict_p)
{
    verdict v = {.ddp = ddp, .size = tutti_group_size(ddp->group)};
    uint64_t *hashes = tutti__alloc((seal->n + 1) * sizeof *hashes);
    uint64_t *totals = tutti__alloc(((size_t)v.size + 1) * sizeof *totals);
    tutti__kept *list = tutti__alloc((seal->n + 1) * sizeof *list);
    tutti__item *items = NULL;
    size_t n_items = 0;
    tutti_status status = local;

    *verdict_p = (tutti__replicas_verdict){0};
    if (status == TUTTI_OK && !(hashes && totals && list))
        status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = tutti__optim_items(ddp->module->root->optims, NULL, &items, &n_items);
    if (fail_alone(ddp, status) == TUTTI_OK) {
        v.n = keep_replicated(ddp, seal, list, hashes);
        v.list = list;
        status = compare(&v, hashes, totals, items, n_items, verdict_p);
    }
    free(list);
    free(hashes);
    free(totals);
    free(items);
    return status;
}

tutti_status tutti_ddp_check_replicas(tutti_ddp *ddp)
{
    tutti__replicas_verdict found;
    tutti__seal seal = {0};
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    status = tutti__compare_replicas(ddp, &seal,
                                     tutti__seal_take(&seal, ddp, tutti__ddp_stream(ddp)), &found);
    tutti__seal_drop(&seal);
    return status;
}
