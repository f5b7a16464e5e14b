/* redundant_shards.c -- shards that two ranks compute, and a vote of all if they differ.   SPDX-License-Identifier: MIT
 *
 *     duplicate   each rank computes the shard that the next rank will begin with, and drops it         discarded
 *     step        the step's own try: ranks digest those shards; before it counts, digests are compared
 *     vote        if two differ the step does not count, and every rank computes that shard             discarded
 *
 * In a vote the majority is right: of the ranks' digests, and the two that differed. A rank that was wrong once and is right now
 * stays: nothing of it has reached the state. One that is wrong again, or for the second time, ends and is replaced. Without a
 * majority the job ends. Every rank begins with one of these shards, so a check covers each rank. docs/design/elasticity.md says
 * what is found, and how surely. */
#include "elastic/elastic_internal.h"
#include "elastic/settings.h"

#include "comm/comm.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BUDGET: the part of the time of steps that checks may take, as 1 / BUDGET. */
enum { AUTOMATIC = -1, BUDGET = 250, ENDS_AFTER = 2, MOST_UNPLACED = 3 };

tutti_status tutti__redundancy_init(tutti_elastic *e)
{
    const char *text = tutti__env_text(TUTTI__ENV_CHECK_SHARDS);
    int64_t *every = &e->redundant.every;

    if (strcmp(text, "auto") == 0)
        *every = AUTOMATIC;
    else if (!tutti__parse_int64(text, every) || *every < 0 || *every > INT_MAX)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_CHECK_SHARDS is \"%.40s\", expected auto, or an interval of 0 "
                           "(never) to %d steps",
                           text, INT_MAX);
    return TUTTI_OK;
}

void tutti__redundancy_enter(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;

    d->looked_at = d->checked = 0;
    d->due = false;
    d->credit = 0;
    d->cost_ns = 0;
    d->dispute.shard = -1;
    d->purpose = TUTTI__TRY_COUNTS;
}

/* ---- When ---- */

/* Parts that take shards must tell digests of them, and be able to drop a try. */
static bool is_possible(tutti_elastic *e)
{
    for (const tutti__elastic_part *part = e->first; part; part = part->next) {
        const tutti_elastic_part *calls = &part->calls;

        if ((!calls->begin && !calls->begin_shard) || (calls->compare && calls->drop))
            continue;
        if (!e->redundant.said_impossible && tutti_group_rank(e->group) == 0)
            tutti_log(e->redundant.every == AUTOMATIC ? TUTTI_LOG_DEBUG : TUTTI_LOG_WARN, "elastic",
                      "TUTTI_CHECK_SHARDS: no shard is compared, because part \"%s\" takes shards "
                      "and has no `compare` and `drop`",
                      part->name);
        e->redundant.said_impossible = true;
        return false;
    }
    return true;
}

/* The longest time of a shard, and how long all ranks compute in a step, as far as they have told their speeds. */
static void measure(const tutti_elastic *e, int64_t *shard_p, int64_t *step_p)
{
    *shard_p = *step_p = 0;
    for (int r = 0; r < e->size; r++) {
        const int64_t ns = e->speeds[r], all = ns * (e->ranges[r + 1] - e->ranges[r]);

        *shard_p = ns > *shard_p ? ns : *shard_p;
        *step_p = all > *step_p ? all : *step_p;
    }
}

/* From what all ranks know, so that all decide alike. Called once for each step. */
static bool is_due(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;
    int64_t shard_ns, step_ns, cost_ns;

    if (d->every >= 0)
        return d->every > 0 && e->step % (uint64_t)d->every == 0;
    measure(e, &shard_ns, &step_ns);
    cost_ns = d->cost_ns > 0 ? d->cost_ns : shard_ns;
    if (cost_ns > 0)
        d->credit += (double)step_ns / (double)cost_ns;
    if (d->credit < BUDGET)
        return false;
    d->credit = 0;
    return true;
}

void tutti__redundancy_begin_try(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;

    d->purpose = TUTTI__TRY_COUNTS;
    for (int k = 0; k < TUTTI__MOST_DIGESTED; k++)
        d->own[k].shard = -1;
    d->n_own = 0;
    d->digested = -1;
    d->damage = 0;
    d->damaged[0] = '\0';
    if (d->dispute.shard >= 0) {
        d->purpose = TUTTI__TRY_VOTE;
        d->left = (int)d->dispute.shard;
        return;
    }
    if (d->looked_at != e->step + 1)
        d->due = is_due(e) && is_possible(e);
    d->looked_at = e->step + 1;
    if (!d->due)
        return;
    d->due = false;
    d->purpose = TUTTI__TRY_DUPLICATE;
    d->left = e->ranges[(tutti_group_rank(e->group) + 1) % e->size];
    d->checked = e->step + 1;
    d->began_ns = tutti__now_ns();
}

