/* group_join.c -- a rank finds the others of its group, and they choose how to communicate.   SPDX-License-Identifier: MIT
 *
 *     bootstrap/    each rank listens, publishes its address, reads its neighbours', connects with them; the addresses of all go up
 *                   and down a tree, and all choose alike. In a small group all are neighbours
 *     control/      opens on these connections
 *     engine/       opens what runs the collectives; a first barrier shows that all ranks are there
 *
 * A group that is made from another has that one's control channel, which also makes further connections. */
#include "comm/group_join.h"

#include "comm/algorithm/tuner.h"
#include "comm/backend/backend.h"
#include "comm/bootstrap/choose_transport.h"
#include "comm/bootstrap/listen.h"
#include "comm/bootstrap/mesh.h"
#include "comm/bootstrap/store/store.h"
#include "comm/control/control.h"
#include "comm/core/tree.h"
#include "comm/engine/planned_engine.h"
#include "comm/transport/shared_memory/shm.h"
#include "comm/transport/tcp/tcp.h"

#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank waits that much longer for those that wait for others. */
enum { TURN_MS = 500 };

/* ---- Connections ------------------------------------------------------------------------------------------- */

/* Takes over what is in opts; NULL: on the parent's. */
static tutti_status open_control(tutti_group *group, const tutti__control_opts *opts,
                                 const tutti__group_member *member)
{
    tutti__frame_handler handler;

    TUTTI_TRY(tutti__p2p_new(&group->p2p, &group->comm));
    handler = tutti__p2p_handler(group->p2p);
    if (!member)
        TUTTI_TRY(tutti__control_open(&group->control, &group->comm, opts, &handler));
    else
        TUTTI_TRY(tutti__control_share(&group->control, member->parent->control, &group->comm,
                                       member->ranks, &handler));
    tutti__p2p_attach(group->p2p, group->control);
    return TUTTI_OK;
}

/* Ranks of one host send each other messages through shared memory. */
static tutti_status share_messages(tutti_group *group, double deadline)
{
    bool tcp = group->plan.tcp;
    int n = 0, *ranks = tcp ? NULL : tutti__alloc((size_t)group->comm.size * sizeof *ranks);
    tutti_status status = tcp || ranks ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (int r = 0; r < group->comm.size && ranks; r++)
        if (group->host_ids[r] == group->host_ids[group->comm.rank])
            ranks[n++] = r;
    if (n > 1)
        status = tutti__p2p_share(group->p2p, ranks, n, tutti__bootstrap_in_process(&group->boot),
                                  deadline);
    free(ranks);
    return status;
}

/* ---- Engines ----------------------------------------------------------------------------------------------- */

/* Opens the memory that the ranks of `comm`, all of this host, share. */
static tutti_status open_memory(const tutti_group *group, tutti__comm *comm, tutti__shm **shm_p,
                                double deadline)
{
    const tutti__bootstrap *boot = &group->boot;
    tutti_status status;

    if (tutti__bootstrap_in_process(boot))
        return tutti__shm_open_threads(shm_p, comm, group->control, deadline);
    status = tutti__shm_open_processes(shm_p, comm, group->control, deadline);
    if (status == TUTTI_OK)
        tutti__p2p_set_memory(group->p2p,
                              &(tutti__p2p_memory){*shm_p, tutti__shm_find, tutti__shm_copy});
    return status;
}

static tutti_status open_shared_memory(tutti_group *group, double deadline)
{
    tutti__shm *shm;

    TUTTI_TRY(open_memory(group, &group->comm, &shm, deadline));
    return tutti__engine_shared_memory(&group->engine, &group->comm, shm);
}

