/* elastic.c -- tries at steps, in groups that are left and formed again.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"
#include "elastic/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 4096, COMMITTED_NS = 10000000 };

static tutti_status check(const tutti_elastic_opts *opts)
{
    TUTTI_TRY(TUTTI__NOT_NULL(opts));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_elastic_opts, opts));
    if (opts->shards < 1 || opts->shards > MAX_SHARDS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "elastic_new: a step of %d shards, expected 1 to %d (opts.shards)",
                           opts->shards, MAX_SHARDS);
    if (opts->group.store || opts->group.rank != 0 || opts->group.world_size != 0)
        return tutti__fail(TUTTI_ERR_ARG, "elastic_new: opts.group sets a store or a rank, which "
                                          "the launcher provides; leave them zero");
    return TUTTI_OK;
}

tutti_status tutti_elastic_new(tutti_elastic **e_p, const tutti_elastic_opts *opts)
{
    tutti_elastic *e;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(e_p));
    *e_p = NULL;
    TUTTI_TRY(check(opts));
    e = tutti__alloc(sizeof *e);
    if (!e)
        return TUTTI_ERR_MEMORY;
    e->opts = *opts;
    snprintf(e->group_name, sizeof e->group_name, "%s",
             opts->group.name ? opts->group.name : "world");
    e->opts.group.name = e->group_name;
    status = tutti__agent_find(&e->agent);
    if (status == TUTTI_OK)
        status = tutti__checks_init(e);
    if (status == TUTTI_OK)
        status = tutti__redundancy_init(e);
    if (status != TUTTI_OK) {
        free(e);
        return status;
    }
    *e_p = e;
    return TUTTI_OK;
}

void tutti__elastic_set_settings(tutti_elastic *e, const char *text)
{
    snprintf(e->settings, sizeof e->settings, "%s", text);
}

bool tutti__elastic_has_state(const tutti_elastic *e)
{
    return e->has_state;
}

void tutti__elastic_undone(tutti_elastic *e)
{
    e->has_state = true;
    e->torn = false;
}

uint32_t tutti__elastic_generation(const tutti_elastic *e)
{
    return e->generation;
}

void tutti_elastic_free(tutti_elastic *e)
{
    if (!e)
        return;
    if (e->group && !e->over && e->status == TUTTI_OK) {
        (void)tutti__fail(TUTTI_ERR_STATE, "the program has freed its elastic training before its "
                                           "end (tutti_elastic_end)");
        (void)tutti__elastic_fail(e, TUTTI_ERR_STATE);
    }
    tutti__elastic_leave(e, "");
    tutti__parts_free(e);
    free(e->reports);
    free(e->ranges);
    free(e->speeds);
    free(e);
}

tutti_group *tutti_elastic_group(tutti_elastic *e)
{
    return e ? e->group : NULL;
}

bool tutti_elastic_is_fresh(const tutti_elastic *e)
{
    return e && e->fresh;
}

bool tutti_elastic_has_lost_all(const tutti_elastic *e)
{
    return e && e->lost_all;
}

bool tutti_elastic_is_torn(const tutti_elastic *e)
{
    return e && e->torn;
}

void tutti_elastic_forget(tutti_elastic *e)
{
    if (!e)
        return;
    e->has_state = false;
    e->torn = e->forgot = true;
}

uint64_t tutti_elastic_step(const tutti_elastic *e)
{
    return e ? e->step : 0;
}

void tutti_elastic_set_step(tutti_elastic *e, uint64_t step)
{
    if (!e)
        return;
    e->step = step;
    e->can_begin = true;
}

int tutti_elastic_shards(const tutti_elastic *e)
{
    return e ? e->opts.shards : 0;
}

bool tutti_elastic_left(const tutti_elastic *e)
{
    return e && e->left;
}

tutti_elastic_stats tutti_elastic_get_stats(const tutti_elastic *e)
{
    return e ? e->stats : (tutti_elastic_stats){0};
}

/* ---- A try -------------------------------------------------------------------------------------------------- */

