/* replicas.c -- checks that all replicas have the same bits; if not, names the ranks and the tensor.
 * SPDX-License-Identifier: MIT
 *
 * Each rank brings one hash of the hashes of its tensors and of its optimizers' state. If those differ, ranks exchange the hashes
 * of each, so that all return the same message: with three or more ranks the majority is right, and the others are named, with the
 * first that differs. Two ranks, or no majority, are shown side by side. Hyper-parameters of optimizers count like a tensor,
 * and are reported first, because they make the others differ. */
#include "ddp/persistent.h"
#include "nn/nn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    char text[96]; /* "host a, core 3" */
} place;

/* What every rank knows after the exchange. */
typedef struct comparison {
    const tutti_ddp *ddp;
    const uint64_t *digests; /* of each rank */
    const uint64_t *hashes;  /* n of each rank */
    const tutti__persistent *list;
    size_t n;
    const place *places; /* of each rank */
    int size;
} comparison;

/* How many ranks have rank r's digest. */
static int votes(const comparison *c, int r)
{
    int n = 0;

    for (int i = 0; i < c->size; i++)
        n += c->digests[i] == c->digests[r];
    return n;
}

/* A rank of the strict majority; -1: there is none, or only two ranks, of which either may be wrong. */
static int majority(const comparison *c)
{
    for (int r = 0; c->size > 2 && r < c->size; r++)
        if (2 * votes(c, r) > c->size)
            return r;
    return -1;
}

/* The first in which two ranks differ. */
static const char *first_difference(const comparison *c, int a, int b, char text[256])
{
    size_t i = 0;

    while (i < c->n && c->hashes[(size_t)a * c->n + i] == c->hashes[(size_t)b * c->n + i])
        i++;
    if (i == c->n)
        return "?";
    tutti__persistent_describe(&c->list[i], text, 256);
    return text;
}

static tutti_status fail_apart(const comparison *c, int right)
{
    char ranks[1200] = "", name[256];
    size_t used = 0;
    int n = 0, first = -1;

    for (int r = 0; r < c->size; r++) {
        if (c->digests[r] == c->digests[right])
            continue;
        first = first < 0 ? r : first;
        if (n++ < 8)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used,
                                     "%s%d (%s, digest %016" PRIx64 ")", n > 1 ? ", " : "", r,
                                     c->places[r].text, c->digests[r]);
    }
    if (n > 8)
        snprintf(ranks + used, sizeof ranks - used, " and %d more", n - 8);
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: rank%s %s, where the other %d have %016" PRIx64
        "; \"%s\" is the first that differs on rank %d. Either its memory is faulty, or something "
        "other than the optimizer has changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(c->ddp->module)), n > 1 ? "s" : "",
        ranks, c->size - n, c->digests[right], first_difference(c, first, right, name), first);
}

static tutti_status fail_undecided(const comparison *c)
{
    char ranks[1200] = "", name[256];
    size_t used = 0;
    int other = 1;

    while (c->digests[other] == c->digests[0])
        other++;
    for (int r = 0; r < c->size && r < 8; r++)
        used +=
            (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%016" PRIx64 " on rank %d (%s)",
                             r ? ", " : "", c->digests[r], r, c->places[r].text);
    if (c->size > 8)
        snprintf(ranks + used, sizeof ranks - used, " and so on");
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: the digest is %s; \"%s\" is the first that differs on ranks "
        "0 and %d. Either a rank's memory is faulty, or something other than the optimizer has "
        "changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(c->ddp->module)), ranks,
        first_difference(c, 0, other, name), other);
}

static tutti_status gather(const comparison *c, const void *mine, void *all, size_t bytes)
{
    return tutti_all_gather(c->ddp->group, TUTTI_CONST_BUF(mine, bytes, TUTTI_U8),
                            TUTTI_BUF(all, (size_t)c->size * bytes, TUTTI_U8), NULL);
}

/* Of this rank's own: the others, who would wait for it, hear of it. */
static tutti_status fail_alone(const tutti_ddp *ddp, tutti_status status)
{
    if (status != TUTTI_OK)
        tutti_group_abort(ddp->group, "%s", tutti_last_error());
    return status;
}

