/* agent_round.c -- a round on this node: the coordinator's messages begin, stop and end it.
 * SPDX-License-Identifier: MIT */
#include "launch/agent/agent_parts.h"
#include "launch/agent/elastic_workers.h"
#include "launch/agent/rendezvous.h"

void tutti__agent_finish_round(tutti__agent *a)
{
    int port = 0;

    if (a->workers.phase == TUTTI__IDLE ||
        !(a->abandoned ? a->workers.childless : tutti__workers_over(&a->workers)))
        return;
    tutti__agent_report_failure(a);
    tutti__workers_close(&a->workers);
    a->workers.phase = TUTTI__IDLE;
    if (a->workers.finished && !a->membership.connected)
        a->ended = true; /* no coordinator is left to end it */
    if (a->control < 0)
        return; /* treated as lost by the others, since the front was killed */
    if (tutti__job_choose_port(a->job, &port) != TUTTI_OK)
        port = a->job->round.master_port;
    tutti__membership_send(&a->membership, json_pack("{s:s, s:i, s:i}", "type", "over", "round",
                                                     a->job->round.number, "port", port));
}

static void print_restart(tutti__agent *a)
{
    const tutti__round *round = &a->job->round;
    char nodes[48] = "", restarts[48] = "";

    if (a->job->opts.nodes.max > 1)
        snprintf(nodes, sizeof nodes, " on %d node%s", round->n_nodes,
                 round->n_nodes == 1 ? "" : "s");
    if (a->job->opts.max_restarts > 0)
        snprintf(restarts, sizeof restarts, ", restart %d of %d", round->restarts,
                 a->job->opts.max_restarts);
    tutti__console_say(&a->console, "starting the workers again: %d rank%s%s%s", round->world_size,
                       round->world_size == 1 ? "" : "s", nodes, restarts);
}

static void begin_round(tutti__agent *a, const json_t *m)
{
    tutti__round *round = &a->job->round;
    tutti_status status;

    *round = (tutti__round){.number = (int)tutti__message_number(m, "round", 0),
                            .restarts = (int)tutti__message_number(m, "restarts", 0),
                            .group_rank = (int)tutti__message_number(m, "group_rank", 0),
                            .n_nodes = (int)tutti__message_number(m, "nodes", 1),
                            .first_rank = (int)tutti__message_number(m, "first_rank", 0),
                            .world_size = (int)tutti__message_number(m, "world_size", 1),
                            .first_role_rank = (int)tutti__message_number(m, "same_role_before", 0),
                            .role_world_size = (int)tutti__message_number(m, "same_role", 1),
                            .master_port = (int)tutti__message_number(m, "master_port", 0)};
    snprintf(round->master_addr, sizeof round->master_addr, "%s",
             tutti__message_text(m, "master_addr"));
    snprintf(round->store, sizeof round->store, "%s", tutti__message_text(m, "store"));
    if (!a->job->opts.id)
        snprintf(a->job->id, sizeof a->job->id, "%s", tutti__message_text(m, "id"));
    a->job->opts.max_restarts = (int)tutti__message_number(m, "max_restarts", 0);
    a->reported_failure = a->printed_why = false;
    tutti__succession_forget(&a->membership.succession);
    if (a->stop_signal || a->ended)
        return; /* the coordinator must be told first */
    if (a->membership.rounds > 0)
        print_restart(a);
    a->membership.rounds = round->number + 1;
    a->membership.restarts = round->restarts;
    status = tutti__workers_start(&a->workers);
    if (status != TUTTI_OK)
        tutti__agent_fail(a, status);
    else if (json_is_true(json_object_get(m, "elastic")))
        tutti__elastic_begin(&a->workers, &a->membership);
}

static void on_end(tutti__agent *a, const json_t *m)
{
    const char *why = tutti__message_text(m, "why");

    a->ended = true;
    a->end_code = (int)tutti__message_number(m, "code", 1);
    if (*why && !a->stop_signal && !a->reported_failure && !a->printed_why)
        tutti__console_say(&a->console, "%s", why);
    if (json_is_true(json_object_get(m, "permanent")) &&
        a->job->round.restarts < a->job->opts.max_restarts && !a->stop_signal)
        tutti__console_say(&a->console, "no restart (--max-restarts %d): each attempt would end so",
                           a->job->opts.max_restarts);
    if (a->end_code != 0 && a->job->round.restarts > 0 &&
        a->job->round.restarts >= a->job->opts.max_restarts && !a->stop_signal)
        tutti__console_say(&a->console, "no restart is left (--max-restarts %d)",
                           a->job->opts.max_restarts);
    tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
    if (!a->membership.coordinator)
        tutti__connection_close(&a->membership.connection); /* acknowledges the end */
}

void tutti__agent_execute(tutti__agent *a, const json_t *m)
{
    const char *why = tutti__message_text(m, "why");
    tutti_status status;

    if (tutti__elastic_execute(&a->workers, m, &status)) {
        if (status != TUTTI_OK)
            tutti__agent_fail(a, status);
    } else if (tutti__message_is(m, "round")) {
        begin_round(a, m);
    } else if (tutti__message_is(m, "wait")) {
        tutti__console_say(&a->console, "%s", why);
    } else if (tutti__message_is(m, "stop") &&
               tutti__message_number(m, "round", -1) == a->job->round.number) {
        if (*why && !a->reported_failure && !a->stop_signal) {
            tutti__console_say(&a->console, "%s; stopping the workers", why);
            a->printed_why = true;
        }
        tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
    } else if (tutti__message_is(m, "elastic") &&
               tutti__message_number(m, "round", -1) == a->job->round.number) {
        tutti__elastic_begin(&a->workers, &a->membership);
    } else if (tutti__message_is(m, "refuse")) {
        tutti__console_say(&a->console, "this node is refused: %s", why);
        a->code = 2;
        a->ended = true;
    } else if (tutti__message_is(m, "end")) {
        on_end(a, m);
    }
}
