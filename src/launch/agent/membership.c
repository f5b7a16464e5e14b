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
    SLOW_RETRY_MS = 1000, /* between attempts, after a while */
    BUSY_PORT_MS = 3000,  /* for a previous process to release the port */
    FIRST_WORD_MS = 3000,
    LATER_WORD_MS = 30000
};

static const tutti__nodes *nodes_of(const tutti__membership *m)
{
    return &m->job->opts.nodes;
}

/* Without the port: "10.0.0.1", "fd00::1". */
static void write_host(const tutti__address *address, char *text, size_t bytes)
{
    char all[128], *begin = all, *colon;

    tutti__address_text(address, all, sizeof all);
    colon = strrchr(all, ':');
    if (colon)
        *colon = '\0';
    if (*begin == '[') {
        begin++;
        begin[strcspn(begin, "]")] = '\0';
    }
    snprintf(text, bytes, "%s", begin);
}

/* ---- Hosting ----------------------------------------------------------------------------------------- */

/* 0 or an errno; not tutti__listen, whose message is about a rank's MASTER_PORT. */
static int listen_at(tutti__address *address, int *fd_p)
{
    int error = 0,
        fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    *fd_p = -1;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address->at, address->length) != 0 || listen(fd, 1024) != 0)
        error = errno;
    if (error)
        close(fd);
    else
        *fd_p = fd;
    return error;
}

/* Starts the coordinator, to which this agent connects by a pair of sockets. */
static tutti_status host(tutti__membership *m, const char *store_host, const tutti__roster *roster)
{
    int ends[2], listener = m->listener;
    tutti_status status = TUTTI_OK;
    tutti__coordinator_opts opts = {.job = m->job,
                                    .console = m->console,
                                    .secret = &m->secret,
                                    .roster = roster,
                                    .address = m->address,
                                    .round_over = m->round_over,
                                    .context = m->context};

    tutti__search_stand_down(m);
    if (!roster)
        snprintf(m->address, sizeof m->address, "%s",
                 nodes_of(m)->local_addr ? nodes_of(m)->local_addr
                 : listener >= 0         ? nodes_of(m)->host
                                         : m->job->opts.master_addr);
    if (!m->job->store)
        status = tutti__job_host_store(m->job, store_host, m->address);
    if (status == TUTTI_OK &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        status = tutti__fail_errno(errno, "no sockets for the rendezvous (see ulimit -n)");
    TUTTI_TRY(status);
    opts.listener = listener >= 0 ? fcntl(listener, F_DUPFD_CLOEXEC, 3) : -1;
    opts.local = ends[0];
    tutti__connection_open(&m->connection, ends[1]);
    m->connected = true;
    return tutti__coordinator_new(&m->coordinator, &opts);
}

static bool must_host(const tutti__nodes *nodes)
{
    return nodes->hosts > 0 || (nodes->hosts == 0 && !nodes->native && nodes->node_rank == 0);
}

static bool may_host(const tutti__nodes *nodes)
{
    return must_host(nodes) || (nodes->hosts == 0 && nodes->native);
}

/* OK with m->connected false: another node hosts. */
static tutti_status try_to_host(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);
    tutti__address address = m->endpoint;
    char owner[160] = "", bind_to[128];
    int listener, error;

    if (m->listener >= 0 && m->listens == nodes->port) { /* left from an earlier time as host */
        tutti__search_stand_down(m);
        close(m->listener);
        m->listener = -1;
    }
    error = listen_at(&address, &listener);
    if (error == EADDRNOTAVAIL && must_host(nodes)) { /* the address is a NAT's, or a service's */
        TUTTI_TRY(tutti__resolve_numeric(
            &address, m->endpoint.at.ss_family == AF_INET6 ? "::" : "0.0.0.0", nodes->port));
        error = listen_at(&address, &listener);
    }
    if (!error) {
        if (m->listener >= 0)
            close(m->listener);
        m->listener = listener;
        m->listens = nodes->port;
        write_host(&address, bind_to, sizeof bind_to);
        return host(m, bind_to, NULL);
    }
    if (!must_host(nodes) && (error == EADDRINUSE || error == EADDRNOTAVAIL))
        return TUTTI_OK;
    if (error == EADDRINUSE && tutti__now_ms() < m->since_ms + BUSY_PORT_MS)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "port %d is taken", nodes->port);
    if (error == EADDRINUSE) {
        tutti__port_owner(nodes->port, owner, sizeof owner);
        return tutti__fail(TUTTI_ERR_IO,
                           "cannot host the rendezvous at %s:%d: the port is in use%s%s; choose "
                           "another (--master-port, --rdzv-endpoint) on all nodes, or end that "
                           "process",
                           nodes->host, nodes->port, *owner ? " by " : "", owner);
    }
    return tutti__fail_errno(error, "cannot host the rendezvous at %s:%d", nodes->host,
                             nodes->port);
}

