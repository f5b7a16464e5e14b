/* peer_info.c -- each rank's host and addresses.   SPDX-License-Identifier: MIT
 *
 * Keys in the store contain how often this rank has joined under this name (boot->prefix), so that a new group never reads
 * what was published for an earlier one. */
#include "comm/bootstrap/peer_info.h"

#include "comm/bootstrap/process.h"
#include "comm/bootstrap/store/store.h"
#include "comm/bootstrap/waiting.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROTOCOL = 7, LOOK_MS = 50, ANSWER_MS = 1000 };

/* Threads of a process are on one host, except if a test assigns them to several. */
static uint64_t host_id(const tutti__bootstrap *boot)
{
    const uint64_t id[2] = {tutti__bootstrap_in_process(boot) ? 0 : tutti__machine_id(),
                            (uint64_t)boot->comm->tuning.host};

    return tutti__hash64(id, sizeof id);
}

/* ---- Information exchanged by all ranks ----------------------------------------------------------------------- */

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
    mine->choices = boot->comm->choices;
    snprintf(mine->version, sizeof mine->version, "%s", TUTTI_VERSION);
    gethostname(mine->host, sizeof mine->host - 1);
    randombytes_buf(&mine->nonce, sizeof mine->nonce);
    return TUTTI_OK;
}

static tutti_status publish(const tutti__bootstrap *boot, const tutti__peer_info *mine)
{
    char key[256];

    snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, boot->comm->rank);
    return tutti_store_set(boot->store, key, mine, sizeof *mine);
}

/* TIMEOUT: it has not; IO: the store is gone. It does not wait for the store, because it may be called many times. */
static tutti_status has_published(const tutti__bootstrap *boot, int rank)
{
    char key[256];

    snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, rank);
    return boot->store->ops->ask(
        boot->store, &(tutti__request){.op = TUTTI__WAIT, .key = key, .patience_ms = ANSWER_MS},
        &(tutti__reply){0});
}

/* Lists the ranks that have published nothing, "1, 3-7"; *first: the first that has. Returns how many are missing; -1: the
 * store is gone. */
static int list_absent(const tutti__bootstrap *boot, char *names, size_t capacity, int *first)
{
    size_t n = 0;
    int absent = 0, begin = -1; /* begin: of a range */

    *names = '\0';
    *first = boot->comm->rank;
    for (int r = 0; r <= boot->comm->size; r++) {
        bool here = r == boot->comm->size || r == boot->comm->rank;
        tutti_status status = here ? TUTTI_OK : has_published(boot, r);

        if (status == TUTTI_ERR_TIMEOUT) {
            absent++;
            begin = begin < 0 ? r : begin;
            continue;
        }
        if (status != TUTTI_OK)
            return -1;
        *first = r < *first ? r : *first;
        if (begin >= 0 && n + 24 < capacity)
            n += (size_t)snprintf(names + n, capacity - n, r - begin > 1 ? "%s%d-%d" : "%s%d",
                                  n ? ", " : "", begin, r - 1);
        begin = -1;
    }
    return absent;
}

