/* elastic_round.c -- drives the generations by messages.   SPDX-License-Identifier: MIT */
#include "launch/host/elastic_round.h"
#include "launch/message/connection.h"

#include <string.h>

#define SAY(r, format, ...) tutti__console_say((r)->opts.console, format, __VA_ARGS__)

static uint64_t now_ms(void)
{
    return (uint64_t)tutti__now_ms();
}

/* ---- Actions ------------------------------------------------------------------------------------------- */

static json_t *about(const tutti__elastic_round *r, const tutti__action *a, const char *type)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:o}", "type", type, "round", r->number, "place",
                     a->id.place, "start", a->id.start, "why",
                     tutti__message_string(a->why ? a->why : ""));
}

static json_t *make_message(const tutti__elastic_round *r, const tutti__action *a,
                            tutti__agent_message_kind kind)
{
    json_t *m = about(r, a, "message"),
           *more =
               json_pack("{s:i, s:I, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:i, s:o}", "kind",
                         (int)kind, "generation", (json_int_t)a->generation, "rank", a->rank,
                         "size", a->size, "local_rank", a->local_rank, "local_size", a->local_size,
                         "attempt", r->number, "fresh", a->fresh, "committed", a->committed, "left",
                         a->left, "store", tutti__message_string(r->opts.job->store_address));

    json_object_update_missing(m, more);
    json_decref(more);
    return m;
}

static json_t *make_verdict(const tutti__elastic_round *r, const tutti__action *a)
{
    json_t *m = about(r, a, "verdict");

    json_object_set_new(m, "verdict",
                        json_string(a->act == TUTTI__ACT_REPLACE  ? "replace"
                                    : a->act == TUTTI__ACT_REST   ? "rest"
                                    : a->act == TUTTI__ACT_LET_GO ? "let_go"
                                                                  : "fail"));
    return m;
}

static void act(void *context, const tutti__action *a)
{
    tutti__elastic_round *r = context;
    json_t *m;

    switch (a->act) {
    case TUTTI__ACT_GENERATION:
        m = make_message(r, a, TUTTI__AGENT_GENERATION);
        break;
    case TUTTI__ACT_REGROUP:
        m = make_message(r, a, TUTTI__AGENT_REGROUP);
        break;
    case TUTTI__ACT_LEAVE:
        m = make_message(r, a, TUTTI__AGENT_LEAVE);
        break;
    case TUTTI__ACT_REFUSE:
        SAY(r, "a worker is refused: %s", a->why);
        m = make_message(r, a, TUTTI__AGENT_REFUSED);
        break;
    case TUTTI__ACT_KILL:
        m = about(r, a, "kill");
        break;
    default:
        if (a->id.node < 0) {
            r->opts.fail(r->opts.context, a->code, a->why);
            return;
        }
        m = make_verdict(r, a);
    }
    r->opts.send(r->opts.context, a->id.node, m);
}

/* ---- Messages from agents ---------------------------------------------------------------------------------------------- */

static void on_said(tutti__elastic_round *r, tutti__worker_id id, const json_t *m)
{
    const json_t *lost = json_object_get(m, "lost");
    tutti__worker_message message = {
        .protocol = (uint32_t)tutti__message_number(m, "protocol", 0),
        .kind = (uint32_t)tutti__message_number(m, "kind", UINT32_MAX),
        .generation = (uint32_t)tutti__message_number(m, "generation", 0),
        .shards = (int32_t)tutti__message_number(m, "shards", 0),
        .step = tutti__message_number(m, "step", -1),
    };

    for (size_t i = 0; i < json_array_size(lost) && i < TUTTI__AGENT_MAX_LOST; i++)
        message.lost[message.n_lost++] = (int32_t)json_integer_value(json_array_get(lost, i));
    snprintf(message.build, sizeof message.build, "%s", tutti__message_text(m, "build"));
    snprintf(message.why, sizeof message.why, "%s", tutti__message_text(m, "why"));
    tutti__generations_said(&r->generations, now_ms(), id, &message);
}

