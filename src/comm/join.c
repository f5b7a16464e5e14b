/* setup.c -- ranks find each other and choose how to talk.   SPDX-License-Identifier: MIT
 *
 *     each rank        listens, then publishes a card: who, where, which host, how to reach it
 *     each rank        reads all cards, so that all choose the same transport
 *     each pair        connects (mesh.c) and proves to know the job's secret
 *     the transport    opens, and a first barrier shows that everybody is there
 *
 * Keys in the store carry how often this rank has joined under this name, so that a group made anew never reads the
 * cards of the one before. */
#include "comm/join.h"

#include "comm/backend/backend.h"
#include "comm/control/channel.h"
#include "comm/bootstrap/store/store.h"
#include "comm/engine/hierarchical.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { PROTOCOL = 3, LOOK_MS = 50, MAX_SOCKETS = 16, NOTE_MS = 300 };

typedef struct card {
    uint32_t protocol, bytes;
    char version[16], host[64];
    uint64_t host_id, nonce;
    int64_t pid;
    uint32_t tcp, sockets;            /* sockets: for data, a pair; rank 0's count for all */
    int32_t world_rank, heartbeat_ms; /* 0: off */
    tutti__address local_at, tcp_at;
    char no_sharing[80]; /* why this rank cannot share memory with others of its host; "": it can */
} card;

typedef struct listeners {
    int local, tcp; /* -1: none */
} listeners;

static void read_line(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, capacity - 1) : 0;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

void tutti__process_text(char *text, size_t capacity)
{
    char boot[64], stat[512];
    const char *after_name;
    unsigned long long start = 0;

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    read_line("/proc/self/stat", stat, sizeof stat);
    after_name = strrchr(stat, ')');
    /* Field 22, the time the process started, tells two processes with one number apart. */
    if (after_name)
        (void)!sscanf(
            after_name + 1,
            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
            &start);
    snprintf(text, capacity, "%s/%ld/%llu", boot, (long)getpid(), start);
}

/* Equal for processes that can reach each other's abstract sockets: same boot, network namespace and user. */
static uint64_t id_of_machine(void)
{
    char boot[64], text[256], net[64];
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    int length;

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (!*boot || n <= 0) {
        uint64_t id;

        randombytes_buf(&id, sizeof id); /* cannot tell: nobody's */
        return id;
    }
    net[n] = '\0';
    length = snprintf(text, sizeof text, "%s %s %ld", boot, net, (long)geteuid());
    return tutti__hash64(text, (size_t)length);
}

static bool in_process(const tutti_group *group)
{
    return group->store && group->store->in_process;
}

/* Threads of a process are on one host, and where a test says so ranks are on several. */
static uint64_t host_id(const tutti_group *group)
{
    const uint64_t id[2] = {in_process(group) ? 0 : id_of_machine(),
                            (uint64_t)group->comm.tuning.host};

    return tutti__hash64(id, sizeof id);
}

/* ---- Listening ------------------------------------------------------------------------------------------ */

static tutti_status tcp_address(const tutti_group *group, tutti__address *address)
{
    const char *interfaces = tutti__env_text(TUTTI__ENV_SOCKET_IFNAME);

    if (group->mpi)
        return tutti__interface_address(address, *interfaces ? interfaces : "^lo", 0);
    if (*interfaces)
        return tutti__interface_address(address, interfaces, group->store->address.at.ss_family);
    if (group->store->address.length == 0)
        return tutti__resolve(address, "127.0.0.1", 0);
    *address = group->store->address; /* the side from which the store, and so rank 0, is reached */
    tutti__address_set_port(address, 0);
    return TUTTI_OK;
}

static tutti_status listen_all(const tutti_group *group, card *mine, listeners *at)
{
    bool threads = in_process(group);

    at->local = at->tcp = -1;
    if (!group->tcp && (threads || group->mpi ||
                        tutti__shm_probe(group, mine->no_sharing, sizeof mine->no_sharing))) {
        /* Binding without a name makes the kernel choose an abstract one. */
        mine->local_at.at.ss_family = AF_UNIX;
        mine->local_at.length = sizeof(sa_family_t);
        if (tutti__listen(&mine->local_at, &at->local) != TUTTI_OK)
            snprintf(mine->no_sharing, sizeof mine->no_sharing, "%.79s", tutti_last_error());
    }
    if (!threads || group->tcp || group->comm.tuning.host || at->local < 0) {
        TUTTI_TRY(tcp_address(group, &mine->tcp_at));
        TUTTI_TRY(tutti__listen(&mine->tcp_at, &at->tcp));
        if (group->comm.tuning.advertise)
            tutti__address_set_port(
                &mine->tcp_at,
                group->comm.tuning.advertise(group->comm.rank, tutti__address_port(&mine->tcp_at)));
    }
    return TUTTI_OK;
}

