/* coordinator_messages.c -- what the coordinator decides, as messages to nodes.   SPDX-License-Identifier: MIT */
#include "launch/host/coordinator.h"
#include "launch/message/messages.h"

static json_t *pack_round(const tutti__rounds *r, const tutti__job *job,
                          const tutti__round_action *a)
{
    return tutti__message_pack_round(
        &(tutti__message_round){.round = a->number,
                                .restarts = r->restarts,
                                .max_restarts = r->opts.max_restarts,
                                .group_rank = a->node->group_rank,
                                .nodes = a->n_nodes,
                                .first_rank = a->node->first_rank,
                                .world_size = a->world_size,
                                .same_role_before = a->first_role_rank,
                                .same_role = a->role_world_size,
                                .master_addr = r->master_addr,
                                .master_port = r->master_port,
                                .store = job->store_address,
                                .id = job->id,
                                .elastic = tutti__rounds_is_elastic(r)});
}

static json_t *pack_list(const tutti__rounds *r, const tutti__job *job,
                         const tutti__round_node *node, const char *list)
{
    return tutti__message_pack_nodes(&(tutti__message_nodes){.term = r->roster.term,
                                                             .version = r->roster.version,
                                                             .list = list,
                                                             .me = node->id,
                                                             .store = job->store_address});
}

/* ---- About a worker ------------------------------------------------------------------------------------------------ */

static json_t *pack_message(const tutti__rounds *r, const tutti__job *job, const tutti__action *a,
                            tutti__agent_message_kind kind)
{
    return tutti__message_pack_message(&(tutti__message_message){.round = r->number,
                                                                 .worker = a->id.local_rank,
                                                                 .start = a->id.start,
                                                                 .why = a->why,
                                                                 .kind = (int)kind,
                                                                 .generation = a->generation,
                                                                 .rank = a->rank,
                                                                 .size = a->size,
                                                                 .local_rank = a->local_rank,
                                                                 .local_size = a->local_size,
                                                                 .attempt = r->number,
                                                                 .fresh = a->fresh,
                                                                 .committed = a->committed,
                                                                 .left = a->left,
                                                                 .store = job->store_address});
}

static json_t *pack_verdict(const tutti__rounds *r, const tutti__action *a, const char *verdict)
{
    return tutti__message_pack_verdict(&(tutti__message_verdict){.round = r->number,
                                                                 .worker = a->id.local_rank,
                                                                 .start = a->id.start,
                                                                 .why = a->why,
                                                                 .verdict = verdict});
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
        return tutti__message_pack_kill(&(tutti__message_kill){
            .round = r->number, .worker = a->id.local_rank, .start = a->id.start, .why = a->why});
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
                             const tutti__round_action *a, const char *list)
{
    switch (a->act) {
    case TUTTI__ROUND_WAIT:
        return tutti__message_pack_wait(&(tutti__message_wait){.why = a->why});
    case TUTTI__ROUND_REFUSE:
        return tutti__message_pack_refuse(&(tutti__message_refuse){.why = a->why});
    case TUTTI__ROUND_STOP:
        return tutti__message_pack_stop(&(tutti__message_stop){
            .round = a->number, .why = a->why, .failing = a->failing, .own = a->node->is_cause});
    case TUTTI__ROUND_END:
        return tutti__message_pack_end(&(tutti__message_end){
            .code = a->code, .permanent = a->permanent, .why = a->why, .own = a->node->is_cause});
    case TUTTI__ROUND_BEGIN:
        return pack_round(r, job, a);
    case TUTTI__ROUND_WELCOME:
        return tutti__message_pack(TUTTI__MESSAGE_WELCOME);
    case TUTTI__ROUND_ELASTIC:
        return tutti__message_pack_elastic(&(tutti__message_elastic){.round = a->number});
    case TUTTI__ROUND_LIST:
        return pack_list(r, job, a->node, list);
    case TUTTI__ROUND_REDIRECT:
        return tutti__message_pack_redirect(&(tutti__message_redirect){
            .unrelated = a->unrelated, .address = a->address, .port = a->port});
    case TUTTI__ROUND_WORKER:
        return pack_worker(r, job, a->worker);
    default:
        return NULL;
    }
}