static tutti_status gather(tutti_elastic *e)
{
    TUTTI__EACH_PART(e, gather, (part->calls.self));
    return TUTTI_OK;
}

/* Follows what was agreed in the previous try: this worker leaves the job, or all leave the group; nothing is in progress. */
static tutti_status follow_agreement(tutti_elastic *e)
{
    const bool leaving = e->leaving;
    tutti_status status;

    if (!e->regrouping && !leaving)
        return TUTTI_OK;
    status = e->group ? gather(e) : TUTTI_OK;
    if (status != TUTTI_OK && !tutti_elastic_recover(e, status))
        return status;
    if (e->group)
        tutti__elastic_leave(e, leaving ? "told to leave the job" : "others join or leave");
    if (!leaving)
        return TUTTI_OK;
    e->left = true;
    return tutti__agent_say(e, TUTTI__WORKER_LEAVES);
}

static tutti_status open_try(tutti_elastic *e)
{
    if (e->down_ns > 0)
        e->stats.lost_s += (double)(tutti__now_ns() - e->down_ns) * 1e-9;
    e->down_ns = 0;
    e->phase = TUTTI__SHARDS;
    e->computed = 0;
    e->computed_ns = e->since_ns = 0;
    tutti__shard_ranges(e->opts.shards, e->size, e->speeds, e->ranges);
    tutti__redundancy_begin_try(e);
    if (!e->redundant.purpose) {
        TUTTI_TRY(tutti__check_parts(e));
        tutti__shard_queue_begin(e->shard_queue, ++e->n_tries, e->ranges);
    }
    TUTTI__EACH_PART(e, begin, (part->calls.self));
    return TUTTI_OK;
}

static bool is_at_end(const tutti_elastic *e)
{
    return e->status != TUTTI_OK || e->left || e->over || tutti__elastic_is_ending(e);
}

bool tutti_elastic_begin(tutti_elastic *e)
{
    tutti_status status = TUTTI_OK;
    uint64_t groups;

    if (!e || is_at_end(e))
        return false;
    groups = e->stats.groups;
    if (e->phase == TUTTI__UPDATING || e->phase == TUTTI__SHARDS) {
        (void)tutti__fail(TUTTI_ERR_STATE,
                          "elastic_begin: the try at step %llu has not ended "
                          "with tutti_elastic_%s",
                          (unsigned long long)e->step,
                          e->phase == TUTTI__UPDATING ? "commit" : "finish");
        (void)tutti__elastic_fail(e, TUTTI_ERR_STATE);
        return false;
    }
    do {
        status = tutti__agent_hear(e, false);
        if (status == TUTTI_OK)
            status = follow_agreement(e);
        if (status != TUTTI_OK) {
            (void)tutti__elastic_fail(e, status);
            return false;
        }
        if (e->called && e->group)
            tutti__elastic_leave(e, "the launcher has begun a new generation");
        status = e->group ? tutti_group_status(e->group) : TUTTI_OK;
        if (status != TUTTI_OK && !tutti_elastic_recover(e, status))
            return false;
        if (is_at_end(e) || tutti_elastic_join(e) != TUTTI_OK || is_at_end(e))
            return false;
        /* The program's loop has not seen this step yet, and what it does between steps is due in the new group, on all members
         * alike: some have left the earlier one in the middle of that, and some are new. */
        if (e->stats.groups != groups) {
            e->phase = TUTTI__VOID;
            return true;
        }
        status = open_try(e);
    } while (status != TUTTI_OK && tutti_elastic_recover(e, status));
    return status == TUTTI_OK;
}

static void measure(tutti_elastic *e)
{
    uint64_t now = tutti__now_ns();

    if (e->since_ns > 0)
        e->computed_ns += now - e->since_ns;
    e->since_ns = now;
}