static void close_listeners(const listeners *at)
{
    if (at->local >= 0)
        close(at->local);
    if (at->tcp >= 0)
        close(at->tcp);
}

/* ---- Cards ------------------------------------------------------------------------------------------------ */

static tutti_status fill_in(const tutti_group *group, card *mine)
{
    long sockets;

    TUTTI_TRY(tutti__env_int(TUTTI__ENV_SOCKETS_PER_PAIR, 1, MAX_SOCKETS, &sockets));
    mine->protocol = PROTOCOL;
    mine->bytes = sizeof *mine;
    mine->host_id = host_id(group);
    mine->pid = (int64_t)getpid();
    mine->tcp = group->tcp;
    mine->sockets = (uint32_t)sockets;
    mine->world_rank = group->comm.peers[group->comm.rank].world_rank;
    mine->heartbeat_ms = group->heartbeat_ms;
    snprintf(mine->version, sizeof mine->version, "%s", TUTTI_VERSION);
    gethostname(mine->host, sizeof mine->host - 1);
    randombytes_buf(&mine->nonce, sizeof mine->nonce);
    return TUTTI_OK;
}

static tutti_status publish(tutti_group *group, const card *mine)
{
    char key[256];

    snprintf(key, sizeof key, "%s/rank/%d", group->prefix, group->comm.rank);
    return tutti_store_set(group->store, key, mine, sizeof *mine);
}

static tutti_status fail_absent(tutti_group *group, int first)
{
    char key[256], names[256] = "";
    size_t n = 0;
    int absent = 0;

    for (int r = first; r < group->comm.size; r++) {
        snprintf(key, sizeof key, "%s/rank/%d", group->prefix, r);
        if (tutti_store_wait(group->store, key, 0) != TUTTI_ERR_TIMEOUT)
            continue;
        absent++;
        if (n + 16 < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%d", n ? ", " : "", r);
    }
    return tutti__fail(TUTTI_ERR_PEER,
                       "waited %.3g s, but %d of %d ranks never came: rank%s "
                       "%s; were they started, with the "
                       "same world size and the same MASTER_ADDR and MASTER_PORT?",
                       group->comm.timeout_ms / 1e3, absent, group->comm.size,
                       absent == 1 ? "" : "s", names);
}

/* In a split, a rank that dies before it publishes is seen by the parent group. */
static tutti_status read_card(tutti_group *group, const char *key, card *theirs, size_t *bytes,
                              double deadline)
{
    size_t capacity = *bytes;
    tutti_status status;

    do {
        int wait = tutti__poll_ms(deadline);

        *bytes = capacity;
        if (group->comm.parent && tutti__comm_failed(group->comm.parent))
            return tutti__comm_error(group->comm.parent, NULL);
        status = tutti_store_get(group->store, key, theirs, bytes,
                                 group->comm.parent && wait > LOOK_MS ? LOOK_MS : wait);
    } while (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() < deadline);
    return status;
}

static tutti_status read_cards(tutti_group *group, card *cards, double deadline)
{
    char key[256];

    for (int r = 0; r < group->comm.size; r++) {
        size_t bytes = sizeof cards[r];
        tutti_status status;

        snprintf(key, sizeof key, "%s/rank/%d", group->prefix, r);
        status = read_card(group, key, &cards[r], &bytes, deadline);
        if (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() >= deadline)
            return fail_absent(group, r);
        if (status != TUTTI_OK && status != TUTTI_ERR_ARG)
            return status;
        if (status == TUTTI_ERR_ARG || bytes != sizeof cards[r])
            cards[r].protocol = 0;
    }
    return TUTTI_OK;
}

/* MPI brings them together. Sockets beside it trust each other by a secret that only its ranks have heard. */
static tutti_status exchange_cards(tutti_group *group, const card *mine, card *cards,
                                   double deadline)
{
    size_t bytes = sizeof group->secret.key;
    uint8_t *keys = tutti__alloc(((size_t)group->comm.size + 1) * bytes);
    tutti_status status = keys ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK) {
        randombytes_buf(keys, bytes);
        status = tutti__mpi_exchange(group, keys, keys + bytes, bytes, deadline);
    }
    if (status == TUTTI_OK && !group->secret.set) {
        memcpy(group->secret.key, keys + bytes, bytes); /* rank 0's */
        group->secret.set = true;
    }
    free(keys);
    return status == TUTTI_OK ? tutti__mpi_exchange(group, mine, cards, sizeof *mine, deadline)
                              : status;
}