/* ---- A shard ---- */

static bool is_checked(const tutti_elastic *e)
{
    return e->redundant.checked == e->step + 1;
}

bool tutti__redundancy_is_open(const tutti_elastic *e)
{
    return is_checked(e) || e->redundant.damage != 0;
}

/* Of the shard that this rank has just computed. */
static tutti_status digest_shard(const tutti_elastic *e, int64_t *digest_p)
{
    uint64_t all = 0;

    for (const tutti__elastic_part *part = e->first; part; part = part->next) {
        uint64_t digest = 0;

        if (part->calls.compare)
            TUTTI_TRY(part->calls.compare(part->calls.self, &digest));
        all = all * 31 + digest;
    }
    *digest_p = (int64_t)all;
    return TUTTI_OK;
}

bool tutti__elastic_is_digested(const tutti_elastic *e)
{
    return e->redundant.digested >= 0;
}

bool tutti__elastic_is_discarded(const tutti_elastic *e)
{
    return e->redundant.purpose != TUTTI__TRY_COUNTS;
}

tutti_status tutti__redundancy_next(tutti_elastic *e, int *shard_p)
{
    tutti__redundancy *d = &e->redundant;

    *shard_p = d->digested = d->left;
    d->left = -1;
    if (*shard_p >= 0)
        TUTTI__EACH_PART(e, begin_shard, (part->calls.self, *shard_p, false));
    return TUTTI_OK;
}

void tutti__redundancy_note(tutti_elastic *e, int shard)
{
    tutti__redundancy *d = &e->redundant;

    for (int r = 0; r < e->size && is_checked(e) && d->n_own < TUTTI__MOST_DIGESTED; r++)
        if (e->ranges[r] == shard)
            d->digested = shard;
}

tutti_status tutti__redundancy_end_shard(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;
    const int shard = d->digested;

    d->digested = -1;
    if (shard < 0)
        return TUTTI_OK;
    d->own[d->n_own].shard = shard;
    return digest_shard(e, &d->own[d->n_own++].digest);
}

/* ---- A step's digests ---- */

/* What a rank tells the others about a step whose shards are computed twice. */
typedef struct check_report {
    int64_t cost_ns; /* of the discarded try */
    tutti__digested_shard duplicate, own[TUTTI__MOST_DIGESTED];
} check_report;

static tutti_status exchange(const tutti_elastic *e, const void *mine, size_t bytes, void *all)
{
    return tutti_all_gather(e->group, TUTTI_CONST_BUF(mine, bytes, TUTTI_U8),
                            TUTTI_BUF(all, bytes * (size_t)e->size, TUTTI_U8), NULL);
}

/* The first shard of which two ranks have other digests; false: there is none. */
static bool find_dispute(const tutti_elastic *e, const check_report *all, tutti__dispute *dispute)
{
    for (int b = 0; b < e->size; b++)
        for (int k = 0; k < e->size * TUTTI__MOST_DIGESTED; k++) {
            const int a = k / TUTTI__MOST_DIGESTED;
            const tutti__digested_shard *own = &all[a].own[k % TUTTI__MOST_DIGESTED],
                                        *duplicate = &all[b].duplicate;

            if (own->shard < 0 || own->shard != duplicate->shard ||
                own->digest == duplicate->digest)
                continue;
            *dispute = (tutti__dispute){
                .shard = own->shard, .rank = {a, b}, .digest = {own->digest, duplicate->digest}};
            return true;
        }
    return false;
}

tutti_status tutti__redundancy_compare(tutti_elastic *e, bool *again_p)
{
    tutti__redundancy *d = &e->redundant;
    check_report mine = {.cost_ns = d->cost_own_ns, .duplicate = d->duplicate}, *all;
    tutti_status status;

    if (!is_checked(e))
        return TUTTI_OK;
    if (*again_p) { /* with other ranges, which digests are of: those from before are of no use */
        d->checked = 0;
        d->due = true;
        return TUTTI_OK;
    }
    memcpy(mine.own, d->own, sizeof mine.own);
    all = tutti__alloc((size_t)e->size * sizeof *all);
    status = all ? exchange(e, &mine, sizeof mine, all) : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK) {
        d->cost_ns = 0;
        for (int r = 0; r < e->size; r++)
            d->cost_ns = all[r].cost_ns > d->cost_ns ? all[r].cost_ns : d->cost_ns;
        *again_p |= find_dispute(e, all, &d->dispute);
        if (tutti_group_rank(e->group) == 0) /* the bench measures by this line */
            tutti_log(TUTTI_LOG_DEBUG, "elastic",
                      "training step %llu: %d shards computed twice in %.3f ms; %s",
                      (unsigned long long)e->step + 1, e->size, (double)d->cost_ns * 1e-6,
                      d->dispute.shard < 0 ? "no digest differs" : "a digest differs");
    }
    free(all);
    return status;
}