static tutti_status next_shard(tutti_elastic *e, int *shard_p)
{
    int owner = -1;
    bool last = false;

    measure(e);
    TUTTI_TRY(tutti__shard_queue_take(e->shard_queue, shard_p, &last, &owner));
    if (*shard_p < 0)
        return TUTTI_OK;
    tutti__redundancy_note(e, *shard_p);
    TUTTI__EACH_PART(e, begin_shard, (part->calls.self, *shard_p, last));
    e->computed++;
    e->stats.shards++;
    e->stats.taken_over += owner != tutti_group_rank(e->group);
    e->since_ns = tutti__now_ns();
    return TUTTI_OK;
}

int tutti_elastic_shard(tutti_elastic *e)
{
    tutti_status status;
    int shard = -1;

    if (!e || e->phase != TUTTI__SHARDS)
        return -1;
    status = tutti__redundancy_end_shard(e);
    if (status == TUTTI_OK)
        status = e->redundant.purpose ? tutti__redundancy_next(e, &shard) : next_shard(e, &shard);
    if (status == TUTTI_OK)
        return shard;
    (void)tutti_elastic_recover(e, status);
    return -1;
}

static tutti_status finish_parts(tutti_elastic *e, bool *again_p)
{
    for (const tutti__elastic_part *part = e->first; part; part = part->next) {
        bool again = false;

        if (part->calls.finish)
            TUTTI_TRY(part->calls.finish(part->calls.self, &again));
        *again_p = *again_p || again;
    }
    return TUTTI_OK;
}

static tutti_status exchange_reports(tutti_elastic *e)
{
    const size_t n = sizeof *e->reports / sizeof(int64_t);
    const tutti__try_report mine = {.flags = (e->asked_to_regroup ? TUTTI__ASKS_REGROUP : 0) |
                                             (e->asked_to_leave ? TUTTI__ASKS_LEAVE : 0) |
                                             (e->redundant.caught > 0 ? TUTTI__WAS_WRONG : 0) |
                                             e->redundant.damage,
                                    .ns = e->shard_ns,
                                    .computed = e->computed};

    return tutti_all_gather(e->group, TUTTI_CONST_BUF(&mine, n, TUTTI_I64),
                            TUTTI_BUF(e->reports, n * (size_t)e->size, TUTTI_I64), NULL);
}

/* The same on all ranks, except which of them leave. */
static tutti_status note_reports(tutti_elastic *e)
{
    int64_t flags = 0, computed = 0;

    for (int r = 0; r < e->size; r++) {
        flags |= e->reports[r].flags;
        e->reported_left += (e->reports[r].flags & TUTTI__ASKS_LEAVE) != 0;
        computed += e->reports[r].computed;
        e->speeds[r] = e->reports[r].ns;
    }
    e->regrouping = (flags & (TUTTI__ASKS_REGROUP | TUTTI__ASKS_LEAVE)) != 0;
    e->leaving = (e->reports[tutti_group_rank(e->group)].flags & TUTTI__ASKS_LEAVE) != 0;
    if (computed == e->opts.shards)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INTERNAL, "step %llu: %lld shards were computed, expected %d",
                       (unsigned long long)e->step, (long long)computed, e->opts.shards);
}

static tutti_status close_try(tutti_elastic *e, bool *again_p)
{
    tutti_status status;

    measure(e);
    if (e->computed > 0) {
        int64_t ns = (int64_t)(e->computed_ns / (uint64_t)e->computed) + 1;

        e->shard_ns = e->shard_ns > 0 ? (e->shard_ns + ns) / 2 : ns;
    }
    TUTTI_TRY(finish_parts(e, again_p));
    status = exchange_reports(e);
    if (status == TUTTI_OK) {
        TUTTI_TRY(note_reports(e));
        TUTTI_TRY(tutti__redundancy_compare(e, again_p));
        return tutti__redundancy_report_damage(e, again_p);
    }
    /* All means are complete, though a rank has died since: the step counts, unless they are wrong or had to be checked. Ranks that
     * lack a mean receive the state from the others. */
    return !*again_p && !tutti__redundancy_is_open(e) && tutti__elastic_is_loss(e, status)
               ? TUTTI_OK
               : status;
}