static tutti_status check_cards(const tutti_group *group, const card *cards)
{
    for (int r = 0; r < group->comm.size; r++)
        if (cards[r].protocol != PROTOCOL || cards[r].bytes != sizeof cards[r] ||
            cards[r].sockets < 1 || cards[r].sockets > MAX_SOCKETS)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "rank %d runs another version of Tutti than rank %d, which runs %s; "
                               "all ranks need the same build",
                               r, group->comm.rank, TUTTI_VERSION);
    return TUTTI_OK;
}

static void note_peers(tutti_group *group, const card *cards)
{
    bool told = group->comm.local_size > 0;

    group->comm.id = tutti__hash64(cards, (size_t)group->comm.size * sizeof *cards) ^
                     tutti__hash64(group->comm.name, strlen(group->comm.name));
    for (int r = 0; r < group->comm.size; r++) {
        memcpy(group->comm.peers[r].host, cards[r].host, sizeof group->comm.peers[r].host);
        group->comm.peers[r].host[sizeof group->comm.peers[r].host - 1] = '\0';
        group->comm.peers[r].pid = cards[r].pid;
        group->comm.peers[r].world_rank = cards[r].world_rank;
        if (told || cards[r].host_id != cards[group->comm.rank].host_id)
            continue;
        group->comm.local_rank += r < group->comm.rank;
        group->comm.local_size++;
    }
}

static tutti_group *group_new(const tutti__member *member);

/* ---- Choosing ----------------------------------------------------------------------------------------------- */

/* True if a rank cannot share memory with those of its host; rank 0 says so. */
static bool sharing_refused(const tutti_group *group, const card *cards)
{
    int rank = 0;

    while (rank < group->comm.size && !*cards[rank].no_sharing)
        rank++;
    if (rank == group->comm.size)
        return false;
    if (group->comm.rank == 0)
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "group \"%s\" uses TCP, also inside hosts, which is slower: rank %d on %s cannot "
                  "share memory: %.*s; allow it (the container's seccomp profile, ulimits), or set "
                  "TUTTI_TRANSPORT=tcp to choose TCP without this line",
                  group->comm.name, rank, cards[rank].host, (int)sizeof cards[rank].no_sharing,
                  cards[rank].no_sharing);
    return true;
}

/* What all ranks do, since all read the same cards. */
typedef struct plan {
    bool tcp;    /* everywhere */
    bool shared; /* memory: all are on one host */
    bool hosts;  /* several, one of them with more than one rank: memory inside, TCP between them */
    int heartbeat_ms;
    int channels; /* the post, then data */
} plan;

/* The most patient rank's heartbeat counts; who has none, as under a debugger, is given time by all. */
static plan make_plan(const tutti_group *group, const card *cards)
{
    plan p = {.heartbeat_ms = cards[0].heartbeat_ms};
    int n_hosts = 0;

    for (int r = 0; r < group->comm.size; r++) {
        int theirs = cards[r].heartbeat_ms, first = 0;

        while (cards[first].host_id != cards[r].host_id)
            first++;
        n_hosts += first == r;
        p.tcp = p.tcp || cards[r].tcp;
        p.heartbeat_ms = theirs == 0 || p.heartbeat_ms == 0 ? 0
                         : theirs > p.heartbeat_ms          ? theirs
                                                            : p.heartbeat_ms;
    }
    p.tcp = p.tcp || sharing_refused(group, cards);
    p.shared = n_hosts == 1 && !p.tcp;
    p.hosts = n_hosts > 1 && n_hosts < group->comm.size && !p.tcp;
    p.channels = p.shared || group->mpi ? 1 : 1 + (int)cards[0].sockets;
    return p;
}