/* This host's ranks as a communicator within the group; host_ids[r]: equal for ranks of one host. */
static tutti__comm *host_new(tutti__comm *comm, const uint64_t *host_ids)
{
    tutti__comm *host = tutti__alloc(sizeof *host);

    if (!host)
        return NULL;
    snprintf(host->name, sizeof host->name, "host");
    host->id = comm->id;
    host->timeout_ms = comm->timeout_ms;
    host->tuning = comm->tuning;
    host->outer = comm;
    host->outer_ranks = tutti__alloc((size_t)comm->size * sizeof *host->outer_ranks);
    for (int r = 0; r < comm->size && host->outer_ranks; r++) {
        if (host_ids[r] != host_ids[comm->rank])
            continue;
        host->rank += r < comm->rank;
        host->outer_ranks[host->size++] = r;
    }
    host->local_rank = host->rank;
    host->local_size = host->size;
    if (host->outer_ranks && tutti__comm_init(host) == TUTTI_OK)
        return host;
    tutti__comm_destroy(host);
    free(host);
    return NULL;
}

/* Shared memory within hosts, sockets between them. */
static tutti_status open_hosts(tutti_group *group, tutti__tcp *tcp, double deadline)
{
    const tutti__places places = {group->host_ids, group->switches};
    tutti__comm *host = host_new(&group->comm, group->host_ids);
    tutti__shm *shm = NULL;
    tutti_status status = TUTTI_ERR_MEMORY;

    if (host)
        status = open_memory(group, host, &shm, deadline);
    if (status == TUTTI_OK) {
        status = tutti__engine_hierarchical(&group->engine, &group->comm, tcp, host, shm, &places);
    } else {
        tutti__tcp_abandon(tcp);
        if (host)
            tutti__comm_destroy(host);
        free(host);
    }
    return status;
}

/* Before the engine, since it also carries the exchange by which ranks find each other. */
static tutti_status open_mpi(tutti_group *group, const tutti__tcp *parent,
                             const tutti__group_member *member, double deadline)
{
    tutti_status status = tutti__mpi_open(&group->mpi, &group->comm, parent, member->ranks,
                                          (int)(member->id & INT16_MAX), deadline);

    group->mpi_is_free = group->mpi != NULL;
    return status;
}

static tutti_status open_engine(tutti_group *group, double deadline)
{
    const tutti__transport_plan *p = &group->plan;
    const tutti__places places = {group->host_ids, group->switches};
    tutti__tcp *tcp = group->mpi;

    group->mpi_is_free = false;
    if (p->shared) {
        tutti__tcp_free(tcp); /* the set-up needed it */
        group->mpi = NULL;
        return open_shared_memory(group, deadline);
    }
    if (!group->boot.mpi)
        TUTTI_TRY(tutti__tcp_open(&tcp, &group->comm, group->control, p->n_connections - 1));
    return p->hosts ? open_hosts(group, tcp, deadline)
                    : tutti__engine_tcp(&group->engine, &group->comm, tcp, &places);
}

static tutti_status open_all(tutti_group *group, double deadline)
{
    tutti_status status = share_messages(group, deadline);

    if (status == TUTTI_OK)
        status = open_engine(group, deadline);
    if (status != TUTTI_OK)
        return status;
    tutti__queue_set_engine(group->queue, group->engine);
    group->flight.engine = group->engine;
    tutti__engine_observe(group->engine);
    return group->engine->ops->measure && group->comm.size > TUTTI__TUNER_DIRECT
               ? group->engine->ops->measure(group->engine, deadline)
               : TUTTI_OK;
}

/* ---- Finding the others ------------------------------------------------------------------------------------ */

/* What a rank knows while it looks for the others. */
typedef struct search {
    tutti_group *group;
    tutti__peer_info mine, *infos; /* by rank */
    tutti__listeners at;
    tutti__mesh mesh;
    bool know_all;
    double deadline;
    /* Of the neighbours, ascending. */
    int ranks[TUTTI__NEIGHBOURS], fds[TUTTI__NEIGHBOURS];
    tutti__address addresses[TUTTI__NEIGHBOURS];
} search;

/* Whether ranks authenticate by a secret that rank 0 leaves in the program's store, before its info; the others read it after
 * they have rank 0's info, so that waiting for missing ranks is one mechanism. */
