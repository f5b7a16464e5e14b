/* host_rendezvous.c -- hosts the rendezvous on this node, or listens so that it can succeed its host, and says so when it joins.
 * SPDX-License-Identifier: MIT */
#include "launch/agent/membership.h"
#include "launch/agent/rendezvous.h"
#include "launch/host/roster_message.h"
#include "launch/process/port_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUSY_PORT_MS = 3000 /* for a previous process to release the port */ };

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

void tutti__search_stand_down(tutti__membership *m)
{
    if (m->standby.on)
        tutti__message_server_free(&m->standby.server);
    m->standby.on = false;
}

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

tutti_status tutti__membership_host(tutti__membership *m, const char *store_host,
                                    const tutti__roster *roster)
{
    int ends[2], listener = m->standby.listener;
    tutti_status status = TUTTI_OK;
    tutti__coordinator_opts opts = {.job = m->job,
                                    .console = m->console,
                                    .secret = &m->secret,
                                    .roster = roster,
                                    .address = m->address,
                                    .last_generation = &m->last_generation,
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

tutti_status tutti__membership_try_to_host(tutti__membership *m)
{
    const tutti__nodes *nodes = nodes_of(m);
    tutti__address address = m->endpoint;
    char owner[160] = "", bind_to[128];
    int listener, error;

    if (!may_host(nodes))
        return TUTTI_OK;
    if (m->standby.listener >= 0 &&
        m->standby.port == nodes->port) { /* left from an earlier time as host */
        tutti__search_stand_down(m);
        close(m->standby.listener);
        m->standby.listener = -1;
    }
    error = listen_at(&address, &listener);
    if (error == EADDRNOTAVAIL && must_host(nodes)) { /* the address is a NAT's, or a service's */
        TUTTI_TRY(tutti__resolve_numeric(
            &address, m->endpoint.at.ss_family == AF_INET6 ? "::" : "0.0.0.0", nodes->port));
        error = listen_at(&address, &listener);
    }
    if (!error) {
        if (m->standby.listener >= 0)
            close(m->standby.listener);
        m->standby.listener = listener;
        m->standby.port = nodes->port;
        write_host(&address, bind_to, sizeof bind_to);
        return tutti__membership_host(m, bind_to, NULL);
    }
    if (!must_host(nodes) && (error == EADDRINUSE || error == EADDRNOTAVAIL))
        return TUTTI_OK;
    if (error == EADDRINUSE && tutti__now_ms() < m->retry.since_ms + BUSY_PORT_MS)
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

    if (m->standby.listener >= 0 || nodes_of(m)->max <= 1)
        return;
    /* the second where it is a name, or another host's: behind a NAT */
    if ((tutti__resolve_numeric(&address, m->address, 0) != TUTTI_OK ||
         listen_at(&address, &m->standby.listener) != 0) &&
        (tutti__resolve_numeric(&address, strchr(m->address, ':') ? "::" : "0.0.0.0", 0) !=
             TUTTI_OK ||
         listen_at(&address, &m->standby.listener) != 0))
        return; /* then it cannot succeed a coordinator */
    address.length = sizeof address.at;
    if (getsockname(m->standby.listener, (struct sockaddr *)&address.at, &address.length) == 0)
        m->standby.port = tutti__address_port(&address);
}

tutti_status tutti__membership_succeed(tutti__membership *m)
{
    const tutti__roster *roster = &m->search.succession.roster;
    const bool hosted = m->job->store != NULL; /* before, so that there is a store */
    tutti__address address;
    tutti_status status = hosted ? TUTTI_OK : tutti__resolve_numeric(&address, m->address, 0);

    if (status == TUTTI_OK) /* else it is a name, which may be another address's */
        status = tutti__membership_host(m, m->address, roster);
    if (status != TUTTI_OK && !m->job->store)
        status = tutti__membership_host(m, strchr(m->address, ':') ? "::" : "0.0.0.0", roster);
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__membership_join(m, &m->connection));
    m->joined = true;
    return TUTTI_OK;
}

void tutti__membership_note_address(tutti__membership *m, int fd)
{
    tutti__address address = {.length = sizeof address.at};

    if (nodes_of(m)->local_addr)
        snprintf(m->address, sizeof m->address, "%s", nodes_of(m)->local_addr);
    else if (getsockname(fd, (struct sockaddr *)&address.at, &address.length) == 0)
        write_host(&address, m->address, sizeof m->address);
}

tutti_status tutti__membership_join(tutti__membership *m, tutti__connection *connection)
{
    const tutti__job *job = m->job;
    const tutti__nodes *nodes = nodes_of(m);
    const bool listed = m->running && m->search.succession.roster.n > 0;
    char listens_at[128]; /* numeric, so that no name server is needed when a host was lost */
    json_t *message;
    int port;

    if (m->standby.listener >= 0 && m->standby.port == nodes->port && !nodes->local_addr &&
        !tutti__address_is_loopback(&m->endpoint))
        write_host(&m->endpoint, listens_at, sizeof listens_at);
    else
        snprintf(listens_at, sizeof listens_at, "%s", m->address);
    TUTTI_TRY(tutti__job_choose_port(job, &port));
    membership_listen(m);
    message = tutti__message_pack_join(&(tutti__message_join){
        .protocol = TUTTI__RENDEZVOUS_PROTOCOL,
        .version = TUTTI_VERSION,
        .host = job->host,
        .pid = getpid(),
        .workers = job->opts.n,
        .node_rank = nodes->has_node_rank || nodes->max <= 1 ? nodes->node_rank : -1,
        .min = nodes->min,
        .max = nodes->max,
        .native = nodes->native,
        .max_restarts = job->opts.max_restarts,
        .clock = (int64_t)tutti__wall_seconds(),
        .address = m->address,
        .port = port,
        .rounds = m->rounds,
        .restarts = m->restarts,
        .nodes = m->rounds > 0 ? job->round.n_nodes : 0,
        .running = m->running,
        .group_rank = job->round.group_rank,
        .first_rank = job->round.first_rank,
        .listens = m->standby.port,
        .me = m->search.succession.id,
        .listens_at = listens_at,
        .role = job->opts.role,
        .id = job->id,
        .roster = listed ? tutti__roster_write(&m->search.succession.roster) : NULL});
    tutti__connection_send(connection, message);
    return TUTTI_OK;
}