static void membership_listen(tutti__membership *m)
{
    tutti__address address;

    if (m->listener >= 0 || nodes_of(m)->max <= 1)
        return;
    /* the second where it is a name, or another host's: behind a NAT */
    if ((tutti__resolve_numeric(&address, m->address, 0) != TUTTI_OK ||
         listen_at(&address, &m->listener) != 0) &&
        (tutti__resolve_numeric(&address, strchr(m->address, ':') ? "::" : "0.0.0.0", 0) !=
             TUTTI_OK ||
         listen_at(&address, &m->listener) != 0))
        return; /* then it cannot succeed a coordinator */
    address.length = sizeof address.at;
    if (getsockname(m->listener, (struct sockaddr *)&address.at, &address.length) == 0)
        m->listens = tutti__address_port(&address);
}

tutti_status tutti__membership_succeed(tutti__membership *m)
{
    tutti__address address;
    tutti_status status = tutti__resolve_numeric(&address, m->address, 0);

    if (status == TUTTI_OK) /* else it is a name, which may be another address's */
        status = host(m, m->address, &m->succession.roster);
    if (status != TUTTI_OK && !m->job->store)
        status = host(m, strchr(m->address, ':') ? "::" : "0.0.0.0", &m->succession.roster);
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__membership_join(m, &m->connection));
    m->joined = true;
    return TUTTI_OK;
}

/* ---- Connecting -------------------------------------------------------------------------------------- */

static void note_address(tutti__membership *m, int fd)
{
    tutti__address address = {.length = sizeof address.at};

    if (nodes_of(m)->local_addr)
        snprintf(m->address, sizeof m->address, "%s", nodes_of(m)->local_addr);
    else if (getsockname(fd, (struct sockaddr *)&address.at, &address.length) == 0)
        write_host(&address, m->address, sizeof m->address);
}