static tutti_status explain(comparison *c, const uint64_t *mine, tutti__replicas_result *result_p)
{
    uint64_t *hashes = tutti__alloc((size_t)c->size * c->n * sizeof *hashes);
    place *places = tutti__alloc((size_t)c->size * sizeof *places), here = {{0}};
    tutti_status status = fail_alone(c->ddp, hashes && places ? TUTTI_OK : TUTTI_ERR_MEMORY);
    const int rank = tutti_group_rank(c->ddp->group);
    int right = -1;

    tutti__host_and_core(here.text, sizeof here.text);
    if (status == TUTTI_OK)
        status = gather(c, mine, hashes, c->n * sizeof *mine);
    if (status == TUTTI_OK)
        status = gather(c, &here, places, sizeof here);
    if (status == TUTTI_OK) {
        c->hashes = hashes;
        c->places = places;
        right = majority(c);
        result_p->named = right < 0 || c->digests[rank] != c->digests[right];
        status = right >= 0 ? fail_apart(c, right) : fail_undecided(c);
    }
    free(hashes);
    free(places);
    return status;
}

/* mine: the hash of each, and room for one more; digests: room for one of each rank, and one more. */
static tutti_status compare(comparison *c, uint64_t *mine, uint64_t *digests,
                            const tutti__item *items, size_t n_items,
                            tutti__replicas_result *result_p)
{
    bool differ = false;

    mine[c->n] = tutti__hash64(items, n_items * sizeof *items);
    digests[c->size] = tutti__hash64(mine, (c->n + 1) * sizeof *mine);
    TUTTI_TRY(gather(c, &digests[c->size], digests, sizeof *digests));
    c->digests = digests;
    for (int r = 1; r < c->size; r++)
        differ |= digests[r] != digests[0];
    if (!differ)
        return TUTTI_OK;
    TUTTI_TRY(tutti__agree_on_items(c->ddp->group, items, n_items));
    result_p->apart =
        true; /* known from here on, even if those that know more end before this rank does */
    return explain(c, mine, result_p);
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
static size_t take_replicated(const tutti_ddp *ddp, const tutti__checksums *checksums,
                              tutti__persistent *list, uint64_t *hashes)
{
    const bool buffers = buffers_are_shared(ddp);
    size_t n = 0;

    for (size_t i = 0; i < checksums->n; i++)
        if (checksums->list[i].replicated &&
            (buffers || checksums->list[i].kind != TUTTI__PERSISTENT_BUFFERS)) {
            list[n] = checksums->list[i];
            hashes[n++] = checksums->hashes[i];
        }
    return n;
}

tutti_status tutti__compare_replicas(const tutti_ddp *ddp, const tutti__checksums *checksums,
                                     tutti_status local, tutti__replicas_result *result_p)
{
    comparison c = {.ddp = ddp, .size = tutti_group_size(ddp->group)};
    uint64_t *hashes = tutti__alloc((checksums->n + 1) * sizeof *hashes);
    uint64_t *digests = tutti__alloc(((size_t)c.size + 1) * sizeof *digests);
    tutti__persistent *list = tutti__alloc((checksums->n + 1) * sizeof *list);
    tutti__item *items = NULL;
    size_t n_items = 0;
    tutti_status status = local;

    *result_p = (tutti__replicas_result){0};
    if (status == TUTTI_OK && !(hashes && digests && list))
        status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = tutti__optim_items(ddp->module->root->optims, NULL, &items, &n_items);
    if (fail_alone(ddp, status) == TUTTI_OK) {
        c.n = take_replicated(ddp, checksums, list, hashes);
        c.list = list;
        status = compare(&c, hashes, digests, items, n_items, result_p);
    }
    free(list);
    free(hashes);
    free(digests);
    free(items);
    return status;
}

tutti_status tutti_ddp_check_replicas(tutti_ddp *ddp)
{
    tutti__replicas_result found;
    tutti__checksums checksums = {0};
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(ddp));
    status = tutti__compare_replicas(
        ddp, &checksums, tutti__checksums_take(&checksums, ddp, tutti__ddp_stream(ddp)), &found);
    tutti__checksums_drop(&checksums);
    return status;
}
