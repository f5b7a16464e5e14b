/* next_group.c -- from one group to the next.   SPDX-License-Identifier: MIT
 *
 *     READY -> GENERATION -> the group -> parts move into it -> state
 *
 * and again from the start if a worker dies in between. */
#include "elastic/elastic_internal.h"

#include "comm/bootstrap/store/store.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TRIES = 100 };

bool tutti_elastic_recover(tutti_elastic *e, tutti_status status)
{
    if (!e || status == TUTTI_OK || e->status != TUTTI_OK)
        return false;
    if (e->agent < 0 || !tutti__elastic_is_loss(e, status)) {
        (void)tutti__elastic_fail(e, status);
        return false;
    }
    if (e->down_ns == 0)
        e->down_ns = tutti__now_ns();
    if (e->group)
        tutti__group_give_up(e->group, tutti_last_error()); /* no effect if it is dead */
    tutti__elastic_leave(e, tutti_last_error());
    return true;
}

/* ---- Leaving ------------------------------------------------------------------------------------------------ */

/* Which ranks this worker considers dead, and why the group died. A rank that ends because of its own memory or device still
 * reports why: it is not to be killed meanwhile. */
static void note_cause(tutti_elastic *e)
{
    const char *text;
    int culprit;
    const tutti_status cause = tutti__group_cause(e->group, &culprit, &text);

    if (cause == TUTTI_OK)
        return;
    if (tutti_status_scope(cause) == TUTTI_SCOPE_PROCESS)
        culprit = -1;
    snprintf(e->why, sizeof e->why, "%.*s", (int)sizeof e->why - 1, text);
    for (int r = 0; r < e->size && e->n_lost < TUTTI__AGENT_MAX_LOST; r++)
        if ((r == culprit && r != tutti_group_rank(e->group)) ||
            tutti__group_is_silent(e->group, r))
            e->lost[e->n_lost++] = r;
    e->stats.lost_ranks += (uint64_t)e->n_lost;
}

static void drop_try(tutti_elastic *e)
{
    if (e->phase == TUTTI__SHARDS)
        e->stats.attempts++;
    /* It is unknown how much of the update was done. */
    if (e->phase == TUTTI__UPDATING) {
        e->has_state = false;
        e->torn = true;
    }
    e->phase = TUTTI__IDLE;
}

void tutti__elastic_leave(tutti_elastic *e, const char *why)
{
    const double begin_ms = tutti__now_ms();

    e->n_lost = 0;
    snprintf(e->why, sizeof e->why, "%.*s", (int)sizeof e->why - 1, why);
    e->regrouping = false;
    if (!e->group)
        return;
    note_cause(e);
    drop_try(e);
    for (const tutti__elastic_part *part = e->first; part; part = part->next)
        if (part->calls.regroup && part->calls.regroup(part->calls.self, NULL) != TUTTI_OK)
            tutti_log(TUTTI_LOG_WARN, "elastic", "leaving a group, %s: %s", part->name,
                      tutti_last_error());
    tutti__shard_queue_free(e->shard_queue);
    e->shard_queue = NULL;
    tutti_group_free(e->group);
    e->group = NULL;
    if (*e->why)
        tutti_log(TUTTI_LOG_DEBUG, "elastic", "left generation %u in %.1f ms: %s", e->generation,
                  tutti__now_ms() - begin_ms, e->why);
}

/* ---- Forming ------------------------------------------------------------------------------------------------ */

/* Sends READY until there is a generation to form. OK with `left`: it was told to leave. */
static tutti_status await_call(tutti_elastic *e)
{
    e->said_ready = false;
    while (!e->called && !e->asked_to_leave && !e->no_other) {
        if (!e->said_ready)
            TUTTI_TRY(tutti__agent_say(e, TUTTI__WORKER_READY));
        e->said_ready = true;
        TUTTI_TRY(tutti__agent_hear(e, true));
    }
    if (e->no_other && !e->asked_to_leave)
        return tutti__fail(TUTTI_ERR_ABORTED,
                           "the launcher stops this worker, which is in no group");
    if (!e->asked_to_leave)
        return TUTTI_OK;
    e->left = true;
    return tutti__agent_say(e, TUTTI__WORKER_LEAVES);
}

/* Which left in an orderly way since the last generation: as the launcher counts them, or, if it has a new coordinator, as they
 * told the group. */
static void count_left(tutti_elastic *e, int32_t left)
{
    const int64_t since = left - e->left_before;

    if (e->generation > 0) /* else it is new, and has missed none */
        e->stats.left_ranks += (uint64_t)(since > e->reported_left ? since : e->reported_left);
    e->left_before = left;
    e->reported_left = 0;
}

