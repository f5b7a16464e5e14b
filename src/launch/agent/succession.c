/* succession.c -- chooses the next coordinator of an elastic round.   SPDX-License-Identifier: MIT
 *
 * Nodes ask in the order of the list, starting with the lost coordinator. A node that is asked and coordinates accepts the
 * asking node; any other answers with a coordinator that it knows, or that it knows none. A node without living predecessors in
 * the list becomes the coordinator, which then waits for enough others, and meanwhile asks these whether one of them
 * coordinates already. */
#include "launch/agent/membership.h"
#include "launch/host/roster_message.h"

#include <fcntl.h>
#include <unistd.h>

enum {
    DIAL_MS = 1000, /* for one node to connect and answer */
    ANNOUNCE_MS = 500,
    PASS_MS = 100, /* between two rounds of questions to all */
    AGAIN_MS = 10, /* before asking again one that disconnected: it is just starting or ending */
    HANG_UPS = 10
};

#define SAY(m, format, ...) tutti__console_say((m)->console, format, __VA_ARGS__)

/* ---- Answering while not coordinating ------------------------------------------------------------ */

static void on_question(void *context, tutti__client *client, const json_t *message)
{
    tutti__membership *m = context;
    bool knows = m->connected && m->roster.n > 0 && !m->coordinator;

    if (!tutti__message_is(message, "join"))
        return;
    tutti__message_server_send(
        &m->standby, client,
        json_pack("{s:s, s:I, s:o, s:i}", "type", "elsewhere", "term",
                  (json_int_t)(knows ? m->roster.term : 0), "address",
                  tutti__message_string(knows ? m->roster.list[0].address : ""), "port",
                  knows ? m->roster.list[0].port : 0));
}

static void on_hang_up(void *context, tutti__client *client, const char *why)
{
    (void)context;
    (void)client;
    (void)why;
}

static void stand_by(tutti__membership *m)
{
    if (m->stands_by || m->coordinator || m->listener < 0)
        return;
    m->stands_by = true;
    if (tutti__message_server_open(
            &m->standby,
            &(tutti__message_server_opts){
                .client_bytes = sizeof(tutti__client),
                .listener = fcntl(m->listener, F_DUPFD_CLOEXEC, 3),
                .secret = &m->secret,
                .claim = {.kind = 'L', .job = m->secret.job, .process = m->secret.process},
                .ping_ms = DIAL_MS,
                .misses = 3,
                .on_message = on_question,
                .on_lost = on_hang_up,
                .context = m},
            -1) == TUTTI_OK)
        return;
    tutti__message_server_free(&m->standby);
    m->stands_by = false;
}

void tutti__succession_stand_down(tutti__membership *m)
{
    if (m->stands_by)
        tutti__message_server_free(&m->standby);
    m->stands_by = false;
}

void tutti__succession_note(tutti__membership *m, const json_t *message)
{
    tutti__roster roster;

    if (!tutti__roster_read(&roster, message) || !tutti__roster_is_newer(&roster, &m->roster))
        return;
    m->roster = roster;
    m->me = (int)tutti__message_number(message, "me", 0);
    snprintf(m->job->round.store, sizeof m->job->round.store, "%s",
             tutti__message_text(message, "store"));
    tutti__connection_send(&m->connection, json_pack("{s:s, s:I}", "type", "nodes", "version",
                                                     (json_int_t)roster.version));
    stand_by(m);
}

/* ---- Asking ------------------------------------------------------------------------------------------- */

void tutti__succession_begin(tutti__membership *m)
{
    tutti__dial_close(&m->dial);
    m->at = m->hang_ups = 0;
    m->lives = m->elsewhere = false;
    m->next_try_ms = 0;
}

bool tutti__succession_is_on(const tutti__membership *m)
{
    if (m->coordinator)
        return m->me > 0 && tutti__coordinator_is_paused(m->coordinator);
    return m->roster.n > 1 && m->me > 0 && !m->connected;
}

int tutti__succession_fd(const tutti__membership *m, short *events_p)
{
    return tutti__dial_fd(&m->dial, events_p);
}

/* The next node to ask, from `at` on; NULL: none. A coordinator asks all that are missing, others those before them. */
static const tutti__roster_node *next_target(tutti__membership *m)
{
    int me = tutti__roster_index(&m->roster, m->me);

    if (m->coordinator)
        return tutti__coordinator_missing(m->coordinator, &m->at);
    for (; m->at < m->roster.n && (m->listener < 0 || m->at < me); m->at++) {
        const tutti__roster_node *node = &m->roster.list[m->at];

        if (m->at != me && !node->dead && node->port > 0)
            return node;
    }
    return NULL;
}

static void ask_next(tutti__membership *m)
{
    tutti__dial_close(&m->dial);
    m->hang_ups = 0;
    m->elsewhere = false;
    m->at++;
}

/* An invalid address fails like one that does not answer. */
static void dial(tutti__membership *m, const char *host, int port)
{
    tutti__address address;

    if (tutti__resolve(&address, host, port) != TUTTI_OK)
        address.length = 0;
    tutti__dial_begin(&m->dial, &m->secret, &address, tutti__now_ms() + DIAL_MS);
}