static bool shares_secret(const tutti__bootstrap *boot)
{
    return boot->store && boot->store->custom && !boot->secret.set;
}

static tutti_status leave_secret(const tutti__bootstrap *boot, tutti__secret *secret)
{
    char key[256];

    snprintf(key, sizeof key, "%s/secret", boot->prefix);
    randombytes_buf(secret->key, sizeof secret->key);
    TUTTI_TRY(tutti_store_set(boot->store, key, secret->key, sizeof secret->key));
    secret->set = true;
    return TUTTI_OK;
}

static tutti_status read_secret(const tutti__bootstrap *boot, tutti__secret *secret,
                                double deadline)
{
    size_t bytes = sizeof secret->key;
    char key[256];

    snprintf(key, sizeof key, "%s/secret", boot->prefix);
    TUTTI_TRY(tutti_store_get(boot->store, key, secret->key, &bytes, tutti__poll_ms(deadline)));
    if (bytes != sizeof secret->key)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: key \"%s\" has %zu bytes, expected %zu",
                           boot->store->where, key, bytes, sizeof secret->key);
    secret->set = true;
    return TUTTI_OK;
}

/* Exchanges the infos over MPI. Sockets besides it authenticate by a secret that only its ranks have received. */
static tutti_status exchange_over_mpi(tutti_group *group, const tutti__peer_info *mine,
                                      tutti__peer_info *infos, double deadline)
{
    tutti__secret *secret = &group->boot.secret;
    size_t bytes = sizeof secret->key;
    uint8_t *keys = tutti__alloc(((size_t)group->comm.size + 1) * bytes);
    tutti_status status = keys ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK) {
        randombytes_buf(keys, bytes);
        status = tutti__mpi_exchange(group->mpi, keys, keys + bytes, bytes, deadline);
    }
    if (status == TUTTI_OK && !secret->set) {
        memcpy(secret->key, keys + bytes, bytes); /* rank 0's */
        secret->set = true;
    }
    free(keys);
    return status == TUTTI_OK ? tutti__mpi_exchange(group->mpi, mine, infos, sizeof *mine, deadline)
                              : status;
}

static tutti_status exchange_infos(search *s)
{
    tutti_group *group = s->group;
    tutti__bootstrap *boot = &group->boot;
    const bool knows_all = boot->mpi || s->mesh.n == boot->comm->size - 1;
    /* rank 0 lists all that are missing */
    const double deadline = s->deadline + (knows_all || boot->comm->rank == 0 ? 0 : TURN_MS);

    if (shares_secret(boot) && boot->comm->rank == 0)
        TUTTI_TRY(leave_secret(boot, &boot->secret));
    if (boot->mpi)
        TUTTI_TRY(exchange_over_mpi(group, &s->mine, s->infos, s->deadline));
    else
        TUTTI_TRY(
            tutti__peer_info_exchange(boot, &s->mine, s->ranks, s->mesh.n, s->infos, deadline));
    if (shares_secret(boot))
        TUTTI_TRY(read_secret(boot, &boot->secret, s->deadline));
    s->know_all = knows_all;
    return tutti__peer_info_check(boot, s->know_all ? NULL : s->ranks,
                                  s->know_all ? boot->comm->size : s->mesh.n, s->infos);
}

/* Calls that differ, or an abort, are of ranks that have left this barrier: the group is made, and this rank's next call returns
 * what is wrong with it, as on ranks that were faster. But it is not if a member aborts it that could not make it, because the group
 * that it is made from is dead. */
static tutti_status meet(tutti_group *group)
{
    const tutti_status status = tutti_barrier(group, NULL);

    if ((status == TUTTI_ERR_ABORTED &&
         (tutti__control_was_refused(group->control) ||
          (group->comm.parent && tutti__comm_failed(group->comm.parent)))) ||
        (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH && status != TUTTI_ERR_ABORTED))
        return status;
    /* a rank that ends after this is missed by its neighbours */
    (void)tutti__control_await_neighbours(group->control, tutti__now_ms() + group->comm.timeout_ms);
    tutti__control_opened(group->control);
    atomic_store(&group->boot.made, true);
    return TUTTI_OK;
}

