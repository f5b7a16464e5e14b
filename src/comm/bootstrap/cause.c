/* cause.c -- stores why a communicator could not be made, for ranks that wait for this one.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/store/store.h"

#include <stdio.h>
#include <string.h>

enum { NOTE_MS = 300 };

bool tutti__bootstrap_in_process(const tutti__bootstrap *boot)
{
    return boot->store && boot->store->in_process;
}

void tutti__bootstrap_note_cause(const tutti__bootstrap *boot, tutti_status status,
                                 tutti__cause *first)
{
    tutti__cause own = {.status = status, .culprit = boot->comm->rank}, known;
    tutti__reply reply = {.value = &known, .bytes = sizeof known};
    char key[256], who[128], message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (atomic_load(&boot->comm->failed)) {
        own = boot->comm->cause;
    } else if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP) {
        snprintf(own.text, sizeof own.text, "%.1000s", message);
    } else { /* the others only notice that this rank is gone */
        tutti__comm_peer_text(boot->comm, boot->comm->rank, who, sizeof who);
        snprintf(own.text, sizeof own.text, "%s: %.800s", who, message);
    }
    snprintf(key, sizeof key, "%s/cause", boot->prefix);
    if (first)
        *first = own;
    if (boot->store &&
        boot->store->ops->ask(boot->store,
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