/* Continues the attempt to connect. TIMEOUT: worth another one. */
static tutti_status advance_dial(tutti__membership *m)
{
    tutti__dial *d = &m->dial;
    tutti_status status;

    tutti__dial_advance(d);
    if (d->state < TUTTI__DIAL_OPEN)
        return TUTTI_OK;
    if (d->state == TUTTI__DIAL_OPEN) {
        m->connection = tutti__dial_take(d);
        note_address(m, m->connection.fd);
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

tutti_status tutti__membership_join(tutti__membership *m, tutti__connection *connection)
{
    const tutti__job *job = m->job;
    const tutti__nodes *nodes = nodes_of(m);
    char listens_at[128]; /* numeric, so that no name server is needed when a host was lost */
    json_t *message;
    int port;

    if (m->listener >= 0 && m->listens == nodes->port && !nodes->local_addr &&
        !tutti__address_is_loopback(&m->endpoint))
        write_host(&m->endpoint, listens_at, sizeof listens_at);
    else
        snprintf(listens_at, sizeof listens_at, "%s", m->address);
    TUTTI_TRY(tutti__job_choose_port(job, &port));
    membership_listen(m);
    message = json_pack(
        "{s:s, s:i, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:I, s:o, s:i, s:i, s:i, s:i, "
        "s:b, s:i, s:i, s:i, s:i, s:o}",
        "type", "join", "protocol", TUTTI__RENDEZVOUS_PROTOCOL, "version", TUTTI_VERSION, "host",
        tutti__message_string(job->host), "pid", (int)getpid(), "workers", job->opts.n, "node_rank",
        nodes->has_node_rank || nodes->max <= 1 ? nodes->node_rank : -1, "min", nodes->min, "max",
        nodes->max, "native", nodes->native, "max_restarts", job->opts.max_restarts, "clock",
        (json_int_t)time(NULL), "address", tutti__message_string(m->address), "port", port,
        "rounds", m->rounds, "restarts", m->restarts, "nodes",
        m->rounds > 0 ? job->round.n_nodes : 0, "running", m->running, "group_rank",
        job->round.group_rank, "first_rank", job->round.first_rank, "listens", m->listens, "me",
        m->succession.id, "listens_at", tutti__message_string(listens_at));
    json_object_set_new(message, "id", tutti__message_string(job->id));
    if (m->running && m->succession.roster.n > 0)
        json_object_set_new(message, "roster", tutti__roster_write(&m->succession.roster));
    tutti__connection_send(connection, message);
    return TUTTI_OK;
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
                       m->lookup && *m->trouble ? m->trouble : tutti_last_error());
}

/* One attempt, which may have to be advanced. TIMEOUT: worth another one. */
static tutti_status attempt(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);

    if (nodes->max <= 1)
        return host(m, "127.0.0.1", NULL);
    if (*m->moved_to)
        return connect_to_host(m);
    TUTTI_TRY(find_endpoint(m));
    if (may_host(nodes))
        TUTTI_TRY(try_to_host(m));
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
        waited_s, place, m->trouble, tutti__or(nodes->join_timeout_s, 600));
}

/* Waits for the next attempt; at the time limit returns why attempts failed. */
static tutti_status wait_on(tutti__membership *m)
{
    double now = tutti__now_ms(), waited_ms = now - m->since_ms;
    char place[300];

    snprintf(m->trouble, sizeof m->trouble, "%s", tutti_last_error());
    if (waited_ms >= tutti__or(nodes_of(m)->join_timeout_s, 600) * 1e3)
        return give_up(m, waited_ms * 1e-3);
    m->next_try_ms = now + (m->lookup                   ? TUTTI__LOOKUP_MS
                            : waited_ms < SLOW_RETRY_MS ? RETRY_MS
                                                        : SLOW_RETRY_MS);
    if (waited_ms >= FIRST_WORD_MS && now >= m->next_word_ms) {
        write_place(nodes_of(m), place, sizeof place);
        tutti__console_say(
            m->console, "waiting for the rendezvous %s (%.0f s so far, at most %g): %s", place,
            waited_ms * 1e-3, tutti__or(nodes_of(m)->join_timeout_s, 600), m->trouble);
        m->next_word_ms = now + LATER_WORD_MS;
    }
    return TUTTI_OK;
}

tutti_status tutti__membership_try(tutti__membership *m)
{
    tutti_status status;

    if (m->connected || (m->dial.state == TUTTI__DIAL_NONE && tutti__now_ms() < m->next_try_ms))
        return TUTTI_OK;
    if (m->since_ms == 0)
        m->since_ms = tutti__now_ms();
    status = m->dial.state == TUTTI__DIAL_NONE ? attempt(m) : advance_dial(m);
    if (status == TUTTI_ERR_TIMEOUT)
        return wait_on(m);
    TUTTI_TRY(status);
    if (!m->connected)
        return TUTTI_OK;
    m->since_ms = 0;
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
    if (m->coordinator && m->announce_ms > 0)
        next = m->announce_ms < next ? m->announce_ms : next;
    if (m->searches)
        next = (double)m->succession.next_ms < next ? (double)m->succession.next_ms : next;
    else if (!m->connected)
        next = m->next_try_ms < next ? m->next_try_ms : next;
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
    if (m->stands_by)
        return m->standby.epoll;
    return m->coordinator ? tutti__coordinator_fd(m->coordinator) : -1;
}