/* ---- A vote ---- */

/* Of a rank, in a vote. */
typedef struct report {
    int64_t digest;
    int32_t core, caught; /* caught: how often it has been wrong before */
} report;

typedef struct decision {
    const tutti__dispute *dispute;
    const report *reports;
    int size;
    int64_t right;
    int n_right, n; /* computations that gave that, of all */
    int wrong;      /* the rank; -1: none */
    bool repeats;   /* it was wrong now */
} decision;

static int count(const decision *made, int64_t digest)
{
    int n = (made->dispute->digest[0] == digest) + (made->dispute->digest[1] == digest);

    for (int r = 0; r < made->size; r++)
        n += made->reports[r].digest == digest;
    return n;
}

/* The digest of a strict majority; a rank that is wrong now comes before those that were. False: there is no majority. */
static bool decide(decision *made)
{
    const tutti__dispute *dispute = made->dispute;

    made->n = made->size + 2;
    made->n_right = 0;
    made->wrong = -1;
    for (int r = 0; r < made->size && 2 * made->n_right <= made->n; r++) {
        made->right = made->reports[r].digest;
        made->n_right = count(made, made->right);
    }
    if (2 * made->n_right <= made->n)
        return false;
    for (int k = 0; k < 2; k++)
        if (dispute->digest[k] != made->right)
            made->wrong = dispute->rank[k];
    for (int r = made->size - 1; r >= 0; r--)
        if (made->reports[r].digest != made->right) {
            made->wrong = r;
            made->repeats = true;
        }
    return true;
}

static void describe(const tutti_elastic *e, int r, int core, char text[256])
{
    char who[160];

    tutti__group_rank_text(e->group, r, who, sizeof who);
    snprintf(text, 256, "%s on core %d", who, core);
}

static tutti_status fail_undecided(const tutti_elastic *e, const decision *made)
{
    const tutti__dispute *dispute = made->dispute;
    char a[256], b[256];

    describe(e, dispute->rank[0], made->reports[dispute->rank[0]].core, a);
    describe(e, dispute->rank[1], made->reports[dispute->rank[1]].core, b);
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "training step %llu: shard %d has other gradients on rank %d (digest %016" PRIx64
        ") than on rank %d (%016" PRIx64
        "), and when all computed it again there was no majority. Either its data or random "
        "numbers were chosen by rank or by a count of this process's own: they must be a function "
        "of (seed, step, shard). Or one of the two computes wrong, %s or %s: test both hosts",
        (unsigned long long)e->step + 1, (int)dispute->shard, dispute->rank[0],
        (uint64_t)dispute->digest[0], dispute->rank[1], (uint64_t)dispute->digest[1], a, b);
}

bool tutti__elastic_take_wrong(tutti_elastic *e, char *what, size_t bytes)
{
    char *wrong = e->redundant.wrong;
    const bool any = *wrong;

    snprintf(what, bytes, "%s", wrong);
    *wrong = '\0';
    return any;
}

/* `text`: that rank r was wrong, in `what`. It stays, or ends, and then the others continue without it. */
static tutti_status end_or_stay(tutti_elastic *e, int r, const char *what, bool ends,
                                const char *text)
{
    const bool me = r == tutti_group_rank(e->group);
    tutti_status status;

    e->redundant.caught += me;
    if (me)
        snprintf(e->redundant.wrong, sizeof e->redundant.wrong, "%s", what);
    if (!ends)
        return TUTTI_OK;
    if (me)
        return tutti__fail(TUTTI_ERR_DEVICE, "%s. Take this host out of service, or test it", text);
    status = tutti_barrier(e->group, NULL); /* ends with the group, which that rank leaves */
    return status == TUTTI_OK ? tutti__fail(TUTTI_ERR_PEER, "%s", text) : status;
}

/* A rank that was wrong again has been so for an unknown time: the others' state may come from it, too. */
static tutti_status report_wrong(tutti_elastic *e, const decision *made)
{
    const report *its = &made->reports[made->wrong];
    const bool ends = made->repeats || its->caught + 1 >= ENDS_AFTER;
    char who[256], what[32], text[640];
    const int teller =
        made->wrong == 0 && ends && e->size > 1; /* that one ends with this message */

    describe(e, made->wrong, its->core, who);
    snprintf(text, sizeof text,
             "training step %llu: %s computed shard %d with other bits than %d of %d computations "
             "of it%s",
             (unsigned long long)e->step + 1, who, (int)made->dispute->shard, made->n_right,
             made->n,
             made->repeats ? ", and again when it was repeated: its processor or memory is faulty"
             : ends        ? ", for the second time: its processor or memory is faulty"
                           : "; the step is computed again, nothing of it has reached the weights");
    if (tutti_group_rank(e->group) == teller)
        tutti_log(TUTTI_LOG_WARN, "elastic", "%s", text);
    e->redundant.corrupt = made->repeats;
    snprintf(what, sizeof what, "shard %d", (int)made->dispute->shard);
    return end_or_stay(e, made->wrong, what, ends, text);
}

