/* membership.c -- finds the rendezvous, or hosts it.   SPDX-License-Identifier: MIT
 *
 * A node that can bind to the endpoint's address hosts the rendezvous; all others connect to it. Nodes that lose it search for
 * it in the same way, so that a restarted host, or another process on its machine, takes over. */
#include "launch/agent/membership.h"
#include "launch/agent/rendezvous.h"
#include "launch/host/roster_message.h"
#include "launch/process/port_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECT_MS = 2000,
    GREET_MS = 5000,
    RETRY_MS = 100,
    SLOW_RETRY_MS = 1000, /* between tries, after a while */
    FIRST_LINE_MS = 3000,
    LATER_LINE_MS = 30000
};

static const tutti__nodes *nodes_of(const tutti__membership *m)
{
    return &m->job->opts.nodes;
}

/* ---- Connecting -------------------------------------------------------------------------------------- */

/* Continues to connect. TIMEOUT: worth another one. */
static tutti_status advance_dial(tutti__membership *m)
{
    tutti__dial *d = &m->dial;
    tutti_status status;

    tutti__dial_advance(d);
    if (d->state < TUTTI__DIAL_OPEN)
        return TUTTI_OK;
    if (d->state == TUTTI__DIAL_OPEN) {
        m->connection = tutti__dial_take(d);
        tutti__membership_note_address(m, m->connection.fd);
        m->connected = true;
        return TUTTI_OK;
    }
    status = d->status;
    tutti__dial_close(d);
    m->moved_to[0] = '\0'; /* back to the first endpoint */
    return status;
}

/* To where the job has moved, else to the endpoint. */
static tutti_status connect_to_host(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);
    const tutti__connector_opts opts = {.secret = &m->secret,
                                        .who = m->dialled,
                                        .deadline = tutti__now_ms() + CONNECT_MS + GREET_MS,
                                        .connect_ms = CONNECT_MS,
                                        .authenticate_ms = GREET_MS};

    snprintf(m->dialled, sizeof m->dialled, "the rendezvous at %.255s:%d", nodes->host,
             nodes->port);
    if (*m->moved_to)
        tutti__dial_begin_host(&m->dial, m->moved_to, m->moved_port, &opts);
    else
        tutti__dial_begin(&m->dial, &m->endpoint, &opts);
    return advance_dial(m);
}

/* ---- Searching for it ---------------------------------------------------------------------------------- */

/* TIMEOUT: not yet, or there is none as yet. */
static tutti_status find_endpoint(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);
    tutti_status status;

    if (m->endpoint.length > 0 ||
        (!m->lookup && tutti__resolve_numeric(&m->endpoint, nodes->host, nodes->port) == TUTTI_OK))
        return TUTTI_OK;
    if (!m->lookup)
        m->lookup = tutti__lookup_begin(nodes->host, nodes->port);
    status = m->lookup ? tutti__lookup_end(&m->lookup, &m->endpoint) : TUTTI_ERR_TIMEOUT;
    if (status == TUTTI_OK)
        return TUTTI_OK;
    m->endpoint.length = 0;
    /* while it is looked for again, why it was not found before */
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s",
                       m->lookup && *m->retry.trouble ? m->retry.trouble : tutti_last_error());
}

/* One try, which may have to be advanced. TIMEOUT: worth another one. */
static tutti_status try_once(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);

    if (nodes->max <= 1)
        return tutti__membership_host(m, "127.0.0.1", NULL);
    if (*m->moved_to)
        return connect_to_host(m);
    TUTTI_TRY(find_endpoint(m));
    TUTTI_TRY(tutti__membership_try_to_host(m));
    return m->connected ? TUTTI_OK : connect_to_host(m);
}

/* A job of one node has a rendezvous of its own. */
static void write_place(const tutti__nodes *nodes, char *text, size_t bytes)
{
    if (nodes->host)
        snprintf(text, bytes, "at %.255s:%d", nodes->host, nodes->port);
    else
        snprintf(text, bytes, "on this host");
}

static tutti_status give_up(tutti__membership *m, double waited_s)
{
    const tutti__nodes *nodes = nodes_of(m);
    char place[300];

    write_place(nodes, place, sizeof place);
    return tutti__fail(
        TUTTI_ERR_TIMEOUT,
        "gave up after %.0f s of trying to reach the rendezvous %s: %s; is `tutti run` "
        "of node 0 running there, is the address right, does a firewall let the "
        "port through? (--master-addr, --rdzv-endpoint, --rdzv-conf "
        "join_timeout=%g)",
        waited_s, place, m->retry.trouble, tutti__or(nodes->join_timeout_s, 600));
}

