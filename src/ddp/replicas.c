/* replicas.c -- checks that ranks that have the same state have the same bits; if not, names the ranks and the tensor.
 * SPDX-License-Identifier: MIT
 *
 * Each rank brings one hash of the hashes of its tensors and of its optimizers' state, and with ZeRO one more of each share that it has,
 * its own or a copy. If those of a share differ, ranks exchange the hashes of its pieces, so that all return the same message: of three
 * ranks or more that have it the majority is right, and the others are named, with the first piece that differs. Two ranks, or no
 * majority, are shown side by side. Hyper-parameters of optimizers count like a tensor, and are reported first, because they make the
 * others differ. */
#include "ddp/persistent.h"
#include "ddp/zero.h"
#include "nn/nn.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a rank: what all have, its share, a copy of another, what is of no share. */
enum { MOST_SHARES = 4, NONE = TUTTI__NO_SHARE - 1 };

typedef struct share_digest {
    int64_t share, n; /* NONE: unused; pieces */
    uint64_t digest;
} share_digest;

typedef struct place {
    char text[96];   /* "host a, core 3" */
    char piece[160]; /* the first that differs */
} place;

typedef struct comparison {
    const tutti_ddp *ddp;
    const tutti__checksums *mine;
    bool buffers; /* count */
    int size;
    const share_digest *digests; /* MOST_SHARES of each rank */
    /* Of a share in which ranks differ. */
    int64_t share;
    int right,
        other; /* a rank of the majority, or the first that has it; the first that differs from it */
} comparison;

/* Piece k that counts of this rank's pieces of a share; NULL: there are fewer. */
static const tutti__persistent *piece_of(const comparison *c, int64_t share, size_t k)
{
    for (size_t i = 0; i < c->mine->n; i++) {
        const tutti__persistent *piece = &c->mine->list[i];

        if (piece->share == share && (c->buffers || piece->kind != TUTTI__PERSISTENT_BUFFERS) &&
            k-- == 0)
            return piece;
    }
    return NULL;
}

/* What rank r has of the share; NULL: nothing. */
static const share_digest *digest_of(const comparison *c, int r)
{
    for (const share_digest *h = c->digests + r * MOST_SHARES;
         h < c->digests + (r + 1) * MOST_SHARES; h++)
        if (h->share == c->share)
            return h;
    return NULL;
}

static bool differ(const comparison *c, int a, int b)
{
    const share_digest *x = digest_of(c, a), *y = digest_of(c, b);

    return x && y && x->digest != y->digest;
}

/* The first share of which two ranks have another digest; NONE: none. first: room for one of each share. */
static int64_t find_share(const comparison *c, const share_digest **first)
{
    int64_t found = INT64_MAX;

    for (const share_digest *h = c->digests; h < c->digests + c->size * MOST_SHARES; h++) {
        const share_digest **its;

        if (h->share == NONE)
            continue;
        its = &first[h->share - TUTTI__NO_SHARE];
        if (!*its)
            *its = h;
        else if ((*its)->digest != h->digest && h->share < found)
            found = h->share;
    }
    return found < INT64_MAX ? found : NONE;
}

/* Finds `right` and `other`. True: there is a majority, of three ranks or more. */
static bool find_right(comparison *c)
{
    bool majority = false;
    int n = 0;

    c->right = -1;
    for (int r = 0; r < c->size; r++)
        n += digest_of(c, r) != NULL;
    for (int r = 0; r < c->size && !majority; r++) {
        int same = n;

        if (!digest_of(c, r))
            continue;
        for (int i = 0; i < c->size; i++)
            same -= differ(c, r, i);
        majority = n > 2 && 2 * same > n;
        if (c->right < 0 || majority)
            c->right = r;
    }
    for (int r = c->size - 1; r >= 0; r--)
        if (differ(c, c->right, r))
            c->other = r;
    return majority;
}

/* ---- What differs ---- */

static tutti_status fail_apart(const comparison *c, const place *places)
{
    const uint64_t right = digest_of(c, c->right)->digest;
    char ranks[1200] = "";
    size_t used = 0;
    int n = 0, same = 0;

    for (int r = 0; r < c->size; r++) {
        const share_digest *its = digest_of(c, r);

        same += its && its->digest == right;
        if (its && its->digest != right && n++ < 8)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used,
                                     "%s%d (%s, digest %016" PRIx64 ")", n > 1 ? ", " : "", r,
                                     places[r].text, its->digest);
    }
    if (n > 8)
        snprintf(ranks + used, sizeof ranks - used, " and %d more", n - 8);
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: rank%s %s, where the other %d have %016" PRIx64
        "; \"%s\" is the first that differs on rank %d. Either its memory is faulty, or something "
        "other than the optimizer has changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(c->ddp->module)), n > 1 ? "s" : "",
        ranks, same, right, places[c->other].piece, c->other);
}

static tutti_status fail_undecided(const comparison *c, const place *places)
{
    const tutti_zero *zero = c->ddp->zero;
    char ranks[1200] = "", what[64] = "";
    size_t used = 0;
    int n = 0;

    if (zero && c->share == zero->sharding.peers.size)
        snprintf(what, sizeof what, " of what ZeRO leaves whole on every rank");
    else if (c->share != TUTTI__NO_SHARE)
        snprintf(what, sizeof what, " of ZeRO's share %lld", (long long)c->share);
    for (int r = 0; r < c->size; r++)
        if (digest_of(c, r) && n++ < 8)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used,
                                     "%s%016" PRIx64 " on rank %d (%s)", n > 1 ? ", " : "",
                                     digest_of(c, r)->digest, r, places[r].text);
    if (n > 8)
        snprintf(ranks + used, sizeof ranks - used, " and so on");
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "replicas differ at step %llu: the digest%s is %s; \"%s\" is the first that differs on "
        "ranks %d and %d. Either a rank's memory is faulty, or something other than the optimizer "
        "has changed it on some ranks only",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(c->ddp->module)), what, ranks,
        places[c->other].piece, c->right, c->other);
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

