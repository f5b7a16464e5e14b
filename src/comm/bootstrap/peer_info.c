/* peer_info.c -- each rank's host and addresses.   SPDX-License-Identifier: MIT
 *
 * Keys in the store contain how often this rank has joined under this name (boot->prefix), so that a new group never reads
 * what was published for an earlier one. */
#include "comm/bootstrap/peer_info.h"

#include "comm/bootstrap/process.h"
#include "comm/bootstrap/store/store.h"
#include "comm/bootstrap/waiting.h"
#include "comm/core/tree.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROTOCOL = 8, ANSWER_MS = 1000, KEY = 256 };

/* Threads of a process are on one host, except if a test assigns them to several. */
static uint64_t host_id(const tutti__bootstrap *boot)
{
    const uint64_t id[2] = {tutti__bootstrap_in_process(boot) ? 0 : tutti__machine_id(),
                            (uint64_t)boot->comm->tuning.host};

    return tutti__hash64(id, sizeof id);
}

/* ---- Information exchanged by all ranks ----------------------------------------------------------------------- */

tutti_status tutti__peer_info_name_keys(tutti__bootstrap *boot, const char *base)
{
    const tutti__comm *comm = boot->comm;
    char key[KEY];
    int64_t times;

    snprintf(key, sizeof key, "%s/%s/%d/joined/%d", base, comm->name, comm->size, comm->rank);
    TUTTI_TRY(tutti_store_add(boot->store, key, 1, &times));
    snprintf(boot->prefix, sizeof boot->prefix, "%s/%s/%d/%lld", base, comm->name, comm->size,
             (long long)times);
    return TUTTI_OK;
}

tutti_status tutti__peer_info_fill(const tutti__bootstrap *boot, tutti__peer_info *mine)
{
    long sockets;

    TUTTI_TRY(tutti__env_int(TUTTI__ENV_SOCKETS_PER_PAIR, 1, TUTTI__MAX_SOCKETS, &sockets));
    mine->protocol = PROTOCOL;
    mine->bytes = sizeof *mine;
    mine->host_id = host_id(boot);
    mine->pid = (int64_t)getpid();
    mine->tcp = boot->tcp;
    mine->sockets = (uint32_t)sockets;
    mine->world_rank = boot->comm->peers[boot->comm->rank].world_rank;
    mine->heartbeat_ms = boot->heartbeat_ms;
    snprintf(mine->version, sizeof mine->version, "%s", TUTTI_VERSION);
    gethostname(mine->host, sizeof mine->host - 1);
    randombytes_buf(&mine->nonce, sizeof mine->nonce);
    mine->choices = boot->comm->choices;
    mine->switches = boot->switches;
    return TUTTI_OK;
}

static void write_key(const tutti__bootstrap *boot, int rank, char key[KEY])
{
    snprintf(key, KEY, "%s/rank/%d", boot->prefix, rank);
}

/* TIMEOUT: it has not; IO: the store is gone. It does not wait for the store, because it may be called many times. */
static tutti_status has_published(const tutti__bootstrap *boot, int rank)
{
    char key[KEY];

    write_key(boot, rank, key);
    return boot->store->ops->ask(
        boot->store, &(tutti__request){.op = TUTTI__WAIT, .key = key, .patience_ms = ANSWER_MS},
        &(tutti__reply){0});
}

/* The ranks of which this one says whether they have come: its neighbours; rank 0, if it has to wait at all, of all. */
typedef struct awaited {
    const tutti__bootstrap *boot;
    const int *ranks; /* NULL: all */
    int n;
    tutti__waiting waiting;
} awaited;

static int rank_of(const awaited *a, int i)
{
    return a->ranks ? a->ranks[i] : i + (i >= a->boot->comm->rank);
}

/* Whether this rank logs that `absent` is: of those that wait for it the first that is there, or its parent. */
static bool speaks_of(const awaited *a, int absent, int first)
{
    const int rank = a->boot->comm->rank;

    if (a->n == a->boot->comm->size - 1)
        return first == rank;
    return absent == 0 ? rank == 1 : tutti__tree_parent(absent) == rank;
}

/* Lists the ranks that have published nothing, "1, 3-7"; *speaks: this rank logs that. Returns how many are missing; -1: the store is
 * gone. */