/* Waits for the next try; at the time limit returns why tries failed. */
static tutti_status wait_on(tutti__membership *m)
{
    double now = tutti__now_ms(), waited_ms = now - m->retry.since_ms;
    char place[300];

    snprintf(m->retry.trouble, sizeof m->retry.trouble, "%s", tutti_last_error());
    if (waited_ms >= tutti__or(nodes_of(m)->join_timeout_s, 600) * 1e3)
        return give_up(m, waited_ms * 1e-3);
    m->retry.at_ms = now + (m->lookup                   ? TUTTI__LOOKUP_MS
                            : waited_ms < SLOW_RETRY_MS ? RETRY_MS
                                                        : SLOW_RETRY_MS);
    if (waited_ms >= FIRST_LINE_MS && now >= m->retry.next_line_ms) {
        write_place(nodes_of(m), place, sizeof place);
        tutti__console_say(
            m->console, "waiting for the rendezvous %s (%.0f s so far, at most %g): %s", place,
            waited_ms * 1e-3, tutti__or(nodes_of(m)->join_timeout_s, 600), m->retry.trouble);
        m->retry.next_line_ms = now + LATER_LINE_MS;
    }
    return TUTTI_OK;
}

tutti_status tutti__membership_try(tutti__membership *m)
{
    tutti_status status;

    if (m->connected || (m->dial.state == TUTTI__DIAL_NONE && tutti__now_ms() < m->retry.at_ms))
        return TUTTI_OK;
    if (m->retry.since_ms == 0)
        m->retry.since_ms = tutti__now_ms();
    status = m->dial.state == TUTTI__DIAL_NONE ? try_once(m) : advance_dial(m);
    if (status == TUTTI_ERR_TIMEOUT)
        return wait_on(m);
    TUTTI_TRY(status);
    if (!m->connected)
        return TUTTI_OK;
    m->retry.since_ms = 0;
    TUTTI_TRY(tutti__membership_join(m, &m->connection));
    m->joined = true;
    return TUTTI_OK;
}

static double ping_ms(const tutti__membership *m)
{
    return tutti__or(nodes_of(m)->keep_alive_s, 5) * 1e3;
}

static double silence_deadline(const tutti__membership *m)
{
    int misses = nodes_of(m)->keep_alive_misses > 0 ? nodes_of(m)->keep_alive_misses : 3;

    return m->connection.heard_ms + ping_ms(m) * misses + 1;
}

/* Of a connection to another node's coordinator; it turns between pings, too, to notice that it was suspended. */
static double next_turn(const tutti__membership *m)
{
    double silence = silence_deadline(m), turn = m->turn_ms + ping_ms(m);

    return turn < silence ? turn : silence;
}

double tutti__membership_deadline(const tutti__membership *m)
{
    double next = m->coordinator ? tutti__coordinator_deadline(m->coordinator)
                  : m->connected ? next_turn(m)
                                 : 1e300;

    if (m->dial.state != TUTTI__DIAL_NONE)
        return tutti__dial_deadline(&m->dial) < next ? tutti__dial_deadline(&m->dial) : next;
    if (m->coordinator && m->search.announce_ms > 0)
        next = m->search.announce_ms < next ? m->search.announce_ms : next;
    if (m->search.on)
        next = (double)m->search.succession.next_ms < next ? (double)m->search.succession.next_ms
                                                           : next;
    else if (!m->connected)
        next = m->retry.at_ms < next ? m->retry.at_ms : next;
    return next;
}

/* ---- Messages ---------------------------------------------------------------------------------------- */

int tutti__membership_fd(const tutti__membership *m, short *events_p)
{
    *events_p = (short)(POLLIN | (m->connection.n_out > 0 ? POLLOUT : 0));
    return m->connected ? m->connection.fd : -1;
}

int tutti__membership_coordinator_fd(const tutti__membership *m)
{
    if (m->standby.on)
        return m->standby.server.epoll;
    return m->coordinator ? tutti__coordinator_fd(m->coordinator) : -1;
}

/* The coordinator is silent: tells it that this node leaves, for when it is connected again. Until then the socket is only half
 * closed, because what arrives at a closed one is answered by a reset, which comes first and means that this node is dead. */
static void leave_silent(tutti__membership *m)
{
    tutti__connection_send(&m->connection, tutti__message_pack(TUTTI__MESSAGE_APART));
    shutdown(m->connection.fd, SHUT_WR);
    if (m->silent_fd >= 0)
        close(m->silent_fd);
    m->silent_fd = m->connection.fd;
    m->connection.fd = -1;
    m->connection.fault = "it has not been heard from for too long";
}

void tutti__membership_serve(tutti__membership *m)
{
    const bool was_suspended = tutti__was_suspended(&m->turn_ms, ping_ms(m));

    if (m->coordinator)
        tutti__coordinator_serve(m->coordinator);
    while (m->standby.on && tutti__message_server_serve(&m->standby.server))
        ;
    if (m->coordinator)
        tutti__search_announce(m);
    if (!m->connected)
        return;
    tutti__connection_flush(&m->connection);
    tutti__connection_read(&m->connection);
    if (was_suspended)
        m->connection.heard_ms = tutti__now_ms();
    if (!m->coordinator && !m->connection.fault && tutti__now_ms() >= silence_deadline(m))
        leave_silent(m);
}

