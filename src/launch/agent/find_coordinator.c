/* find_coordinator.c -- asks the nodes of an elastic round for their coordinator, as succession.h decides, without blocking; and
 * answers those that ask here.   SPDX-License-Identifier: MIT */
#include "launch/agent/membership.h"
#include "launch/host/roster_message.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    DIAL_MS = 1000, /* for one node to connect and answer */
    ANNOUNCE_MS = 500
};

static uint64_t now_ms(void)
{
    return (uint64_t)tutti__now_ms();
}

/* ---- Answering while not coordinating ------------------------------------------------------------ */

static void on_question(void *context, tutti__client *client, const json_t *message)
{
    tutti__membership *m = context;
    const tutti__roster *r = &m->search.succession.roster;
    bool knows = m->connected && r->n > 0 && !m->coordinator;

    if (tutti__message_type_of(message) != TUTTI__MESSAGE_JOIN)
        return;
    tutti__message_server_send(&m->standby.server, client,
                               tutti__message_pack_redirect(&(tutti__message_redirect){
                                   .term = knows ? r->term : 0,
                                   .address = knows ? r->list[0].address : "",
                                   .port = knows ? r->list[0].port : 0}));
}

static void on_hang_up(void *context, tutti__client *client, const char *why)
{
    (void)context;
    (void)client;
    (void)why;
}

static void stand_by(tutti__membership *m)
{
    if (m->standby.on || m->coordinator || m->standby.listener < 0)
        return;
    m->standby.on = true;
    if (tutti__message_server_open(
            &m->standby.server,
            &(tutti__message_server_opts){
                .client_bytes = sizeof(tutti__client),
                .listener = fcntl(m->standby.listener, F_DUPFD_CLOEXEC, 3),
                .secret = &m->secret,
                .claim = {.kind = 'L', .job = m->secret.job, .process = m->secret.process},
                .ping_ms = DIAL_MS,
                .misses = 3,
                .on_message = on_question,
                .on_lost = on_hang_up,
                .context = m},
            -1) == TUTTI_OK)
        return;
    tutti__message_server_free(&m->standby.server);
    m->standby.on = false;
}

void tutti__search_note(tutti__membership *m, const json_t *message)
{
    const tutti__message_nodes nodes = tutti__message_read_nodes(message);
    tutti__roster *roster = tutti__alloc(sizeof *roster); /* large for a stack */

    if (roster && tutti__roster_read(roster, message) &&
        tutti__succession_listed(&m->search.succession, roster, nodes.me)) {
        snprintf(m->job->round.store, sizeof m->job->round.store, "%s", nodes.store);
        tutti__connection_send(&m->connection, tutti__message_pack_nodes(&(tutti__message_nodes){
                                                   .version = roster->version}));
        stand_by(m);
    }
    free(roster);
}

/* ---- Asking ------------------------------------------------------------------------------------------- */

static tutti__rounds *own_rounds(const tutti__membership *m)
{
    return m->coordinator ? tutti__coordinator_rounds(m->coordinator) : NULL;
}

bool tutti__search_is_on(const tutti__membership *m)
{
    const tutti__succession *s = &m->search.succession;

    if (m->coordinator)
        return s->id > 0 && tutti__rounds_is_paused(own_rounds(m));
    return tutti__succession_has_others(s) && !m->connected;
}

int tutti__search_fd(const tutti__membership *m, short *events_p)
{
    return tutti__dial_fd(&m->dial, events_p);
}

static tutti__connector_opts dial_opts(const tutti__membership *m)
{
    return (tutti__connector_opts){
        .secret = &m->secret, .who = "another node", .deadline = tutti__now_ms() + DIAL_MS};
}

/* An invalid address fails like one that does not answer. */
static void dial(tutti__membership *m, const char *host, int port)
{
    const tutti__connector_opts opts = dial_opts(m);

    m->search.asked = false;
    tutti__dial_begin_host(&m->dial, host, port, &opts);
}

/* A coordinator that has accepted this node meanwhile must not take its end of the connection for its death. */
void tutti__search_hang_up(tutti__membership *m)
{
    if (m->dial.state == TUTTI__DIAL_OPEN && m->search.asked)
        tutti__connection_send(&m->dial.connection, tutti__message_pack(TUTTI__MESSAGE_APART));
    tutti__dial_close(&m->dial);
}

static void on_refused(tutti__membership *m)
{
    tutti__dial_close(&m->dial);
    tutti__succession_refused(&m->search.succession, own_rounds(m));
}

static void on_no_answer(tutti__membership *m)
{
    const bool disconnected = m->dial.hung_up;

    tutti__search_hang_up(m);
    tutti__succession_unanswered(&m->search.succession, now_ms(), disconnected);
}

