/* peer_info.c -- who and where each rank is.   SPDX-License-Identifier: MIT
 *
 * Keys in the store carry how often this rank has joined under this name (boot->prefix), so that a group made anew never
 * reads what was published for the one before. */
#include "comm/bootstrap/peer_info.h"

#include "comm/bootstrap/process.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROTOCOL = 4, LOOK_MS = 50 };

/* Threads of a process are on one host, and where a test says so ranks are on several. */
static uint64_t host_id(const tutti__bootstrap *boot)
{
    const uint64_t id[2] = {tutti__bootstrap_in_process(boot) ? 0 : tutti__machine_id(),
                            (uint64_t)boot->comm->tuning.host};

    return tutti__hash64(id, sizeof id);
}

/* ---- What all ranks know of each other -------------------------------------------------------------------- */

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
    return TUTTI_OK;
}

static tutti_status publish(const tutti__bootstrap *boot, const tutti__peer_info *mine)
{
    char key[256];

    snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, boot->comm->rank);
    return tutti_store_set(boot->store, key, mine, sizeof *mine);
}

static tutti_status fail_absent(const tutti__bootstrap *boot, int first)
{
    char key[256], names[256] = "";
    size_t n = 0;
    int absent = 0;

    for (int r = first; r < boot->comm->size; r++) {
        snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, r);
        if (tutti_store_wait(boot->store, key, 0) != TUTTI_ERR_TIMEOUT)
            continue;
        absent++;
        if (n + 16 < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%d", n ? ", " : "", r);
    }
    return tutti__fail(TUTTI_ERR_PEER,
                       "waited %.3g s, but %d of %d ranks never came: rank%s "
                       "%s; were they started, with the "
                       "same world size and the same MASTER_ADDR and MASTER_PORT?",
                       boot->comm->timeout_ms / 1e3, absent, boot->comm->size,
                       absent == 1 ? "" : "s", names);
}

/* In a split, a rank that dies before it publishes is seen by the parent group. */
static tutti_status read_one(const tutti__bootstrap *boot, const char *key,
                             tutti__peer_info *theirs, size_t *bytes, double deadline)
{
    size_t capacity = *bytes;
    tutti_status status;

    do {
        int wait = tutti__poll_ms(deadline);

        *bytes = capacity;
        if (boot->comm->parent && tutti__comm_failed(boot->comm->parent))
            return tutti__comm_error(boot->comm->parent, NULL);
        status = tutti_store_get(boot->store, key, theirs, bytes,
                                 boot->comm->parent && wait > LOOK_MS ? LOOK_MS : wait);
    } while (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() < deadline);
    return status;
}

static tutti_status read_all(const tutti__bootstrap *boot, tutti__peer_info *infos, double deadline)
{
    char key[256];

    for (int r = 0; r < boot->comm->size; r++) {
        size_t bytes = sizeof infos[r];
        tutti_status status;

        snprintf(key, sizeof key, "%s/rank/%d", boot->prefix, r);
        status = read_one(boot, key, &infos[r], &bytes, deadline);
        if (status == TUTTI_ERR_TIMEOUT && tutti__now_ms() >= deadline)
            return fail_absent(boot, r);
        if (status != TUTTI_OK && status != TUTTI_ERR_ARG)
            return status;
        if (status == TUTTI_ERR_ARG || bytes != sizeof infos[r])
            infos[r].protocol = 0;
    }
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
    return TUTTI_OK;
}

void tutti__peer_info_note(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    bool told = boot->comm->local_size > 0;

    boot->comm->id = tutti__hash64(infos, (size_t)boot->comm->size * sizeof *infos) ^
                     tutti__hash64(boot->comm->name, strlen(boot->comm->name));
    for (int r = 0; r < boot->comm->size; r++) {
        memcpy(boot->comm->peers[r].host, infos[r].host, sizeof boot->comm->peers[r].host);
        boot->comm->peers[r].host[sizeof boot->comm->peers[r].host - 1] = '\0';
        boot->comm->peers[r].pid = infos[r].pid;
        boot->comm->peers[r].world_rank = infos[r].world_rank;
        if (told || infos[r].host_id != infos[boot->comm->rank].host_id)
            continue;
        boot->comm->local_rank += r < boot->comm->rank;
        boot->comm->local_size++;
    }
}
