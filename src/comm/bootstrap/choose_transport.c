/* choose_transport.c -- all ranks read the same information and choose the same.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/choose_transport.h"

/* True if a rank cannot share memory with those of its host; rank 0 logs that. */
static bool sharing_refused(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    int rank = 0;

    while (rank < boot->comm->size && !*infos[rank].no_sharing)
        rank++;
    if (rank == boot->comm->size)
        return false;
    if (boot->comm->rank == 0)
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "group \"%s\" uses TCP, also inside hosts, which is slower: rank %d on %s cannot "
                  "share memory: %.*s; allow it (the container's seccomp profile, ulimits), or set "
                  "TUTTI_TRANSPORT=tcp to choose TCP without this line",
                  boot->comm->name, rank, infos[rank].host, (int)sizeof infos[rank].no_sharing,
                  infos[rank].no_sharing);
    return true;
}

/* The longest heartbeat is used by all; if a rank has none, as under a debugger, none is used. */
tutti__transport_plan tutti__choose(const tutti__bootstrap *boot, const tutti__peer_info *infos)
{
    tutti__transport_plan p = {.heartbeat_ms = infos[0].heartbeat_ms};
    int n_hosts = 0;

    for (int r = 0; r < boot->comm->size; r++) {
        int theirs = infos[r].heartbeat_ms, first = 0;

        while (infos[first].host_id != infos[r].host_id)
            first++;
        n_hosts += first == r;
        p.tcp = p.tcp || infos[r].tcp;
        p.heartbeat_ms = theirs == 0 || p.heartbeat_ms == 0 ? 0
                         : theirs > p.heartbeat_ms          ? theirs
                                                            : p.heartbeat_ms;
    }
    p.tcp = p.tcp || sharing_refused(boot, infos);
    p.shared = n_hosts == 1 && !p.tcp;
    p.hosts = n_hosts > 1 && n_hosts < boot->comm->size && !p.tcp;
    p.n_connections = p.shared || boot->mpi ? 1 : 1 + (int)infos[0].sockets;
    return p;
}