/* The job continues under another coordinator, and this one has not begun. */
static void follow(tutti__membership *m, const json_t *message)
{
    const tutti__message_redirect r = tutti__message_read_redirect(message);

    if (m->rounds > 0)
        return;
    snprintf(m->moved_to, sizeof m->moved_to, "%s", r.address);
    m->moved_port = r.port;
    if (*m->moved_to)
        tutti__console_say(m->console, "the job continues elsewhere: joining it at %s:%d",
                           m->moved_to, r.port);
    tutti__connection_close(&m->connection);
    tutti__coordinator_free(m->coordinator);
    m->coordinator = NULL;
    /* The other coordinator admits workers of the running job; this store was for a new one. */
    tutti_store_free(m->job->store);
    m->job->store = NULL;
    m->connected = m->joined = false;
    m->retry.at_ms = *m->moved_to ? 0 : tutti__now_ms() + RETRY_MS;
}

json_t *tutti__membership_take(tutti__membership *m)
{
    json_t *message = m->search.first_message;

    m->search.first_message = NULL;
    while (message ||
           (m->connected && (message = tutti__connection_take(&m->connection)) != NULL)) {
        switch (tutti__message_type_of(message)) {
        case TUTTI__MESSAGE_PING:
            tutti__connection_send(&m->connection, json_incref(message)); /* the answer */
            break;
        case TUTTI__MESSAGE_NODES:
            tutti__search_note(m, message);
            break;
        case TUTTI__MESSAGE_REDIRECT:
            follow(m, message);
            break;
        default:
            return message;
        }
        json_decref(message);
        message = NULL;
    }
    if (m->connected && m->connection.fault) {
        snprintf(m->retry.trouble, sizeof m->retry.trouble, "%s", m->connection.fault);
        tutti__search_hang_up(m);
        m->search.succession.may_coordinate = m->standby.listener >= 0;
        tutti__succession_begin(&m->search.succession, m->connection.ended);
        tutti__connection_close(&m->connection);
        m->connected = m->joined = false;
        m->retry.at_ms = 0;
    }
    return NULL;
}

void tutti__membership_send(tutti__membership *m, json_t *message)
{
    if (m->connected)
        tutti__connection_send(&m->connection, message);
    else
        json_decref(message);
}

bool tutti__membership_done(const tutti__membership *m)
{
    return !m->coordinator || tutti__coordinator_done(m->coordinator);
}

/* ---- Beginning and end ------------------------------------------------------------------------------- */

/* Several nodes: derives the workers' secret from that of the agents, so that it is not sent. */
static tutti_status share_secret(tutti__membership *m)
{
    static const char purpose[] = "tutti run: workers of ";
    crypto_auth_hmacsha256_state state;
    unsigned char key[crypto_auth_hmacsha256_BYTES];

    TUTTI_TRY(tutti__secret_read(&m->secret));
    m->secret.rank = m->secret.attempt = 0;
    m->secret.job = m->job->opts.id ? tutti__hash64(m->job->opts.id, strlen(m->job->opts.id)) : 0;
    m->job->secret[0] = '\0';
    if (!m->secret.set) {
        tutti__console_say(
            m->console,
            "warning: the nodes have no secret (TUTTI_SECRET_FILE): whoever reaches the rendezvous "
            "can join this job");
        return TUTTI_OK;
    }
    crypto_auth_hmacsha256_init(&state, m->secret.key, sizeof m->secret.key);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)purpose, sizeof purpose);
    crypto_auth_hmacsha256_final(&state, key);
    sodium_bin2hex(m->job->secret, sizeof m->job->secret, key, sizeof key);
    sodium_memzero(key, sizeof key);
    return TUTTI_OK;
}

tutti_status tutti__membership_open(tutti__membership *m, tutti__job *job, tutti__console *console)
{
    *m = (tutti__membership){.job = job,
                             .console = console,
                             .connection = {.fd = -1},
                             .silent_fd = -1,
                             .dial = {.connection = {.fd = -1}},
                             .standby = {.listener = -1}};
    return job->opts.nodes.max > 1 ? share_secret(m) : tutti__job_make_secret(job);
}

void tutti__membership_close(tutti__membership *m)
{
    if (m->standby.listener >= 0) /* before the others notice the end, and ask here */
        close(m->standby.listener);
    m->standby.listener = -1;
    tutti__search_stand_down(m);
    json_decref(m->search.first_message);
    m->search.first_message = NULL;
    tutti__dial_close(&m->dial);
    tutti__lookup_abandon(m->lookup);
    tutti__connection_close(&m->connection);
    if (m->silent_fd >= 0)
        close(m->silent_fd);
    m->silent_fd = -1;
    tutti__coordinator_free(m->coordinator);
    m->coordinator = NULL;
    m->connected = false;
    sodium_memzero(&m->secret, sizeof m->secret);
}
