/* listen.c -- a unix socket for the ranks of this host, TCP for others.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/listen.h"

#include "comm/bootstrap/store/store.h"

#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

static tutti_status tcp_address(const tutti__bootstrap *boot, tutti__address *address)
{
    const char *interfaces = tutti__env_text(TUTTI__ENV_SOCKET_IFNAME);

    if (boot->mpi)
        return tutti__interface_address(address, *interfaces ? interfaces : "^", 0);
    if (*interfaces)
        return tutti__interface_address(address, interfaces, boot->store->address.at.ss_family);
    if (boot->store->address.length == 0)
        return tutti__resolve(address, "127.0.0.1", 0);
    /* the local address through which the store, and so rank 0, is reached */
    *address = boot->store->address;
    tutti__address_set_port(address, 0);
    return TUTTI_OK;
}

tutti_status tutti__listeners_open(const tutti__bootstrap *boot, tutti__peer_info *mine,
                                   tutti__listeners *at)
{
    const tutti__tuning *tuning = &boot->comm->tuning;

    *at = (tutti__listeners){-1, -1};
    if (!boot->tcp && !*mine->no_sharing) {
        /* Binding without a name makes the kernel choose an abstract one. */
        mine->local_at.at.ss_family = AF_UNIX;
        mine->local_at.length = sizeof(sa_family_t);
        if (tutti__listen(&mine->local_at, &at->local) != TUTTI_OK)
            snprintf(mine->no_sharing, sizeof mine->no_sharing, "%.79s", tutti_last_error());
    }
    if (tutti__bootstrap_in_process(boot) && !boot->tcp && !tuning->host && at->local >= 0)
        return TUTTI_OK;
    TUTTI_TRY(tcp_address(boot, &mine->tcp_at));
    TUTTI_TRY(tutti__listen(&mine->tcp_at, &at->tcp));
    if (tuning->advertise)
        tutti__address_set_port(
            &mine->tcp_at, tuning->advertise(boot->comm->rank, tutti__address_port(&mine->tcp_at)));
    return TUTTI_OK;
}

void tutti__listeners_close(const tutti__listeners *at)
{
    if (at->local >= 0)
        close(at->local);
    if (at->tcp >= 0)
        close(at->tcp);
}