static tutti_status fail_absent(const tutti__bootstrap *boot)
{
    char names[256];
    int first, absent = list_absent(boot, names, sizeof names, &first);

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

/* Logged by the first rank that is there. Preserves the thread's message. */
static void say_absent(const tutti__bootstrap *boot, const tutti__waiting *waiting)
{
    char names[256], message[1024];
    int first, absent;

    snprintf(message, sizeof message, "%s", tutti_last_error());
    absent = list_absent(boot, names, sizeof names, &first);
    (void)tutti__fail_again(TUTTI_OK, message);
    if (absent <= 0 || first != boot->comm->rank)
        return;
    tutti_log(TUTTI_LOG_WARN, "comm",
              "group \"%s\" has waited %.0f s for rank%s %s of %d: %s not come to %s; not started, "
              "stopped, or with another world size or MASTER_ADDR? It waits for %.4g s "
              "(TUTTI_TIMEOUT_S)",
              boot->comm->name, tutti__waiting_seconds(waiting), absent == 1 ? "" : "s", names,
              boot->comm->size, absent == 1 ? "it has" : "they have", boot->store->where,
              boot->comm->timeout_ms / 1e3);
}

/* How long to wait for one answer of the store. In a split, the wait is short, to check whether the control channel has
 * noticed a death; else it only ends to log who is missing. */
static int wait_ms(const tutti__bootstrap *boot, const tutti__waiting *waiting, double deadline)
{
    double next = tutti__waiting_next(waiting);
    int wait = tutti__poll_ms(next < deadline ? next : deadline);

    return boot->comm->parent && wait > LOOK_MS ? LOOK_MS : wait;
}

static tutti_status read_one(const tutti__bootstrap *boot, int rank, tutti__peer_info *theirs,
                             tutti__waiting *waiting, double deadline)
{
    size_t bytes;
    char key[256];
    tutti_status status;

    snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, rank);
    do {
        bytes = sizeof *theirs;
        if (boot->comm->parent && tutti__comm_failed(boot->comm))
            return tutti__comm_error(boot->comm, NULL);
        status =
            tutti_store_get(boot->store, key, theirs, &bytes, wait_ms(boot, waiting, deadline));
        if (status == TUTTI_ERR_TIMEOUT && tutti__waiting_due(waiting))
            say_absent(boot, waiting);
    } while (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() < deadline);
    if (status == TUTTI_ERR_TIMEOUT)
        return fail_absent(boot);
    if (status == TUTTI_ERR_ARG || (status == TUTTI_OK && bytes != sizeof *theirs)) {
        theirs->protocol = 0; /* of another version */
        return TUTTI_OK;
    }
    return status;
}

static tutti_status read_all(const tutti__bootstrap *boot, tutti__peer_info *infos, double deadline)
{
    tutti__waiting waiting = tutti__waiting_begin();

    for (int r = 0; r < boot->comm->size; r++)
        TUTTI_TRY(read_one(boot, r, &infos[r], &waiting, deadline));
    return TUTTI_OK;
}

tutti_status tutti__peer_info_exchange(const tutti__bootstrap *boot, const tutti__peer_info *mine,
                                       tutti__peer_info *infos, double deadline)
{
    TUTTI_TRY(publish(boot, mine));
    return read_all(boot, infos, deadline);
}

tutti_status tutti__peer_info_check(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    for (int r = 0; r < boot->comm->size; r++)
        if (infos[r].protocol != PROTOCOL || infos[r].bytes != sizeof infos[r] ||
            infos[r].sockets < 1 || infos[r].sockets > TUTTI__MAX_SOCKETS)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "rank %d runs another version of Tutti than rank %d, which runs %s; "
                               "all ranks need the same build",
                               r, boot->comm->rank, TUTTI_VERSION);
    for (int r = 0; r < boot->comm->size; r++)
        if (infos[r].choices != infos[boot->comm->rank].choices)
            return tutti__fail(
                TUTTI_ERR_MISMATCH,
                "rank %d has another TUTTI_ALGORITHM or TUTTI_TUNER_FILE than rank %d; "
                "ranks that choose different algorithms would wait for each other",
                r, boot->comm->rank);
    return TUTTI_OK;
}

void tutti__peer_info_note(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    bool known = boot->comm->local_size > 0;

    boot->comm->id = tutti__hash64(infos, (size_t)boot->comm->size * sizeof *infos) ^
                     tutti__hash64(boot->comm->name, strlen(boot->comm->name));
    for (int r = 0; r < boot->comm->size; r++) {
        memcpy(boot->comm->peers[r].host, infos[r].host, sizeof boot->comm->peers[r].host);
        boot->comm->peers[r].host[sizeof boot->comm->peers[r].host - 1] = '\0';
        boot->comm->peers[r].pid = infos[r].pid;
        boot->comm->peers[r].world_rank = infos[r].world_rank;
        if (known || infos[r].host_id != infos[boot->comm->rank].host_id)
            continue;
        boot->comm->local_rank += r < boot->comm->rank;
        boot->comm->local_size++;
    }
}
