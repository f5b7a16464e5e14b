/* coordinator_messages.c -- what the coordinator decides, as messages to nodes.   SPDX-License-Identifier: MIT */
#include "launch/host/coordinator.h"
#include "launch/host/roster_message.h"
#include "launch/message/connection.h"

static json_t *pack_round(const tutti__rounds *r, const tutti__job *job,
                          const tutti__round_action *a)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:o, s:b}",
                     "type", "round", "round", a->number, "restarts", r->restarts, "max_restarts",
                     r->opts.max_restarts, "group_rank", a->node->group_rank, "nodes", a->n_nodes,
                     "first_rank", a->node->first_rank, "world_size", a->world_size,
                     "same_role_before", a->first_role_rank, "same_role", a->role_world_size,
                     "master_addr", tutti__message_string(r->master_addr), "master_port",
                     r->master_port, "store", tutti__message_string(job->store_address), "id",
                     tutti__message_string(job->id), "elastic", tutti__rounds_is_elastic(r));
}

static json_t *pack_list(const tutti__rounds *r, const tutti__job *job, const tutti__node *node)
{
    json_t *m = tutti__roster_write(&r->roster);

    json_object_set_new(m, "type", json_string("nodes"));
    json_object_set_new(m, "me", json_integer(node->id));
    json_object_set_new(m, "store", tutti__message_string(job->store_address));
    return m;
}

/* ---- About a worker ------------------------------------------------------------------------------------------------ */

static json_t *pack_about(const tutti__rounds *r, const tutti__action *a, const char *type)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:o}", "type", type, "round", r->number, "place",
                     a->id.place, "start", a->id.start, "why",
                     tutti__message_string(a->why ? a->why : ""));
}

static json_t *pack_message(const tutti__rounds *r, const tutti__job *job, const tutti__action *a,
                            tutti__agent_message_kind kind)
{
    json_t *m = pack_about(r, a, "message"),
           *more =
               json_pack("{s:i, s:I, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:i, s:o}", "kind",
                         (int)kind, "generation", (json_int_t)a->generation, "rank", a->rank,
                         "size", a->size, "local_rank", a->local_rank, "local_size", a->local_size,
                         "attempt", r->number, "fresh", a->fresh, "committed", a->committed, "left",
                         a->left, "store", tutti__message_string(job->store_address));

    json_object_update_missing(m, more);
    json_decref(more);
    return m;
}

static json_t *pack_verdict(const tutti__rounds *r, const tutti__action *a, const char *verdict)
{
    json_t *m = pack_about(r, a, "verdict");

    json_object_set_new(m, "verdict", json_string(verdict));
    return m;
}

static json_t *pack_worker(const tutti__rounds *r, const tutti__job *job, const tutti__action *a)
{
    switch (a->act) {
    case TUTTI__ACT_GENERATION:
        return pack_message(r, job, a, TUTTI__AGENT_GENERATION);
    case TUTTI__ACT_REGROUP:
        return pack_message(r, job, a, TUTTI__AGENT_REGROUP);
    case TUTTI__ACT_LEAVE:
        return pack_message(r, job, a, TUTTI__AGENT_LEAVE);
    case TUTTI__ACT_REFUSE:
        return pack_message(r, job, a, TUTTI__AGENT_REFUSED);
    case TUTTI__ACT_KILL:
        return pack_about(r, a, "kill");
    case TUTTI__ACT_REPLACE:
        return pack_verdict(r, a, "replace");
    case TUTTI__ACT_REST:
        return pack_verdict(r, a, "rest");
    case TUTTI__ACT_LET_GO:
        return pack_verdict(r, a, "let_go");
    default:
        return pack_verdict(r, a, "fail");
    }
}

json_t *tutti__round_message(const tutti__rounds *r, const tutti__job *job,
                             const tutti__round_action *a)
{
    json_t *why = tutti__message_string(a->why ? a->why : "");

    switch (a->act) {
    case TUTTI__ROUND_WAIT:
        return json_pack("{s:s, s:o}", "type", "wait", "why", why);
    case TUTTI__ROUND_REFUSE:
        return json_pack("{s:s, s:o}", "type", "refuse", "why", why);
    case TUTTI__ROUND_STOP:
        return json_pack("{s:s, s:i, s:o, s:b}", "type", "stop", "round", a->number, "why", why,
                         "failing", a->failing);
    case TUTTI__ROUND_END:
        return json_pack("{s:s, s:i, s:b, s:o}", "type", "end", "code", a->code, "permanent",
                         a->permanent, "why", why);
    default:
        json_decref(why);
    }
    switch (a->act) {
    case TUTTI__ROUND_BEGIN:
        return pack_round(r, job, a);
    case TUTTI__ROUND_WELCOME:
        return json_pack("{s:s}", "type", "welcome");
    case TUTTI__ROUND_ELASTIC:
        return json_pack("{s:s, s:i}", "type", "elastic", "round", a->number);
    case TUTTI__ROUND_LIST:
        return pack_list(r, job, a->node);
    case TUTTI__ROUND_REDIRECT:
        return json_pack("{s:s, s:I, s:b, s:o, s:i}", "type", "redirect", "term", (json_int_t)0,
                         "stranger", a->stranger, "address", tutti__message_string(a->address),
                         "port", a->port);
    case TUTTI__ROUND_WORKER:
        return pack_worker(r, job, a->worker);
    default:
        return NULL;
    }
}