/* The post, channel 0, goes by unix sockets inside a host; data by TCP. */
static tutti_status connect_all(tutti_group *group, const card *cards, const plan *p,
                                tutti__mesh *mesh, double deadline)
{
    int n = group->comm.size;
    tutti_status status;

    for (int r = 0; r < n; r++) {
        bool here = cards[r].host_id == cards[group->comm.rank].host_id;

        for (int c = 0; c < p->channels; c++) {
            tutti__address *address = &mesh->addresses[c * n + r];

            *address = c == 0 && here && !p->tcp ? cards[r].local_at : cards[r].tcp_at;
            /* One link, and each host numbers its own. */
            tutti__address_set_scope(address,
                                     tutti__address_scope(&cards[group->comm.rank].tcp_at));
            if (r == group->comm.rank)
                address->length = 0;
        }
    }
    TUTTI_TRY(tutti__mesh_connect(group, mesh, deadline));
    status = tutti__control_open(group, mesh->fds, p->heartbeat_ms);
    for (int i = n; i < mesh->channels * n && status != TUTTI_OK; i++)
        if (mesh->fds[i] >= 0)
            close(mesh->fds[i]);
    return status;
}

static tutti_status open_memory(tutti_group *group, double deadline)
{
    return (in_process(group) ? tutti__shm_open_threads : tutti__shm_open_processes)(group,
                                                                                     deadline);
}

/* Takes over `ranks`: this host's, in order, of which this rank is number `member->rank`. */
static tutti_status open_host(tutti_group *group, const tutti__member *member, int *ranks,
                              tutti_group **local_p, double deadline)
{
    tutti_group *local = group_new(member);
    tutti_status status;

    *local_p = local;
    if (!local) {
        free(ranks);
        return TUTTI_ERR_MEMORY;
    }
    local->comm.outer = &group->comm;
    local->comm.outer_ranks = ranks;
    local->comm.id = group->comm.id;
    snprintf(local->prefix, sizeof local->prefix, "%.140s/host-%d", group->prefix, ranks[0]);
    status = tutti_store_clone(&local->store, group->store);
    return status == TUTTI_OK ? open_memory(local, deadline) : status;
}

/* The group's wire is open: now the memory of this host's ranks, and then both as one. */
static tutti_status open_hosts(tutti_group *group, const card *cards, double deadline)
{
    tutti__member member = {
        .name = "host", .timeout_ms = group->comm.timeout_ms, .tuning = group->comm.tuning};
    uint64_t *ids = calloc((size_t)group->comm.size, sizeof *ids);
    int *ranks = calloc((size_t)group->comm.size, sizeof *ranks);
    tutti_group *local = NULL;
    tutti_status status;

    if (!ids || !ranks) {
        free(ids);
        free(ranks);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", group->comm.size);
    }
    for (int r = 0; r < group->comm.size; r++) {
        ids[r] = cards[r].host_id;
        if (ids[r] != cards[group->comm.rank].host_id)
            continue;
        member.rank += r < group->comm.rank;
        ranks[member.size++] = r;
    }
    member.local_rank = member.rank;
    member.local_size = member.size;
    status = open_host(group, &member, ranks, &local, deadline);
    if (status == TUTTI_OK)
        status = tutti__hierarchy_open(group, local, ids);
    else
        tutti_group_free(local);
    free(ids);
    return status;
}

static tutti_status open_transport(tutti_group *group, const card *cards, const plan *p,
                                   const int *sockets, double deadline)
{
    if (group->mpi) /* it came first */
        return TUTTI_OK;
    if (p->shared)
        return open_memory(group, deadline);
    TUTTI_TRY(tutti__tcp_open(group, sockets, p->channels - 1));
    return p->hosts ? open_hosts(group, cards, deadline) : TUTTI_OK;
}

static void announce(void *self, tutti__cause *cause)
{
    tutti_group *group = self;

    if (group->transport->announce)
        group->transport->announce(group, cause);
}

static void look(void *self)
{
    tutti_group *group = self;

    if (group->transport->look)
        group->transport->look(group);
}

static void wake(void *self, bool first)
{
    tutti_group *group = self;

    (void)first;
    if (group->transport->wake)
        group->transport->wake(group, -1);
}

static void note_left(void *self, int rank)
{
    tutti_group *group = self;

    if (group->transport->wake)
        group->transport->wake(group, rank);
}

