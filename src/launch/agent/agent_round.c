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
    tutti__membership_send(&a->membership, tutti__message_pack_over(&(tutti__message_over){
                                               .round = a->job->round.number, .port = port}));
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

static void begin_round(tutti__agent *a, const tutti__message_round *m)
{
    tutti__round *round = &a->job->round;
    tutti_status status;

    *round = (tutti__round){.number = m->round,
                            .restarts = m->restarts,
                            .group_rank = m->group_rank,
                            .n_nodes = m->nodes,
                            .first_rank = m->first_rank,
                            .world_size = m->world_size,
                            .first_role_rank = m->same_role_before,
                            .role_world_size = m->same_role,
                            .master_port = m->master_port};
    snprintf(round->master_addr, sizeof round->master_addr, "%s", m->master_addr);
    snprintf(round->store, sizeof round->store, "%s", m->store);
    if (!a->job->opts.id)
        snprintf(a->job->id, sizeof a->job->id, "%s", m->id);
    a->job->opts.max_restarts = m->max_restarts;
    a->reported_failure = a->printed_why = false;
    tutti__agent_show_held(a, false);
    tutti__succession_forget(&a->membership.search.succession);
    if (a->stop_signal || a->ended)
        return; /* the coordinator must be told first */
    if (a->membership.rounds > 0 && tutti__agent_speaks(a))
        print_restart(a);
    a->membership.rounds = round->number + 1;
    a->membership.restarts = round->restarts;
    status = tutti__workers_start(&a->workers);
    if (status != TUTTI_OK)
        tutti__agent_fail(a, status);
    else if (m->elastic)
        tutti__elastic_begin(&a->workers, &a->membership);
}

static void on_end(tutti__agent *a, const tutti__message_end *m)
{
    const bool speaks = tutti__agent_speaks(a);

    a->ended = true;
    a->end_code = m->code;
    tutti__agent_show_held(a, m->own);
    if (a->membership.coordinator)
        tutti__console_report_repeats(&a->console);
    if (*m->why && !a->stop_signal && !a->reported_failure && !a->printed_why && speaks)
        tutti__console_say(&a->console, "%s", m->why);
    if (speaks && m->permanent && a->job->round.restarts < a->job->opts.max_restarts &&
        !a->stop_signal)
        tutti__console_say(&a->console, "no restart (--max-restarts %d): each round would end so",
                           a->job->opts.max_restarts);
    if (speaks && a->end_code != 0 && a->job->round.restarts > 0 &&
        a->job->round.restarts >= a->job->opts.max_restarts && !a->stop_signal)
        tutti__console_say(&a->console, "no restart is left (--max-restarts %d)",
                           a->job->opts.max_restarts);
    tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
    if (!a->membership.coordinator)
        tutti__connection_close(&a->membership.connection); /* acknowledges the end */
}

static void on_stop(tutti__agent *a, const char *why, bool own)
{
    if (own)
        tutti__agent_show_held(a, true);
    if (*why && !a->reported_failure && !a->stop_signal && tutti__agent_speaks(a)) {
        tutti__console_say(&a->console, "%s; stopping the workers", why);
        a->printed_why = true;
    }
    tutti__workers_stop(&a->workers, a->leaving ? a->stop_signal : SIGTERM);
}

void tutti__agent_execute(tutti__agent *a, const json_t *m)
{
    const bool current = tutti__message_read_worker(m).round == a->job->round.number;
    tutti__message_round round;
    tutti__message_end end;
    tutti_status status;

    switch (tutti__message_type_of(m)) {
    case TUTTI__MESSAGE_ROUND:
        round = tutti__message_read_round(m);
        begin_round(a, &round);
        return;
    case TUTTI__MESSAGE_WAIT:
        if (tutti__agent_speaks(a) &&
            (a->membership.coordinator || a->job->opts.nodes.max <= TUTTI__FEW_NODES))
            tutti__console_say(&a->console, "%s", tutti__message_read_wait(m).why);
        return;
    case TUTTI__MESSAGE_STOP:
        if (current)
            on_stop(a, tutti__message_read_stop(m).why, tutti__message_read_stop(m).own);
        return;
    case TUTTI__MESSAGE_ELASTIC:
        if (current)
            tutti__elastic_begin(&a->workers, &a->membership);
        return;
    case TUTTI__MESSAGE_REFUSE:
        tutti__console_say(&a->console, "this node is refused: %s",
                           tutti__message_read_refuse(m).why);
        a->code = 2;
        a->ended = true;
        return;
    case TUTTI__MESSAGE_END:
        end = tutti__message_read_end(m);
        on_end(a, &end);
        return;
    default:
        status = current ? tutti__elastic_execute(&a->workers, m) : TUTTI_OK;
        if (status != TUTTI_OK)
            tutti__agent_fail(a, status);
    }
}
