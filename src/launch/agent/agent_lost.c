/* agent_lost.c -- what a node does without its coordinator: elastic workers continue while another is found, others are stopped.
 * SPDX-License-Identifier: MIT */
#include "launch/agent/agent_parts.h"
#include "launch/agent/elastic_workers.h"

/* Elastic workers need no rendezvous until one of them dies. */
static bool keeps_running(const tutti__agent *a)
{
    return a->workers.elastic && a->workers.phase == TUTTI__RUNNING;
}

void tutti__agent_lost_coordinator(tutti__agent *a)
{
    tutti__membership *m = &a->membership;

    tutti__agent_show_held(a, true);
    if (a->leaving && a->workers.phase < TUTTI__STOPPING)
        tutti__workers_stop(&a->workers, a->stop_signal);
    if (a->workers.finished && a->workers.phase == TUTTI__IDLE)
        a->ended = true; /* no coordinator is left to end it */
    if (a->ended || a->stop_signal)
        return;
    if (keeps_running(a) && tutti__search_is_on(m)) {
        tutti__console_say(&a->console,
                           "the coordinator node at %s was lost: %s; the next one takes over",
                           m->search.succession.roster.list[0].address, m->retry.trouble);
        return;
    }
    if (keeps_running(a)) {
        tutti__console_say(
            &a->console,
            "the rendezvous host %s:%d was lost: %s; the workers continue while it is looked for",
            a->job->opts.nodes.host, a->job->opts.nodes.port, m->retry.trouble);
        return;
    }
    if (a->workers.phase != TUTTI__IDLE) {
        tutti__console_say(&a->console,
                           "the rendezvous host %s:%d was lost: %s; stopping the workers",
                           a->job->opts.nodes.host, a->job->opts.nodes.port, m->retry.trouble);
        tutti__workers_stop(&a->workers, SIGTERM);
    }
    if (m->rounds == 0)
        return; /* no round has begun */
    if (m->restarts < a->job->opts.max_restarts) {
        m->restarts++;
        return;
    }
    tutti__fail(TUTTI_ERR_PEER,
                "the rendezvous host %s:%d was lost: %s; no restart is left to wait for it "
                "(--max-restarts %d)",
                a->job->opts.nodes.host, a->job->opts.nodes.port, m->retry.trouble,
                a->job->opts.max_restarts);
    tutti__agent_fail(a, TUTTI_ERR_PEER);
}

bool tutti__agent_lacks_rendezvous(const tutti__agent *a)
{
    return !a->membership.connected && !a->ended && !a->stop_signal &&
           (a->workers.phase == TUTTI__IDLE || keeps_running(a));
}

static void look_for_successor(tutti__agent *a)
{
    double limit_s = tutti__or(a->job->opts.nodes.join_timeout_s, 600);
    bool found;
    tutti_status status;

    a->membership.running = true;
    status = tutti__search_advance(&a->membership, &found);
    if (a->membership.search.succession.uncertain && !a->paused) {
        tutti__elastic_pause(&a->workers);
        a->paused_ms = tutti__now_ms();
    }
    a->paused = a->membership.search.succession.uncertain;
    if (status == TUTTI_OK && a->paused && !a->membership.coordinator && !found &&
        tutti__now_ms() >= a->paused_ms + limit_s * 1e3)
        status = tutti__fail(
            TUTTI_ERR_PEER,
            "gave up after %g s of trying to reach the coordinator node at %s, or its successor "
            "(--rdzv-conf join_timeout=%g)",
            limit_s, a->membership.search.succession.roster.list[0].address, limit_s);
    if (status != TUTTI_OK)
        tutti__agent_fail(a, status);
    else if (found)
        tutti__elastic_report_all(&a->workers, &a->membership);
}

void tutti__agent_look_for_rendezvous(tutti__agent *a)
{
    bool searched = a->membership.search.on;
    tutti_status status;

    a->membership.search.on =
        keeps_running(a) && !a->ended && !a->stop_signal && tutti__search_is_on(&a->membership);
    if (a->membership.search.on) {
        look_for_successor(a);
        return;
    }
    if (searched || !(a->membership.connected || tutti__agent_lacks_rendezvous(a)))
        tutti__search_hang_up(&a->membership);
    a->paused = false;
    if (!tutti__agent_lacks_rendezvous(a))
        return;
    a->membership.running = keeps_running(a);
    status = tutti__membership_try(&a->membership);
    if (status == TUTTI_ERR_TIMEOUT && keeps_running(a) && tutti__elastic_is_at_work(&a->workers))
        a->membership.retry.since_ms = 0; /* workers need it only for the next death */
    else if (status != TUTTI_OK)
        tutti__agent_fail(a, status);
    if (a->membership.joined && a->membership.running)
        tutti__elastic_report_all(&a->workers, &a->membership);
}