static tutti_status vote(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;
    const tutti__dispute dispute = d->dispute;
    const report mine = {d->own[0].digest, sched_getcpu(), d->caught};
    report *all = tutti__alloc((size_t)e->size * sizeof *all);
    decision made = {.dispute = &dispute, .reports = all, .size = e->size};
    tutti_status status = all ? exchange(e, &mine, sizeof mine, all) : TUTTI_ERR_MEMORY;

    d->dispute.shard = -1;
    d->due = true; /* in the step's next try */
    if (status == TUTTI_OK)
        status = decide(&made) ? report_wrong(e, &made) : fail_undecided(e, &made);
    free(all);
    return status;
}

/* ---- Sums that have changed ---- */

void tutti__elastic_damaged(tutti_elastic *e, const char *gradient, bool own)
{
    tutti__redundancy *d = &e->redundant;

    d->damage |= TUTTI__SEES_DAMAGE | (own ? TUTTI__OWN_DAMAGE : 0);
    snprintf(d->damaged, sizeof d->damaged, "%s", gradient);
}

/* The first rank with all of these flags, or without any of them; -1: none. */
static int find_flags(const tutti_elastic *e, int64_t flags, bool without)
{
    for (int r = 0; r < e->size; r++)
        if ((e->reports[r].flags & flags) == (without ? 0 : flags))
            return r;
    return -1;
}

/* Damage that comes back in each try of a step, and that no rank can be named for: repeating the step would not end. */
static tutti_status fail_unplaced(const tutti_elastic *e)
{
    return tutti__fail(
        TUTTI_ERR_DEVICE,
        "training step %llu: in %d tries one after the other the sums over shards have changed "
        "between a rank's addition and what all received, and no rank sees where: "
        "test these hosts, their devices and the links between them",
        (unsigned long long)e->step + 1, MOST_UNPLACED);
}

tutti_status tutti__redundancy_report_damage(tutti_elastic *e, bool *again_p)
{
    tutti__redundancy *d = &e->redundant;
    int wrong = find_flags(e, TUTTI__OWN_DAMAGE, false);
    const int reporter = find_flags(e, TUTTI__SEES_DAMAGE, false);
    char who[256] = "a rank", what[160], text[640];
    bool ends;

    if (reporter < 0) {
        d->n_unplaced = 0;
        return TUTTI_OK;
    }
    *again_p = true;
    /* Others have received the right sums: it was this rank's copy of them. */
    if (wrong < 0 && find_flags(e, TUTTI__SEES_DAMAGE, true) >= 0)
        wrong = reporter;
    if (wrong < 0 && e->size == 1)
        wrong = 0;
    d->n_unplaced = wrong < 0 ? d->n_unplaced + 1 : 0;
    if (d->n_unplaced == MOST_UNPLACED)
        return fail_unplaced(e);
    ends = wrong >= 0 && (e->reports[wrong].flags & TUTTI__WAS_WRONG) != 0;
    if (wrong >= 0 && wrong == tutti_group_rank(e->group))
        describe(e, wrong, sched_getcpu(), who);
    else if (wrong >= 0)
        tutti__group_rank_text(e->group, wrong, who, sizeof who);
    snprintf(what, sizeof what, "the sums over shards%s%s%s", d->damaged[0] ? " of \"" : "",
             d->damaged, d->damaged[0] ? "\"" : "");
    snprintf(text, sizeof text,
             "training step %llu: in the memory of %s%s %s have changed since they were added up%s",
             (unsigned long long)e->step + 1, who, wrong < 0 ? ", or on the way to another," : "",
             what,
             ends ? ", and it is the second time that this rank is wrong: its memory is faulty"
                  : "; the step is computed again, nothing of it has reached the weights");
    if (tutti_group_rank(e->group) == (wrong >= 0 ? wrong : reporter) && !ends)
        tutti_log(TUTTI_LOG_WARN, "elastic", "%s", text);
    return wrong < 0 ? TUTTI_OK : end_or_stay(e, wrong, what, ends, text);
}

tutti_status tutti__redundancy_end_discarded(tutti_elastic *e)
{
    tutti__redundancy *d = &e->redundant;

    TUTTI__EACH_PART(e, drop, (part->calls.self));
    if (d->purpose == TUTTI__TRY_VOTE)
        return vote(e);
    d->duplicate = d->own[0];
    d->cost_own_ns = (int64_t)(tutti__now_ns() - d->began_ns);
    return TUTTI_OK;
}