static int by_rank(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static tutti_status open_listeners(search *s)
{
    tutti_group *group = s->group;
    tutti__bootstrap *boot = &group->boot;

    if (!boot->tcp && !tutti__bootstrap_in_process(boot))
        (void)tutti__shm_probe(&group->comm, s->mine.no_sharing, sizeof s->mine.no_sharing);
    if (boot->store && boot->store->secret)
        boot->secret = *boot->store->secret;
    else
        TUTTI_TRY(tutti__secret_read_given(&boot->secret));
    TUTTI_TRY(tutti__listeners_open(boot, &s->mine, &s->at));
    return tutti__peer_info_fill(boot, &s->mine);
}

static tutti_status make_places(tutti_group *group)
{
    const size_t n = (size_t)group->comm.size;

    group->host_ids = tutti__alloc(n * sizeof *group->host_ids);
    group->switches = tutti__alloc(n * sizeof *group->switches);
    return group->host_ids && group->switches ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* All are known: chooses the transport. */
static tutti_status choose(search *s)
{
    tutti_group *group = s->group;
    const size_t n = (size_t)group->comm.size;

    TUTTI_TRY(make_places(group));
    for (size_t r = 0; r < n; r++) {
        group->host_ids[r] = s->infos[r].host_id;
        group->switches[r] = s->infos[r].switches;
    }
    group->plan = tutti__choose(&group->boot, s->infos, group->host_ids);
    tutti__peer_info_note(&group->boot, s->infos);
    if (s->know_all && !group->boot.tcp)
        TUTTI_TRY(tutti__check_descriptors(group, true));
    return group->plan.tcp && s->at.tcp < 0
               ? tutti__fail(TUTTI_ERR_MISMATCH, "some ranks ask for TCP and some do not")
               : TUTTI_OK;
}

/* Before all are known, two ranks of a host that could share memory use a unix socket. */
static tutti_status find_addresses(search *s)
{
    const tutti_group *group = s->group;
    const tutti__peer_info *infos = s->infos, *mine = &infos[group->comm.rank];

    for (int i = 0; i < s->mesh.n; i++) {
        const tutti__peer_info *theirs = &infos[s->ranks[i]];
        bool tcp = s->know_all
                       ? group->plan.tcp
                       : mine->tcp || theirs->tcp || *mine->no_sharing || *theirs->no_sharing;

        s->addresses[i] = tutti__control_address(infos, group->comm.rank, s->ranks[i], tcp);
        if (s->addresses[i].length == 0 || (tcp && s->at.tcp < 0))
            return tutti__fail(TUTTI_ERR_MISMATCH, "some ranks ask for TCP and some do not");
    }
    return TUTTI_OK;
}

static tutti_status connect_neighbours(search *s)
{
    tutti__comm *comm = &s->group->comm;
    const tutti__bootstrap *boot = &s->group->boot;
    const size_t n = (size_t)comm->size;

    s->mesh.id = s->know_all ? tutti__hash64(s->infos, n * sizeof *s->infos)
                             : tutti__hash64(boot->prefix, strlen(boot->prefix));
    s->mesh.id ^= tutti__hash64(comm->name, strlen(comm->name));
    if (s->know_all)
        comm->id = s->mesh.id;
    TUTTI_TRY(tutti__mesh_open(boot, &s->mesh, (int[2]){s->at.local, s->at.tcp}));
    TUTTI_TRY(tutti__mesh_connect(boot, &s->mesh, s->deadline + (s->know_all ? 0 : 2 * TURN_MS)));
    s->group->boot.connected = true;
    if (s->know_all)
        return TUTTI_OK;
    TUTTI_TRY(tutti__peer_info_gather(boot, s->ranks, s->fds, s->mesh.n, s->infos, &comm->id,
                                      s->deadline + (4 + tutti__tree_depth(comm->rank)) * TURN_MS));
    comm->id ^= tutti__hash64(comm->name, strlen(comm->name));
    TUTTI_TRY(tutti__peer_info_check(boot, NULL, comm->size, s->infos));
    return choose(s);
}

/* The control channel takes the connections, and, if there may be more of them, the listeners. */
static tutti_status hand_over(search *s)
{
    tutti_group *group = s->group;
    const bool more = s->mesh.n < group->comm.size - 1 || group->plan.n_connections > 1;
    tutti__control_opts opts = {.mesh = &s->mesh,
                                .heartbeat_ms = group->plan.heartbeat_ms,
                                .listeners = s->at,
                                .secret = &group->boot.secret};
    tutti_status status;

    if (more) {
        opts.directory = tutti__directory_new(&group->boot, s->infos, &group->plan);
        if (!opts.directory)
            return TUTTI_ERR_MEMORY;
    } else {
        tutti__mesh_close(&s->mesh);
        tutti__listeners_close(&s->at);
        s->at = opts.listeners = (tutti__listeners){-1, -1};
    }
    status = open_control(group, &opts, NULL);
    if (!group->p2p) { /* it has not begun */
        free(opts.directory);
        return status;
    }
    s->mesh.n = 0; /* they are the control channel's, or closed */
    s->at = (tutti__listeners){-1, -1};
    return status;
}

static tutti_status look_for_others(search *s)
{
    TUTTI_TRY(open_listeners(s));
    TUTTI_TRY(exchange_infos(s));
    if (s->know_all)
        TUTTI_TRY(choose(s));
    TUTTI_TRY(find_addresses(s));
    TUTTI_TRY(connect_neighbours(s));
    TUTTI_TRY(hand_over(s));
    return open_all(s->group, s->deadline);
}

/* NULL: no memory. */
static search *search_new(tutti_group *group, double deadline)
{
    const tutti__comm *comm = &group->comm;
    search *s = tutti__alloc(sizeof *s);

    if (!s)
        return NULL;
    *s = (search){.group = group,
                  .infos = tutti__alloc((size_t)comm->size * sizeof *s->infos),
                  .at = {-1, -1},
                  .deadline = deadline};
    s->mesh.n = tutti__tree_neighbours(comm->rank, comm->size, s->ranks);
    qsort(s->ranks, (size_t)s->mesh.n, sizeof *s->ranks, by_rank);
    s->mesh.ranks = s->ranks;
    s->mesh.addresses = s->addresses;
    s->mesh.fds = s->fds;
    for (int i = 0; i < s->mesh.n; i++)
        s->fds[i] = -1;
    if (s->infos)
        return s;
    free(s);
    return NULL;
}

/* NULL is fine. */
static void search_free(search *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->mesh.n; i++)
        if (s->fds[i] >= 0)
            close(s->fds[i]);
    tutti__mesh_close(&s->mesh);
    tutti__listeners_close(&s->at);
    free(s->infos);
    free(s);
}

/* ---- Members of a group that is there ------------------------------------------------------------------------ */

static tutti_status note_members(tutti_group *group, const tutti__group_member *member)
{
    const tutti_group *parent = member->parent;
    tutti__comm *comm = &group->comm;

    TUTTI_TRY(make_places(group));
    comm->id = member->id;
    for (int r = 0; r < comm->size; r++) {
        const tutti__peer *peer = &parent->comm.peers[member->ranks[r]];

        memcpy(comm->peers[r].host, peer->host, sizeof peer->host);
        comm->peers[r].pid = peer->pid;
        comm->peers[r].world_rank = peer->world_rank;
        group->host_ids[r] = parent->host_ids[member->ranks[r]];
        group->switches[r] = parent->switches[member->ranks[r]];
        if (group->host_ids[r] != parent->host_ids[parent->comm.rank])
            continue;
        comm->local_rank += r < comm->rank;
        comm->local_size++;
    }
    group->boot.secret = parent->boot.secret;
    group->boot.tcp = parent->plan.tcp;
    group->plan = tutti__choose_part(&group->boot, &parent->plan, group->host_ids, comm->size);
    return TUTTI_OK;
}

static tutti_status find_members(tutti_group *group, const tutti__group_member *member,
                                 double deadline)
{
    TUTTI_TRY(note_members(group, member));
    TUTTI_TRY(open_control(group, NULL, member));
    if (group->boot.mpi && !group->plan.shared)
        TUTTI_TRY(open_mpi(group, member->parent->mpi, member, deadline));
    TUTTI_TRY(open_all(group, deadline));
    TUTTI_TRY(meet(group));
    return TUTTI_OK;
}

/* ---- Joining ----------------------------------------------------------------------------------------------- */

static tutti_status group_new(tutti_group **group_p, const tutti__group_member *member)
{
    tutti_group *group = tutti__alloc(sizeof *group);
    tutti_status status;
    tutti__comm *comm;

    *group_p = group;
    if (!group)
        return TUTTI_ERR_MEMORY;
    comm = &group->comm;
    comm->rank = member->rank;
    comm->size = member->size;
    comm->local_rank = member->local_size ? member->local_rank : 0;
    comm->local_size = member->local_size;
    comm->timeout_ms = member->timeout_ms;
    comm->tuning = member->tuning;
    comm->parent = member->parent ? &member->parent->comm : NULL;
    memcpy(comm->name, member->name, sizeof comm->name);
    group->forks = tutti__forks();
    group->boot = (tutti__bootstrap){.comm = comm,
                                     .heartbeat_ms = member->heartbeat_ms,
                                     .tcp = member->transport == TUTTI_TRANSPORT_TCP,
                                     .mpi = member->backend == TUTTI_BACKEND_MPI};
    group->backend = member->backend;
    group->flight.comm = comm;
    group->flight.attempt = member->attempt;
    group->flight.launched = group->boot.launched = member->launched;
    group->boot.attempt = member->attempt;
    atomic_store(&group->boot.made, member->parent != NULL);
    status = tutti__comm_init(comm);
    tutti__comm_observe(comm,
                        &(tutti__observer){.self = &group->boot, .agree = tutti__bootstrap_agree});
    if (status == TUTTI_OK)
        status = tutti__flight_open(&group->flight);
    if (status == TUTTI_OK)
        status = tutti__devices_new(&group->devices, comm);
    if (status == TUTTI_OK)
        status = tutti__queue_new(&group->queue, comm, &group->flight, group->devices);
    if (status == TUTTI_OK)
        comm->peers[comm->rank].world_rank = member->world_rank;
    return status;
}

static tutti_status keep_store(tutti_group *group, tutti_store *store)
{
    TUTTI_TRY(tutti_store_clone(&group->boot.store, store));
    group->flight.store = group->boot.store;
    return TUTTI_OK;
}

/* *search_p: the caller frees it, when the neighbours know why this rank gives up, if it does. */
static tutti_status find_others(tutti_group *group, search **search_p, double deadline)
{
    *search_p = search_new(group, deadline);
    TUTTI_TRY(*search_p ? look_for_others(*search_p) : TUTTI_ERR_MEMORY);
    return meet(group);
}

static tutti_status join_others(tutti_group *group, const tutti__group_member *member,
                                tutti_store *store, search **search_p)
{
    double deadline = tutti__now_ms() + group->comm.timeout_ms;
    tutti__bootstrap *boot = &group->boot;
    char host[64] = "";
    uint64_t topology;

    gethostname(host, sizeof host - 1);
    TUTTI_TRY(tutti__tuner_digest(&group->comm.choices)); /* of files that all ranks read */
    TUTTI_TRY(tutti__topology_find(host, &boot->switches, &topology));
    group->comm.choices ^= topology;
    if (store)
        TUTTI_TRY(keep_store(group, store));
    if (!member->parent && !boot->mpi) /* from here on others learn there why this rank fails */
        TUTTI_TRY(tutti__peer_info_name_keys(boot, member->base));
    if (member->parent) {
        snprintf(boot->prefix, sizeof boot->prefix, "%s", member->base);
        return find_members(group, member, deadline);
    }
    TUTTI_TRY(tutti__check_descriptors(group, false));
    if (boot->mpi)
        TUTTI_TRY(open_mpi(group, NULL, member, deadline));
    return find_others(group, search_p, deadline);
}

static tutti_status join_alone(tutti_group *group, tutti_store *store)
{
    atomic_store(&group->boot.made, true);
    group->comm.local_size = 1;
    group->comm.id = tutti__now_ns();
    TUTTI_TRY(tutti__engine_single(&group->engine, &group->comm));
    tutti__queue_set_engine(group->queue, group->engine);
    TUTTI_TRY(open_control(group, NULL, NULL));
    return store ? keep_store(group, store) : TUTTI_OK;
}

/* Without a control channel. */
static tutti_status join_nobody(tutti_group *group)
{
    group->comm.id = tutti__now_ns();
    TUTTI_TRY(tutti__engine_planned(&group->engine, &group->comm));
    tutti__queue_set_engine(group->queue, group->engine);
    return TUTTI_OK;
}

/* A machine without a GPU is not an error of the caller: its message is restored. */
static tutti_status find_device(tutti_group *group)
{
    char before[2048];

    snprintf(before, sizeof before, "%s", tutti_last_error());
    TUTTI_TRY(tutti_device_parse(&group->device, "auto", group->comm.local_rank));
    return tutti__fail_again(TUTTI_OK, before);
}

/* Buffers on GPUs go through NCCL if the backend allows it and it is available: ranks find out at the first such
 * operation. A group of one uses it only if asked for. */
static tutti_status open_device_backend(tutti_group *group)
{
    const bool required = group->backend == TUTTI_BACKEND_NCCL;
    tutti__device_backend *backend;

    if (!required && (group->backend != TUTTI_BACKEND_AUTO || group->comm.size == 1))
        return TUTTI_OK;
    TUTTI_TRY(
        tutti__nccl_backend_new(&backend, &group->comm, group->devices, group->engine, required));
    tutti__devices_set_backend(group->devices, backend);
    return TUTTI_OK;
}

tutti_status tutti__join(tutti_group **group_p, const tutti__group_member *member,
                         tutti_store *store)
{
    tutti_group *group;
    tutti_status status = group_new(&group, member);
    search *found = NULL;
    char why[2048];

    *group_p = NULL;
    if (status != TUTTI_OK) {
        snprintf(why, sizeof why, "%s", tutti_last_error());
        if (member->parent)
            tutti__refuse_early(member, status, why);
        tutti_group_free(group);
        return tutti__fail_again(status, why);
    }
    status = member->planned    ? join_nobody(group)
             : member->size > 1 ? join_others(group, member, store, &found)
                                : join_alone(group, store);
    if (status == TUTTI_OK)
        status = find_device(group);
    if (status == TUTTI_OK)
        status = open_device_backend(group);
    if (status != TUTTI_OK) {
        if (group->comm.size > 1)
            status = tutti__fail_setup(group, member, found ? &found->mesh : NULL, status);
        search_free(found);
        snprintf(why, sizeof why, "%s", tutti_last_error());
        if (!group->comm.parent)
            tutti__leave_store(group);
        tutti_group_free(group);
        return tutti__fail_again(status, why);
    }
    tutti_log(TUTTI_LOG_DEBUG, "comm", "rank %d of %d in group \"%s\", %s", group->comm.rank,
              group->comm.size, group->comm.name, group->engine->name);
    search_free(found);
    group->comm.parent = NULL;
    *group_p = group;
    return TUTTI_OK;
}
