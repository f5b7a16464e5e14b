/* cause.c -- why a group cannot be made: the first cause that any rank finds, kept in the store.   SPDX-License-Identifier: MIT
 *
 * A rank that gives up closes its connections, so its neighbours miss it before they can know why. The law is that a cause is in the
 * store, and on the connections, before they close; who misses a rank asks the store first. */
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/launcher_cause.h"
#include "comm/bootstrap/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How long to wait for the store's answer. */
enum { ANSWER_MS = 1000 };

bool tutti__bootstrap_in_process(const tutti__bootstrap *boot)
{
    return boot->store && boot->store->in_process;
}

/* False: it has no such value, or does not answer. */
static bool ask(const tutti__bootstrap *boot, const tutti__request *request, tutti__cause *known)
{
    tutti__reply reply = {.value = known, .bytes = sizeof *known};

    if (boot->store->ops->ask(boot->store, request, &reply) != TUTTI_OK ||
        reply.bytes != sizeof *known)
        return false;
    known->text[sizeof known->text - 1] = '\0';
    return true;
}

/* Its rank here; -1: not known. The ranks of a group that contains the whole job are the job's, also before their names are known. */
static int rank_in(const tutti__comm *comm, int world_rank)
{
    for (int r = 0; r < comm->size; r++)
        if (comm->peers[r].pid != 0 && comm->peers[r].world_rank == world_rank)
            return r;
    return comm->peers[comm->rank].world_rank == comm->rank && world_rank < comm->size ? world_rank
                                                                                       : -1;
}

static void name_key(char *key, size_t capacity, int attempt)
{
    snprintf(key, capacity, "launcher/%d/cause", attempt);
}

tutti_status tutti__launcher_cause_leave(tutti_store *store, int attempt, int rank,
                                         const char *text)
{
    tutti__cause cause = {.status = TUTTI_ERR_PEER, .culprit = rank};
    char key[64];

    snprintf(cause.text, sizeof cause.text, "%s", text);
    name_key(key, sizeof key, attempt);
    return tutti_store_set(store, key, &cause, sizeof cause);
}

/* The launcher has seen which process failed first, and ends the others. */
static void ask_launcher(const tutti__bootstrap *boot, tutti__cause *cause)
{
    tutti__cause known;
    char key[64];

    name_key(key, sizeof key, boot->attempt);
    if (!ask(boot, &(tutti__request){.op = TUTTI__GET, .key = key, .patience_ms = ANSWER_MS},
             &known))
        return;
    *cause = known;
    cause->culprit = rank_in(boot->comm, known.culprit);
}

/* All need it: a rank that refuses connections now has ended because of that. One that closes a connection says why first. */
static void note_store_lost(const tutti__bootstrap *boot, tutti__cause *cause)
{
    *cause = (tutti__cause){.status = TUTTI_ERR_PEER, .culprit = boot->launched ? -1 : 0};
    snprintf(cause->text, sizeof cause->text,
             "%s is gone: the process that hosts it (%s) ended, or its host went away; see its "
             "last lines for the reason",
             boot->store->where, boot->launched ? "the launcher's" : "rank 0");
}

void tutti__cause_key(const tutti__bootstrap *boot, char *key, size_t capacity)
{
    snprintf(key, capacity, "%s/cause", boot->prefix);
}

void tutti__bootstrap_agree(void *self, tutti__cause *cause)
{
    const tutti__bootstrap *boot = self;
    const tutti_status status = tutti__last_status();
    char key[256], message[2048];
    tutti__cause known;

    if (atomic_load(&boot->made) || !boot->store)
        return;
    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (boot->launched && !boot->store->lost)
        ask_launcher(boot, cause);
    tutti__cause_key(boot, key, sizeof key);
    if (!boot->store->lost && ask(boot,
                                  &(tutti__request){.op = TUTTI__COMPARE_SET,
                                                    .key = key,
                                                    .value = cause,
                                                    .value_bytes = sizeof *cause,
                                                    .patience_ms = ANSWER_MS},
                                  &known))
        *cause = known;
    else if (boot->store->lost && !boot->connected)
        note_store_lost(boot, cause);
    (void)tutti__fail_again(status, message);
}

/* ---- Connections --------------------------------------------------------------------------------------------------- */

/* NULL: the error is not for want of something of this process or host. */
static const char *remedy_for(int error)
{
    switch (error) {
    case EMFILE:
        return "raise its limit of open files (ulimit -n)";
    case ENFILE:
        return "raise its host's limit of open files (sysctl fs.file-max)";
    case ENOMEM:
    case ENOBUFS:
        return "its host has no memory left for it";
    default:
        return NULL;
    }
}

bool tutti__is_own_error(int error)
{
    return remedy_for(error) != NULL;
}

/* verb: what this rank cannot do with the other one. */
static tutti__cause cause_of(const tutti__comm *comm, int rank, const char *verb,
                             const tutti__address *at, int error)
{
    const char *remedy = remedy_for(error);
    tutti__cause cause = {.status = remedy ? TUTTI_ERR_MEMORY : TUTTI_ERR_PEER,
                          .culprit = remedy ? comm->rank : rank};
    char who[128], peer[128], where[80] = "";

    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    tutti__comm_peer_text(comm, rank, peer, sizeof peer);
    if (at)
        tutti__address_text(at, where, sizeof where);
    snprintf(cause.text, sizeof cause.text, "%s cannot %s %s%s%s: %s%s%s", who, verb, peer,
             at ? " at " : "", where, strerror(error), remedy ? "; " : ": ",
             remedy ? remedy
                    : "is a firewall or a link between them? (all TCP ports must be open between "
                      "the hosts of a job)");
    return cause;
}

tutti__cause tutti__connect_cause(const tutti__comm *comm, int rank, const tutti__address *at,
                                  int error)
{
    return cause_of(comm, rank, "connect to", at, error);
}

tutti__cause tutti__own_cause(const tutti__comm *comm, int rank, bool sends, int error)
{
    return cause_of(comm, rank, sends ? "send to" : "receive from", NULL, error);
}

tutti_status tutti__fail_connect(tutti__comm *comm, int rank, const tutti__address *at, int error)
{
    const tutti__cause cause = tutti__connect_cause(comm, rank, at, error);

    return tutti__comm_fail_of(comm, &cause);
}