bool tutti__elastic_round_hear(tutti__elastic_round *r, int node, const json_t *m)
{
    tutti__generations *g = &r->generations;
    tutti__worker_id id = {node, (int)tutti__message_number(m, "place", -1),
                           (int)tutti__message_number(m, "start", -1)};

    if (tutti__message_is(m, "said"))
        on_said(r, id, m);
    else if (tutti__message_is(m, "ended"))
        tutti__generations_ended(g, now_ms(), id, (int)tutti__message_number(m, "code", 1),
                                 (int)tutti__message_number(m, "signal", 0));
    else if (tutti__message_is(m, "stopped"))
        tutti__generations_stopped(g, now_ms(), id, json_is_true(json_object_get(m, "stopped")));
    else if (tutti__message_is(m, "resumed"))
        tutti__generations_resumed(
            g, now_ms(), id, (uint32_t)tutti__message_number(m, "generation", 0),
            (int)tutti__message_number(m, "rank", 0), tutti__message_number(m, "step", -1));
    else
        return false;
    return true;
}

tutti_status tutti__elastic_round_node_came(tutti__elastic_round *r, int node, int n)
{
    return tutti__generations_node_came(&r->generations, node, n);
}

void tutti__elastic_round_node_lost(tutti__elastic_round *r, int node)
{
    tutti__generations_node_lost(&r->generations, now_ms(), node);
}

void tutti__elastic_round_node_leaves(tutti__elastic_round *r, int node)
{
    tutti__generations_node_leaves(&r->generations, now_ms(), node);
}

void tutti__elastic_round_hold(tutti__elastic_round *r, double seconds)
{
    r->generations.hold_ms = now_ms() + (uint64_t)(seconds * 1e3);
}

void tutti__elastic_round_pause(tutti__elastic_round *r, bool paused)
{
    tutti__generations_pause(&r->generations, now_ms(), paused);
}

double tutti__elastic_round_deadline(const tutti__elastic_round *r)
{
    uint64_t at = tutti__generations_deadline(&r->generations);

    return at == UINT64_MAX ? 1e300 : (double)at + 1;
}

void tutti__elastic_round_tick(tutti__elastic_round *r)
{
    tutti__generations_tick(&r->generations, now_ms());
}

/* ---- Beginning and end --------------------------------------------------------------------------------- */

void tutti__elastic_round_tell(const tutti__elastic_round *r)
{
    const tutti__generations *g = &r->generations;

    if (r->opts.job->opts.quiet || !g->elastic || g->last == 0 ||
        (g->step <= 0 && g->deaths == 0 && g->joined == 0))
        return; /* it failed, or there was nothing to do */
    SAY(r,
        "%lld steps in %.1f s; %d death%s, %d replacement%s, %d worker%s joined and %d left; %u "
        "generation%s; %.2f s lost to deaths%s",
        (long long)(g->step < 0 ? 0 : g->step), (tutti__now_ms() - r->since_ms) * 1e-3, g->deaths,
        g->deaths == 1 ? "" : "s", g->replaced, g->replaced == 1 ? "" : "s", g->joined,
        g->joined == 1 ? "" : "s", g->left, g->last, g->last == 1 ? "" : "s",
        (double)g->lost_ms * 1e-3, r->succeeds ? " (since this node coordinates)" : "");
}

void tutti__elastic_round_init(tutti__elastic_round *r, const tutti__elastic_round_opts *opts)
{
    *r = (tutti__elastic_round){.opts = *opts};
    tutti__elastic_round_begin(r, 0);
}

/* That of the workers, which have this environment too. */
static uint64_t heartbeat_ms(void)
{
    double seconds;

    return tutti__parse_double(tutti__env_text(TUTTI__ENV_HEARTBEAT_S), &seconds) && seconds > 0
               ? (uint64_t)(seconds * 1e3)
               : 0;
}

void tutti__elastic_round_begin(tutti__elastic_round *r, int number)
{
    r->begun |= r->generations.step > 0;
    r->number = number;
    r->succeeds = false;
    r->since_ms = tutti__now_ms();
    tutti__generations_free(&r->generations);
    tutti__generations_init(
        &r->generations,
        &(tutti__generations_opts){
            .stopped_ms = heartbeat_ms(), .begun = r->begun, .act = act, .context = r});
}

void tutti__elastic_round_free(tutti__elastic_round *r)
{
    tutti__generations_free(&r->generations);
}