static void on_redirected(tutti__membership *m, const json_t *answer)
{
    const tutti__message_redirect r = tutti__message_read_redirect(answer);

    tutti__dial_close(&m->dial);
    tutti__succession_redirected(&m->search.succession, own_rounds(m), r.term, r.address, r.port,
                                 r.unrelated);
}

/* It has accepted this node: frees what this node hosted meanwhile. */
static void on_accepted(tutti__membership *m, json_t *answer)
{
    if (m->coordinator) {
        tutti__connection_close(&m->connection);
        tutti__coordinator_free(m->coordinator);
        m->coordinator = NULL;
        tutti__console_say(m->console, "another node coordinates the job: this one rejoins it");
    }
    m->connection = tutti__dial_take(&m->dial);
    m->connected = m->joined = true;
    m->search.first_message = answer;
    tutti__succession_accepted(&m->search.succession);
    stand_by(m);
}

/* The dial is open: sends join, and waits for the answer. */
static void ask(tutti__membership *m)
{
    tutti__connection *connection = &m->dial.connection;
    json_t *answer;

    if (!m->search.asked && tutti__membership_join(m, connection) != TUTTI_OK) {
        on_no_answer(m);
        return;
    }
    m->search.asked = true;
    tutti__connection_flush(connection);
    tutti__connection_read(connection);
    while ((answer = tutti__connection_take(connection)) != NULL &&
           tutti__message_type_of(answer) == TUTTI__MESSAGE_PING)
        tutti__connection_send(connection, answer);
    if (answer && tutti__message_type_of(answer) == TUTTI__MESSAGE_REDIRECT) {
        on_redirected(m, answer);
        json_decref(answer);
    } else if (answer) {
        on_accepted(m, answer);
    } else if (connection->fault || tutti__now_ms() >= m->dial.deadline) {
        m->dial.hung_up = connection->fault != NULL;
        on_no_answer(m);
    }
}

/* ---- Nodes that come to the first endpoint ------------------------------------------------- */

void tutti__search_announce(tutti__membership *m)
{
    const tutti__roster *r = tutti__rounds_successor(tutti__coordinator_rounds(m->coordinator));
    const tutti__connector_opts opts = dial_opts(m);
    tutti__dial *d = &m->dial;

    if (!r || m->standby.port == m->job->opts.nodes.port) {
        if (m->search.announce_ms > 0)
            tutti__dial_close(d); /* the search dials too, and would take it for its own */
        m->search.announce_ms = 0;
        return;
    }
    if (d->state == TUTTI__DIAL_NONE && tutti__now_ms() >= m->search.announce_ms) {
        m->search.announce_ms = tutti__now_ms() + ANNOUNCE_MS;
        tutti__dial_begin(d, &m->endpoint, &opts);
    }
    tutti__dial_advance(d);
    if (d->state == TUTTI__DIAL_OPEN) {
        tutti__connection_send(&d->connection,
                               tutti__message_pack_moved(&(tutti__message_moved){
                                   .address = r->list[0].address, .port = r->list[0].port}));
        tutti__dial_close(d);
    } else if (d->state >= TUTTI__DIAL_REFUSED) {
        tutti__dial_close(d);
    }
}

/* ---- Taking over ---------------------------------------------------------------------------------------- */

tutti_status tutti__search_advance(tutti__membership *m, bool *found_p)
{
    const char *address;
    int port;

    *found_p = false;
    while (tutti__search_is_on(m)) {
        if (m->dial.state == TUTTI__DIAL_NONE) {
            switch (tutti__succession_next(&m->search.succession, now_ms(), own_rounds(m), &address,
                                           &port)) {
            case TUTTI__SUCCESSION_WAIT:
                return TUTTI_OK;
            case TUTTI__SUCCESSION_TAKE_OVER:
                *found_p = true;
                return tutti__membership_succeed(m);
            case TUTTI__SUCCESSION_ASK:
                dial(m, address, port);
            }
        }
        tutti__dial_advance(&m->dial);
        if (m->dial.state == TUTTI__DIAL_OPEN)
            ask(m);
        else if (m->dial.state == TUTTI__DIAL_REFUSED)
            on_refused(m);
        else if (m->dial.state == TUTTI__DIAL_FAILED)
            on_no_answer(m);
        if (m->dial.state != TUTTI__DIAL_NONE && m->dial.state < TUTTI__DIAL_REFUSED)
            break; /* wait for events */
        if (m->connected && !m->coordinator) {
            *found_p = true;
            return TUTTI_OK;
        }
    }
    if (!tutti__search_is_on(m))
        tutti__search_hang_up(m);
    return TUTTI_OK;
}