bool tutti_elastic_finish(tutti_elastic *e)
{
    tutti_status status;
    bool again = false;

    if (!e || e->phase != TUTTI__SHARDS) {
        if (e && e->phase == TUTTI__VOID)
            e->phase = TUTTI__IDLE;
        return false;
    }
    status = tutti__redundancy_end_shard(e);
    if (status == TUTTI_OK)
        status = e->redundant.purpose ? tutti__redundancy_end_discarded(e) : close_try(e, &again);
    if (status != TUTTI_OK) {
        if (tutti_elastic_recover(e, status) && e->redundant.corrupt)
            tutti_elastic_forget(e);
        e->redundant.corrupt = false;
        return false;
    }
    e->stats.attempts += again;
    again |= tutti__elastic_is_discarded(e);
    e->phase = again ? TUTTI__IDLE : TUTTI__UPDATING;
    return !again;
}

void tutti_elastic_commit(tutti_elastic *e)
{
    uint64_t now;

    if (!e || e->phase != TUTTI__UPDATING)
        return;
    e->phase = TUTTI__IDLE;
    e->step++;
    e->stats.steps++;
    if (e->agent < 0)
        return;
    now = tutti__now_coarse_ns();
    if (e->committed_ns > 0 && now - e->committed_ns < COMMITTED_NS)
        return;
    if (e->committed_ns == 0) /* tests and benches measure interruptions by this line */
        tutti_log(TUTTI_LOG_DEBUG, "elastic",
                  "generation %u, %d ranks: step %llu is its first, at %.3f", e->generation,
                  e->size, (unsigned long long)e->step, tutti__wall_seconds());
    e->committed_ns = now;
    /* If the agent is gone, begin reports it. */
    (void)tutti__agent_say(e, TUTTI__WORKER_COMMITTED);
}

/* ---- The end ------------------------------------------------------------------------------------------------ */

/* The others begin again at an earlier step, and this worker's program is past its loop: a replacement is not. */
static tutti_status fail_past(tutti_elastic *e, uint64_t step)
{
    (void)tutti__fail(
        TUTTI_ERR_PEER,
        "the state after step %llu was lost with workers that have died, and training "
        "continues at step %llu: this worker, whose program has ended its steps, "
        "makes room for another",
        (unsigned long long)step, (unsigned long long)e->step);
    return tutti__elastic_fail(e, TUTTI_ERR_PEER);
}

tutti_status tutti_elastic_end(tutti_elastic *e)
{
    tutti_status status;
    uint64_t step;

    TUTTI_TRY(TUTTI__NOT_NULL(e));
    step = e->step;
    e->ends_at = (int64_t)step + 1;
    while (e->status == TUTTI_OK && !e->left && !e->over) {
        if (e->phase == TUTTI__SHARDS || e->phase == TUTTI__UPDATING) {
            (void)tutti__fail(TUTTI_ERR_STATE, "elastic_end: the try at step %llu has not ended",
                              (unsigned long long)e->step);
            (void)tutti__elastic_fail(e, TUTTI_ERR_STATE);
            break;
        }
        if (tutti_elastic_join(e) != TUTTI_OK)
            break;
        if (e->step < step)
            return fail_past(e, step);
        status = tutti_barrier(e->group, NULL);
        e->over = status == TUTTI_OK;
        if (e->over)
            status = tutti__agent_say(e, TUTTI__WORKER_FINISHED);
        if (status != TUTTI_OK && !e->over)
            (void)tutti_elastic_recover(e, status);
    }
    return e->status == TUTTI_OK ? TUTTI_OK : tutti__elastic_failure(e);
}