/* The first piece in which the two differ, if this rank has the share. Gathers n hashes of each rank in `hashes`. */
static tutti_status find_piece(const comparison *c, uint64_t *hashes, size_t n, char text[160])
{
    uint64_t *mine = hashes + (size_t)c->size * n;
    const tutti__persistent *piece;
    size_t k = 0;

    for (; k < n && (piece = piece_of(c, c->share, k)); k++)
        mine[k] = c->mine->hashes[piece - c->mine->list];
    TUTTI_TRY(gather(c, mine, hashes, n * sizeof *mine));
    for (k = 0; k < n && hashes[(size_t)c->right * n + k] == hashes[(size_t)c->other * n + k]; k++)
        ;
    piece = piece_of(c, c->share, k);
    snprintf(text, 160, "?");
    if (piece)
        tutti__persistent_describe(piece, text, 160);
    return TUTTI_OK;
}

static tutti_status explain(const comparison *c, bool majority, tutti__replicas_result *result_p)
{
    const size_t n = (size_t)digest_of(c, c->right)->n;
    const int rank = tutti_group_rank(c->ddp->group);
    uint64_t *hashes = tutti__alloc(((size_t)c->size + 1) * (n + 1) * sizeof *hashes);
    place *places = tutti__alloc((size_t)c->size * sizeof *places), here = {.text = ""};
    tutti_status status = fail_alone(c->ddp, hashes && places ? TUTTI_OK : TUTTI_ERR_MEMORY);

    tutti__host_and_core(here.text, sizeof here.text);
    if (status == TUTTI_OK)
        status = find_piece(c, hashes, n, here.piece);
    if (status == TUTTI_OK)
        status = gather(c, &here, places, sizeof here);
    if (status == TUTTI_OK) {
        result_p->named = majority ? differ(c, c->right, rank) : digest_of(c, rank) != NULL;
        status = majority ? fail_apart(c, places) : fail_undecided(c, places);
    }
    free(hashes);
    free(places);
    return status;
}

/* ---- The comparison ---- */

/* Buffers are the same only until a step computes with them. With shards every step ends with their mean; ranks that have just
 * joined have computed none. */
static bool buffers_are_shared(const tutti_ddp *ddp)
{
    if (ddp->shards)
        return !tutti__ddp_shards_open(ddp);
    return !ddp->opts.keep_buffers && !ddp->opts.buffer_hook &&
           ddp->buffers_round == tutti_module_ctx(ddp->module)->round;
}

/* What this rank has: first of what all have, to whose digest the hyper-parameters' is added. */
static void list_digests(const comparison *c, uint64_t items, share_digest mine[MOST_SHARES])
{
    mine[0] = (share_digest){.share = TUTTI__NO_SHARE, .digest = items};
    for (int k = 1; k < MOST_SHARES; k++)
        mine[k] = (share_digest){.share = NONE};
    for (size_t i = 0; i < c->mine->n; i++) {
        const tutti__persistent *piece = &c->mine->list[i];
        share_digest *h = mine;

        if (!c->buffers && piece->kind == TUTTI__PERSISTENT_BUFFERS)
            continue;
        while (h < mine + MOST_SHARES - 1 && h->share != piece->share && h->share != NONE)
            h++;
        assert(h->share == piece->share || h->share == NONE);
        h->share = piece->share;
        h->digest = tutti__hash64((uint64_t[]){h->digest, c->mine->hashes[i]}, 16);
        h->n++;
    }
}

/* all: room for MOST_SHARES of each rank; first: as in find_share. */
static tutti_status compare(comparison *c, share_digest *all, const share_digest **first,
                            const tutti__item *items, size_t n_items,
                            tutti__replicas_result *result_p)
{
    share_digest mine[MOST_SHARES];

    list_digests(c, tutti__hash64(items, n_items * sizeof *items), mine);
    TUTTI_TRY(gather(c, mine, all, sizeof mine));
    c->digests = all;
    c->share = find_share(c, first);
    if (c->share == NONE)
        return TUTTI_OK;
    if (c->share == TUTTI__NO_SHARE)
        TUTTI_TRY(tutti__agree_on_items(c->ddp->group, items, n_items));
    result_p->apart =
        true; /* known from here on, even if those that know more end before this rank does */
    return explain(c, find_right(c), result_p);
}

tutti_status tutti__compare_replicas(const tutti_ddp *ddp, const tutti__checksums *checksums,
                                     tutti_status local, tutti__replicas_result *result_p)
{
    comparison c = {.ddp = ddp,
                    .mine = checksums,
                    .buffers = buffers_are_shared(ddp),
                    .size = tutti_group_size(ddp->group)};
    share_digest *all = tutti__alloc((size_t)c.size * MOST_SHARES * sizeof *all);
    const share_digest **first = tutti__alloc(((size_t)c.size + 2) * sizeof *first);
    tutti__item *items = NULL;
    size_t n_items = 0;
    tutti_status status = local;

    *result_p = (tutti__replicas_result){0};
    if (status == TUTTI_OK && !(all && first))
        status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = tutti__optim_items(ddp->module->root->optims, NULL, &items, &n_items);
    if (fail_alone(ddp, status) == TUTTI_OK)
        status = compare(&c, all, first, items, n_items, result_p);
    free(all);
    free(first);
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