static tutti_status form_called(tutti_elastic *e)
{
    const tutti__agent_message *message = &e->call;
    tutti_group_opts opts = e->opts.group;
    char name[64];
    tutti_status status;

    e->called = false;
    count_left(e, message->left);
    e->generation = message->generation;
    e->asked_to_regroup = false;
    e->committed_ns = 0;
    e->fresh = message->fresh;
    e->called_ms = tutti__now_ms();
    e->lost_all = message->fresh && message->committed;
    snprintf(name, sizeof name, "generation-%u", message->generation);
    opts.rank = message->rank;
    opts.world_size = message->size;
    opts.local_rank = message->local_rank;
    opts.local_world_size = message->local_size;
    opts.name = name;
    /* A message from the agent interrupts this: another member has died, or there is a newer generation. */
    tutti__sockets_heed(e->agent);
    status = tutti__store_connect(&opts.store, message->store, message->attempt,
                                  opts.timeout_ms > 0 ? opts.timeout_ms : 600000);
    if (status == TUTTI_OK)
        status = tutti_group_init(&e->group, &opts);
    tutti__sockets_heed(-1);
    if (opts.store)
        tutti_store_free(opts.store);
    return status;
}

/* Forms one generation. *again_p: it failed, and is worth another try. */
static tutti_status form(tutti_elastic *e, bool *again_p)
{
    tutti_status status;

    *again_p = false;
    if (e->agent < 0) {
        tutti_group_opts opts = e->opts.group;

        e->called_ms = tutti__now_ms();
        e->fresh = true;
        opts.name = e->group_name;
        return tutti_group_init(&e->group, &opts);
    }
    TUTTI_TRY(await_call(e));
    if (e->left)
        return TUTTI_OK;
    status = form_called(e);
    *again_p = status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_IO;
    if (*again_p) {
        snprintf(e->why, sizeof e->why, "%.*s", (int)sizeof e->why - 1, tutti_last_error());
        e->n_lost = 0;
        if (tutti__sockets_unreached() >= 0)
            e->lost[e->n_lost++] = tutti__sockets_unreached();
        TUTTI_TRY(tutti__agent_hear(e, false));
        return tutti__fail_again(status, e->why);
    }
    return status;
}

static tutti_status make_room(tutti_elastic *e, int size)
{
    const size_t n = (size_t)size;

    free(e->reports);
    free(e->ranges);
    free(e->speeds);
    e->reports = tutti__alloc(n * sizeof *e->reports);
    e->ranges = tutti__alloc((n + 1) * sizeof *e->ranges);
    e->speeds = tutti__alloc(n * sizeof *e->speeds);
    e->size = size;
    return e->reports && e->ranges && e->speeds ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Moves the parts into the new group, and copies the state to the ranks that lack it. */
static tutti_status enter(tutti_elastic *e)
{
    e->n_tries = 0;
    e->stats.groups++;
    tutti__redundancy_enter(e);
    TUTTI_TRY(make_room(e, tutti_group_size(e->group)));
    if (e->size > e->opts.shards)
        return tutti__fail(TUTTI_ERR_ARG,
                           "a step has %d shards, but there are %d ranks: start at most as many "
                           "workers, or use more shards",
                           e->opts.shards, e->size);
    e->can_begin = !e->torn;
    TUTTI__EACH_PART(e, regroup, (part->calls.self, e->group));
    TUTTI_TRY(tutti__shard_queue_new(&e->shard_queue, e->group, e->opts.shards));
    return tutti__elastic_share_state(e);
}

tutti_status tutti_elastic_join(tutti_elastic *e)
{
    tutti_status status = TUTTI_OK;
    double formed_ms;
    bool again;

    TUTTI_TRY(TUTTI__NOT_NULL(e));
    for (int tries = 0; !e->group && e->status == TUTTI_OK && !e->left; tries++) {
        status = form(e, &again);
        if (status != TUTTI_OK && again && tries < MAX_TRIES)
            continue;
        if (status != TUTTI_OK)
            return tutti__elastic_fail(e, status);
        if (e->left)
            break;
        formed_ms = tutti__now_ms();
        status = enter(e);
        if (status == TUTTI_OK)
            tutti__error_file_forget();
        if (status == TUTTI_OK)
            tutti_log(
                TUTTI_LOG_DEBUG, "elastic",
                "step %llu, generation %u, rank %d of %d: %.1f ms for the group, %.1f for parts "
                "and state",
                (unsigned long long)e->step, e->generation, tutti_group_rank(e->group), e->size,
                formed_ms - e->called_ms, tutti__now_ms() - formed_ms);
        if (status != TUTTI_OK && !tutti_elastic_recover(e, status))
            break;
    }
    if (e->status != TUTTI_OK)
        return tutti__elastic_failure(e);
    if (e->left)
        return tutti__fail(TUTTI_ERR_ABORTED, "this worker was told to leave the job");
    return TUTTI_OK;
}