static tutti_status connect_and_open(tutti_group *group, const card *cards, const listeners *at,
                                     const plan *p, double deadline)
{
    size_t n = (size_t)(group->comm.size * p->channels);
    tutti__mesh mesh = {.channels = p->channels,
                        .listeners = {at->local, at->tcp},
                        .addresses = calloc(n, sizeof *mesh.addresses),
                        .fds = calloc(n, sizeof *mesh.fds)};
    tutti_status status =
        mesh.addresses && mesh.fds
            ? connect_all(group, cards, p, &mesh, deadline)
            : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the addresses of %d ranks",
                          group->comm.size);

    if (status == TUTTI_OK)
        status = open_transport(group, cards, p, mesh.fds + group->comm.size, deadline);
    atomic_store(&group->opened, status == TUTTI_OK);
    if (status == TUTTI_OK)
        tutti__comm_observe(&group->comm, &(tutti__observer){.self = group,
                                                             .announce = announce,
                                                             .look = look,
                                                             .failed = wake,
                                                             .left = note_left});
    free(mesh.addresses);
    free(mesh.fds);
    return status;
}

static tutti_status all_cards(tutti_group *group, const card *mine, card *cards, double deadline)
{
    if (group->mpi) {
        TUTTI_TRY(exchange_cards(group, mine, cards, deadline));
    } else {
        TUTTI_TRY(publish(group, mine));
        TUTTI_TRY(read_cards(group, cards, deadline));
    }
    return check_cards(group, cards);
}

static tutti_status meet(tutti_group *group, double deadline)
{
    card *cards = calloc((size_t)group->comm.size, sizeof *cards);
    card mine = {0};
    listeners at = {-1, -1};
    tutti_status status =
        cards ? TUTTI_OK
              : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", group->comm.size);

    if (status == TUTTI_OK)
        status = tutti__secret_read(&group->secret);
    if (status == TUTTI_OK)
        status = listen_all(group, &mine, &at);
    if (status == TUTTI_OK)
        status = fill_in(group, &mine);
    if (status == TUTTI_OK)
        status = all_cards(group, &mine, cards, deadline);
    if (status == TUTTI_OK) {
        const plan p = make_plan(group, cards);

        note_peers(group, cards);
        if (p.tcp && at.tcp < 0)
            status = tutti__fail(TUTTI_ERR_MISMATCH, "some ranks ask for TCP and some do not");
        else
            status = connect_and_open(group, cards, &at, &p, deadline);
    }
    close_listeners(&at);
    free(cards);
    return status == TUTTI_OK ? tutti_barrier(group, NULL) : status;
}

/* ---- Failing ------------------------------------------------------------------------------------------------ */

void tutti__note_cause(tutti_group *group, tutti_status status, tutti__cause *first)
{
    tutti__cause own = {.status = status, .culprit = group->comm.rank}, known;
    tutti__reply reply = {.value = &known, .bytes = sizeof known};
    char key[256], who[128], message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (atomic_load(&group->comm.failed)) {
        own = group->comm.cause;
    } else if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP) {
        snprintf(own.text, sizeof own.text, "%.1000s", message);
    } else { /* the others only see that this rank is gone */
        tutti__comm_peer_text(&group->comm, group->comm.rank, who, sizeof who);
        snprintf(own.text, sizeof own.text, "%s: %.800s", who, message);
    }
    snprintf(key, sizeof key, "%s/cause", group->prefix);
    if (first)
        *first = own;
    if (group->store &&
        group->store->ops->ask(group->store,
                               &(tutti__request){.op = TUTTI__COMPARE_SET,
                                                 .key = key,
                                                 .value = &own,
                                                 .value_bytes = sizeof own,
                                                 .patience_ms = NOTE_MS},
                               &reply) == TUTTI_OK &&
        reply.bytes == sizeof known && first) {
        known.text[sizeof known.text - 1] = '\0';
        *first = known;
    }
    (void)tutti__fail_again(status, message);
}

/* A group could not be made. In a split the parent group knows who died, or will in a moment; else the first rank that
 * failed has said why. Who is merely missing because it failed too is then not taken for the culprit. */
