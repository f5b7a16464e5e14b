/* lookup.c -- resolves a host's name in a thread.   SPDX-License-Identifier: MIT */
#include "launch/message/lookup.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNING, DONE, ABANDONED };

struct tutti__lookup {
    _Atomic int state; /* the second of the thread and its user frees it */
    char host[256], message[512];
    int port;
    tutti__address address;
    tutti_status status;
};

static void *look_up(void *arg)
{
    tutti__lookup *l = arg;

    l->status = tutti__resolve(&l->address, l->host, l->port);
    if (l->status != TUTTI_OK)
        snprintf(l->message, sizeof l->message, "%s", tutti_last_error());
    if (atomic_exchange(&l->state, DONE) == ABANDONED)
        free(l);
    return NULL;
}

tutti__lookup *tutti__lookup_begin(const char *host, int port)
{
    tutti__lookup *l = tutti__alloc(sizeof *l);
    pthread_t thread;
    int error;

    if (!l)
        return NULL;
    snprintf(l->host, sizeof l->host, "%s", host);
    l->port = port;
    atomic_init(&l->state, RUNNING);
    error = tutti__thread_start(&thread, look_up, l);
    if (error) {
        free(l);
        (void)tutti__fail_errno(error, "no thread to look for host \"%s\"", host);
        return NULL;
    }
    pthread_detach(thread);
    return l;
}

tutti_status tutti__lookup_end(tutti__lookup **lookup_p, tutti__address *address)
{
    tutti__lookup *l = *lookup_p;
    tutti_status status;

    if (atomic_load(&l->state) == RUNNING)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "no name server has answered for host \"%s\" yet",
                           l->host);
    *address = l->address;
    status = l->status == TUTTI_OK ? TUTTI_OK : tutti__fail(l->status, "%s", l->message);
    free(l);
    *lookup_p = NULL;
    return status;
}

void tutti__lookup_abandon(tutti__lookup *l)
{
    if (l && atomic_exchange(&l->state, ABANDONED) == DONE)
        free(l);
}