static int list_absent(const awaited *a, char *names, size_t capacity, bool *speaks)
{
    size_t n = 0;
    int n_absent = 0, begin = -1, last = -1, first = a->boot->comm->rank; /* begin, last: a range */

    *names = '\0';
    *speaks = false;
    for (int i = 0; i <= a->n; i++) {
        int r = i < a->n ? rank_of(a, i) : -1;
        tutti_status status = i < a->n ? has_published(a->boot, r) : TUTTI_OK;
        bool absent = status == TUTTI_ERR_TIMEOUT;

        if (!absent && status != TUTTI_OK)
            return -1;
        if (begin >= 0 && !(absent && r == last + 1)) {
            if (n + 24 < capacity)
                n += (size_t)snprintf(names + n, capacity - n, last > begin ? "%s%d-%d" : "%s%d",
                                      n ? ", " : "", begin, last);
            begin = -1;
        }
        if (absent) {
            n_absent++;
            begin = begin < 0 ? r : begin;
            last = r;
        } else if (r >= 0 && r < first) {
            first = r;
        }
        *speaks = *speaks || (absent && speaks_of(a, r, first));
    }
    return n_absent;
}

static tutti_status fail_absent(const awaited *a)
{
    const tutti__bootstrap *boot = a->boot;
    char names[256];
    bool speaks;
    int absent = list_absent(a, names, sizeof names, &speaks);

    if (absent < 0)
        return tutti__fail(TUTTI_ERR_PEER,
                           "waited %.3g s for the other ranks, and %s is gone: the process that "
                           "hosts it gave up first; see what it says",
                           boot->comm->timeout_ms / 1e3, boot->store->where);
    return tutti__fail(TUTTI_ERR_PEER,
                       "waited %.3g s, but %d of %d ranks never came: rank%s "
                       "%s; were they started, with the "
                       "same world size and the same MASTER_ADDR and MASTER_PORT?",
                       boot->comm->timeout_ms / 1e3, absent, boot->comm->size,
                       absent == 1 ? "" : "s", names);
}

/* Preserves the thread's message. */
static void say_absent(const awaited *a)
{
    const tutti__bootstrap *boot = a->boot;
    char names[256], message[1024];
    bool speaks;
    int absent;

    snprintf(message, sizeof message, "%s", tutti_last_error());
    absent = list_absent(a, names, sizeof names, &speaks);
    (void)tutti__fail_again(TUTTI_OK, message);
    if (absent <= 0 || !speaks)
        return;
    tutti_log(TUTTI_LOG_WARN, "comm",
              "group \"%s\" has waited %.0f s for rank%s %s of %d: %s not come to %s; not started, "
              "stopped, or with another world size or MASTER_ADDR? It waits for %.4g s "
              "(TUTTI_TIMEOUT_S)",
              boot->comm->name, tutti__waiting_seconds(&a->waiting), absent == 1 ? "" : "s", names,
              boot->comm->size, absent == 1 ? "it has" : "they have", boot->store->where,
              boot->comm->timeout_ms / 1e3);
}

/* How long to wait for one answer of the store: it only ends to log who is missing. */
static int wait_ms(const tutti__waiting *waiting, double deadline)
{
    double next = tutti__waiting_next(waiting);

    return tutti__poll_ms(next < deadline ? next : deadline);
}

/* A wait only ends to log who is missing. own: to be published; NULL: it is. */
static tutti_status wait_for_all(awaited *a, const tutti__request *own, tutti__wanted *wanted,
                                 int n, double deadline)
{
    char cause_key[KEY];
    tutti__cause cause = {0};
    tutti__wanted until = {cause_key, &cause, sizeof cause};
    tutti_status status;

    tutti__cause_key(a->boot, cause_key, sizeof cause_key);
    do {
        for (int i = 0; i < n; i++)
            wanted[i].bytes = sizeof(tutti__peer_info);
        status = tutti__store_exchange(a->boot->store, own, wanted, n, &until,
                                       wait_ms(&a->waiting, deadline));
        own = NULL;
        if (status == TUTTI_ERR_TIMEOUT && tutti__waiting_due(&a->waiting))
            say_absent(a);
    } while (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() < deadline);
    if (status == TUTTI_ERR_ABORTED && until.bytes == sizeof cause) { /* another rank gave up */
        cause.text[sizeof cause.text - 1] = '\0';
        return tutti__comm_fail_of(a->boot->comm, &cause);
    }
    return status == TUTTI_ERR_TIMEOUT ? fail_absent(a) : status;
}