static void on_refused(tutti__membership *m)
{
    tutti__roster_node *node = tutti__roster_find(&m->roster, m->asks);

    if (!m->elsewhere && node)
        node->dead = true;
    if (!m->elsewhere && m->coordinator)
        tutti__coordinator_is_dead(m->coordinator, m->asks);
    ask_next(m);
}

static void on_no_answer(tutti__membership *m)
{
    if (m->dial.hung_up && m->hang_ups++ < HANG_UPS) {
        tutti__dial_close(&m->dial);
        m->next_try_ms = tutti__now_ms() + AGAIN_MS;
        return;
    }
    m->uncertain |= m->at == 0;
    ask_next(m);
}

static void on_elsewhere(tutti__membership *m, const json_t *answer)
{
    int64_t term = tutti__message_number(answer, "term", 0);
    char address[128];
    int port = (int)tutti__message_number(answer, "port", 0);

    snprintf(address, sizeof address, "%s", tutti__message_text(answer, "address"));
    if (json_is_true(json_object_get(answer, "stranger")) && !m->elsewhere) {
        on_refused(m);
        return;
    }
    m->lives = true;
    if (term <= m->roster.term || m->elsewhere) {
        ask_next(m);
        return;
    }
    tutti__dial_close(&m->dial);
    dial(m, address, port);
    m->asked = false;
    m->elsewhere = true;
}

/* It has accepted this node: frees what this node hosted meanwhile. */
static void on_taken(tutti__membership *m, json_t *answer)
{
    if (m->coordinator) {
        tutti__connection_close(&m->connection);
        tutti__coordinator_free(m->coordinator);
        m->coordinator = NULL;
        SAY(m, "%s", "another node coordinates the job: this one rejoins it");
    }
    m->connection = tutti__dial_take(&m->dial);
    m->connected = m->joined = true;
    m->first_message = answer;
    m->uncertain = false;
    stand_by(m);
}

/* The dial is open: sends join, and waits for the answer. */
static void ask(tutti__membership *m)
{
    tutti__connection *connection = &m->dial.connection;
    json_t *answer;

    if (!m->asked && tutti__membership_join(m, connection) != TUTTI_OK) {
        on_no_answer(m);
        return;
    }
    m->asked = true;
    tutti__connection_flush(connection);
    tutti__connection_read(connection);
    while ((answer = tutti__connection_take(connection)) != NULL &&
           tutti__message_is(answer, "ping"))
        tutti__connection_send(connection, answer);
    if (answer && tutti__message_is(answer, "elsewhere")) {
        on_elsewhere(m, answer);
        json_decref(answer);
    } else if (answer) {
        on_taken(m, answer);
    } else if (connection->fault || tutti__now_ms() >= m->dial.deadline) {
        m->dial.hung_up = connection->fault != NULL;
        on_no_answer(m);
    }
}

/* ---- Nodes that come to the first endpoint ------------------------------------------------- */

void tutti__succession_announce(tutti__membership *m)
{
    const tutti__roster *r = tutti__coordinator_successor(m->coordinator);
    tutti__dial *d = &m->dial;

    if (!r || m->listens == m->job->opts.nodes.port) {
        m->announce_ms = 0;
        return;
    }
    if (d->state == TUTTI__DIAL_NONE && tutti__now_ms() >= m->announce_ms) {
        m->announce_ms = tutti__now_ms() + ANNOUNCE_MS;
        tutti__dial_begin(d, &m->secret, &m->endpoint, tutti__now_ms() + DIAL_MS);
    }
    tutti__dial_advance(d);
    if (d->state == TUTTI__DIAL_OPEN) {
        tutti__connection_send(&d->connection,
                               json_pack("{s:s, s:o, s:i}", "type", "moved", "address",
                                         tutti__message_string(r->list[0].address), "port",
                                         r->list[0].port));
        tutti__dial_close(d);
    } else if (d->state >= TUTTI__DIAL_REFUSED) {
        tutti__dial_close(d);
    }
}

/* ---- Taking over ---------------------------------------------------------------------------------------- */

/* Begins to ask the next node. *ours_p: this node is next, because no predecessor is alive. */
static void choose_target(tutti__membership *m, bool *ours_p)
{
    const tutti__roster_node *target = next_target(m);

    *ours_p = !target && !m->coordinator && !m->lives && m->listener >= 0;
    if (target) {
        m->asks = target->id;
        m->asked = false;
        dial(m, target->address, target->port);
        return;
    }
    m->at = 0;
    m->lives = false;
    m->next_try_ms = *ours_p ? 0 : tutti__now_ms() + PASS_MS;
}

tutti_status tutti__succession_advance(tutti__membership *m, bool *found_p)
{
    bool ours;

    *found_p = false;
    while (tutti__succession_is_on(m)) {
        if (m->dial.state == TUTTI__DIAL_NONE) {
            if (tutti__now_ms() < m->next_try_ms)
                return TUTTI_OK;
            choose_target(m, &ours);
            if (ours) {
                *found_p = true;
                return tutti__membership_succeed(m);
            }
            continue;
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
    if (!tutti__succession_is_on(m))
        tutti__dial_close(&m->dial);
    return TUTTI_OK;
}