void tutti__membership_serve(tutti__membership *m)
{
    const bool was_suspended = tutti__was_suspended(&m->turn_ms, ping_ms(m));

    if (m->coordinator)
        tutti__coordinator_serve(m->coordinator);
    while (m->stands_by && tutti__message_server_serve(&m->standby))
        ;
    if (m->coordinator)
        tutti__search_announce(m);
    if (!m->connected)
        return;
    tutti__connection_flush(&m->connection);
    tutti__connection_read(&m->connection);
    if (was_suspended)
        m->connection.heard_ms = tutti__now_ms();
    if (!m->coordinator && tutti__now_ms() >= silence_deadline(m)) {
        tutti__connection_send(&m->connection, json_pack("{s:s}", "type", "apart"));
        m->connection.fault = "it has not been heard from for too long";
    }
}

/* The job continues under another coordinator, and this one has not begun. */
static void follow(tutti__membership *m, const json_t *message)
{
    const char *host = tutti__message_text(message, "address");
    int port = (int)tutti__message_number(message, "port", 0);

    if (m->rounds > 0)
        return;
    snprintf(m->moved_to, sizeof m->moved_to, "%s", host);
    m->moved_port = port;
    if (*host)
        tutti__console_say(m->console, "the job continues elsewhere: joining it at %s:%d", host,
                           port);
    tutti__connection_close(&m->connection);
    tutti__coordinator_free(m->coordinator);
    m->coordinator = NULL;
    /* The other coordinator admits workers of the running job; this store was for a new one. */
    tutti_store_free(m->job->store);
    m->job->store = NULL;
    m->connected = m->joined = false;
    m->next_try_ms = *host ? 0 : tutti__now_ms() + RETRY_MS;
}

json_t *tutti__membership_take(tutti__membership *m)
{
    json_t *message = m->first_message;

    m->first_message = NULL;
    while (message ||
           (m->connected && (message = tutti__connection_take(&m->connection)) != NULL)) {
        if (tutti__message_is(message, "ping")) {
            tutti__connection_send(&m->connection, message); /* answers a ping */
        } else if (tutti__message_is(message, "nodes")) {
            tutti__search_note(m, message);
            json_decref(message);
        } else if (tutti__message_is(message, "redirect")) {
            follow(m, message);
            json_decref(message);
        } else {
            return message;
        }
        message = NULL;
    }
    if (m->connected && m->connection.fault) {
        snprintf(m->trouble, sizeof m->trouble, "%s", m->connection.fault);
        tutti__dial_close(&m->dial);
        m->succession.may_coordinate = m->listener >= 0;
        tutti__succession_begin(&m->succession, m->connection.ended);
        tutti__connection_close(&m->connection);
        m->connected = m->joined = false;
        m->next_try_ms = 0;
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
                             .dial = {.connection = {.fd = -1}},
                             .listener = -1};
    return job->opts.nodes.max > 1 ? share_secret(m) : tutti__job_make_secret(job);
}

void tutti__membership_close(tutti__membership *m)
{
    if (m->listener >= 0) /* before the others notice the end, and ask here */
        close(m->listener);
    m->listener = -1;
    tutti__search_stand_down(m);
    json_decref(m->first_message);
    m->first_message = NULL;
    tutti__dial_close(&m->dial);
    tutti__lookup_abandon(m->lookup);
    tutti__connection_close(&m->connection);
    tutti__coordinator_free(m->coordinator);
    m->coordinator = NULL;
    m->connected = false;
    sodium_memzero(&m->secret, sizeof m->secret);
}