/* Publishes this rank's, and reads those of its neighbours, all in one request to the store. */
static tutti_status read_all(awaited *a, const int *ranks, int n, tutti__peer_info *infos,
                             double deadline)
{
    const tutti__bootstrap *boot = a->boot;
    const int rank = boot->comm->rank;
    char(*keys)[KEY] = malloc(((size_t)n + 1) * sizeof *keys);
    tutti__wanted *wanted = malloc(((size_t)n + 1) * sizeof *wanted);
    tutti_status status = TUTTI_ERR_MEMORY;

    if (keys && wanted) {
        write_key(boot, rank, keys[n]);
        for (int i = 0; i < n; i++) {
            write_key(boot, ranks[i], keys[i]);
            wanted[i] = (tutti__wanted){.key = keys[i], .value = &infos[ranks[i]]};
        }
        status = wait_for_all(a,
                              &(tutti__request){.op = TUTTI__SET,
                                                .key = keys[n],
                                                .value = &infos[rank],
                                                .value_bytes = sizeof infos[rank]},
                              wanted, n, deadline);
    } else {
        (void)tutti__fail(status, "no memory for the addresses of %d neighbours", n);
    }
    for (int i = 0; i < n && status == TUTTI_OK; i++)
        if (wanted[i].bytes != sizeof infos[0])
            infos[ranks[i]].protocol = 0; /* of another version */
    free(keys);
    free(wanted);
    return status;
}

static void note_name(const tutti__bootstrap *boot, int rank, const tutti__peer_info *info)
{
    tutti__peer *peer = &boot->comm->peers[rank];

    memcpy(peer->host, info->host, sizeof peer->host);
    peer->host[sizeof peer->host - 1] = '\0';
    peer->pid = info->pid;
    peer->world_rank = info->world_rank;
}

tutti_status tutti__peer_info_exchange(const tutti__bootstrap *boot, const tutti__peer_info *mine,
                                       const int *ranks, int n, tutti__peer_info *infos,
                                       double deadline)
{
    const bool all = boot->comm->rank == 0;
    awaited a = {boot, all ? NULL : ranks, all ? boot->comm->size - 1 : n, tutti__waiting_begin()};

    infos[boot->comm->rank] = *mine;
    TUTTI_TRY(read_all(&a, ranks, n, infos, deadline));
    for (int i = 0; i < n; i++)
        if (infos[ranks[i]].protocol == PROTOCOL)
            note_name(boot, ranks[i], &infos[ranks[i]]);
    return TUTTI_OK;
}

tutti_status tutti__peer_info_check(const tutti__bootstrap *boot, const int *ranks, int n,
                                    const tutti__peer_info *infos)
{
    for (int i = 0; i < n; i++) {
        int r = ranks ? ranks[i] : i;

        if (infos[r].protocol != PROTOCOL || infos[r].bytes != sizeof infos[r] ||
            infos[r].sockets < 1 || infos[r].sockets > TUTTI__MAX_SOCKETS)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "rank %d runs another version of Tutti than rank %d, which runs %s; "
                               "all ranks need the same build",
                               r, boot->comm->rank, TUTTI_VERSION);
        if (infos[r].choices != infos[boot->comm->rank].choices)
            return tutti__fail(
                TUTTI_ERR_MISMATCH,
                "rank %d has another TUTTI_ALGORITHM, TUTTI_TUNER_FILE or TUTTI_TOPOLOGY than rank "
                "%d; ranks that choose different algorithms would wait for each other",
                r, boot->comm->rank);
    }
    return TUTTI_OK;
}

void tutti__peer_info_note(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    bool known = boot->comm->local_size > 0;

    for (int r = 0; r < boot->comm->size; r++) {
        note_name(boot, r, &infos[r]);
        if (known || infos[r].host_id != infos[boot->comm->rank].host_id)
            continue;
        boot->comm->local_rank += r < boot->comm->rank;
        boot->comm->local_size++;
    }
}