static tutti_status fail_setup(tutti_group *group, tutti_status status)
{
    double deadline = tutti__now_ms() + NOTE_MS;
    tutti__cause first = {.status = status};
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    while (group->comm.parent && tutti_status_scope(status) == TUTTI_SCOPE_GROUP &&
           !tutti__comm_failed(group->comm.parent) && tutti__now_ms() < deadline)
        poll(NULL, 0, 1);
    if (group->comm.parent && tutti__comm_failed(group->comm.parent)) {
        first = group->comm.parent->cause;
        tutti__comm_report(group->comm.parent);
    } else if (status != TUTTI_ERR_IO) { /* the store is gone */
        tutti__note_cause(group, status, &first);
    }
    if (!*first.text || (first.culprit == group->comm.rank && !group->comm.parent))
        snprintf(first.text, sizeof first.text, "%.1000s", message);
    if (group->control) /* peers that wait for this rank are told */
        (void)tutti__comm_fail(&group->comm, (tutti_status)first.status, first.culprit, "%s",
                               first.text);
    return tutti__fail((tutti_status)first.status,
                       "rank %d of %d on %s, while group \"%s\" was being made%s%s%s: %s",
                       group->comm.rank, group->comm.size, group->comm.peers[group->comm.rank].host,
                       group->comm.name, group->comm.parent ? " by a split of group \"" : "",
                       group->comm.parent ? group->comm.parent->name : "",
                       group->comm.parent ? "\"" : "", first.text);
}

/* ---- Joining -------------------------------------------------------------------------------------------------- */

static tutti_group *group_new(const tutti__member *member)
{
    tutti_group *group = tutti__alloc(sizeof *group);

    if (!group)
        return NULL;
    group->process = getpid();
    group->comm.rank = member->rank;
    group->comm.size = member->size;
    group->comm.local_rank = member->local_size ? member->local_rank : 0;
    group->comm.local_size = member->local_size;
    group->comm.timeout_ms = member->timeout_ms;
    atomic_init(&group->call_timeout_ms, member->timeout_ms);
    group->heartbeat_ms = member->heartbeat_ms;
    group->tcp = member->transport == TUTTI_TRANSPORT_TCP;
    group->mpi = member->mpi;
    group->comm.tuning = member->tuning;
    group->comm.parent = member->parent ? &member->parent->comm : NULL;
    group->attempt = member->attempt;
    group->launched = member->launched;
    memcpy(group->comm.name, member->name, sizeof group->comm.name);
    pthread_mutex_init(&group->report_lock, NULL);
    pthread_mutex_init(&group->plain_lock, NULL);
    if (tutti__comm_init(&group->comm) != TUTTI_OK || tutti__queue_new(group) != TUTTI_OK) {
        tutti_group_free(group);
        return NULL;
    }
    group->comm.peers[group->comm.rank].world_rank = member->world_rank;
    return group;
}

static tutti_status join_others(tutti_group *group, const tutti__member *member, tutti_store *store)
{
    double deadline = tutti__now_ms() + group->comm.timeout_ms;
    char key[256];
    int64_t times;

    if (group->mpi) {
        TUTTI_TRY(tutti__mpi_open(group, member, deadline));
        return meet(group, deadline);
    }
    TUTTI_TRY(tutti_store_clone(&group->store, store));
    snprintf(key, sizeof key, "%s/%s/%d/joined/%d", member->base, member->name, member->size,
             member->rank);
    TUTTI_TRY(tutti_store_add(group->store, key, 1, &times));
    snprintf(group->prefix, sizeof group->prefix, "%s/%s/%d/%lld", member->base, member->name,
             member->size, (long long)times);
    return meet(group, deadline);
}

tutti_status tutti__join(tutti_group **group_p, const tutti__member *member, tutti_store *store)
{
    tutti_group *group = group_new(member);
    tutti_status status = TUTTI_OK;

    *group_p = NULL;
    if (!group)
        return TUTTI_ERR_MEMORY;
    status = tutti__flight_open(group);
    if (status == TUTTI_OK && group->comm.size > 1) {
        status = join_others(group, member, store);
    } else if (status == TUTTI_OK) {
        group->comm.local_size = 1;
        group->transport = &tutti__single_transport;
        status = tutti__control_open(group, &(int){-1}, 0);
        if (status == TUTTI_OK && store)
            status = tutti_store_clone(&group->store, store);
    }
    if (status == TUTTI_OK)
        status = tutti_device_parse(&group->device, "auto", group->comm.local_rank);
    if (status != TUTTI_OK) {
        char why[2048];

        if (group->comm.size > 1)
            status = fail_setup(group, status);
        snprintf(why, sizeof why, "%s", tutti_last_error());
        tutti_group_free(group);
        return tutti__fail_again(status, why);
    }
    tutti_log(TUTTI_LOG_DEBUG, "comm", "rank %d of %d in group \"%s\", %s", group->comm.rank,
              group->comm.size, group->comm.name, group->transport->name);
    group->comm.parent = NULL;
    *group_p = group;
    return TUTTI_OK;
}
