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
                  "group \"%s\" uses %s, also inside hosts, which is slower: rank %d on %s cannot "
                  "share memory: %.*s; allow it (the container's seccomp profile, ulimits), or set "
                  "TUTTI_TRANSPORT=tcp to choose that without this line",
                  boot->comm->name, boot->mpi ? "MPI" : "TCP", rank, infos[rank].host,
                  (int)sizeof infos[rank].no_sharing, infos[rank].no_sharing);
    return true;
}

tutti__transport_plan tutti__choose_part(const tutti__bootstrap *boot,
                                         const tutti__transport_plan *whole,
                                         const uint64_t *host_ids, int n)
{
    tutti__transport_plan p = *whole;
    int n_hosts = 0;

    for (int r = 0; r < n; r++) {
        int first = 0;

        if (r > 0 && host_ids[r] == host_ids[r - 1])
            continue;
        while (host_ids[first] != host_ids[r])
            first++;
        n_hosts += first == r;
    }
    p.shared = n_hosts == 1 && !p.tcp;
    p.hosts = n_hosts > 1 && n_hosts < n && !p.tcp;
    p.n_connections = p.shared || boot->mpi ? 1 : 1 + p.sockets;
    return p;
}

/* The longest heartbeat is used by all; if a rank has none, as under a debugger, none is used. */
tutti__transport_plan tutti__choose(const tutti__bootstrap *boot, const tutti__peer_info *infos,
                                    const uint64_t *host_ids)
{
    tutti__transport_plan p = {.heartbeat_ms = infos[0].heartbeat_ms,
                               .sockets = (int)infos[0].sockets};

    for (int r = 0; r < boot->comm->size; r++) {
        int theirs = infos[r].heartbeat_ms;

        p.tcp = p.tcp || infos[r].tcp;
        p.heartbeat_ms = theirs == 0 || p.heartbeat_ms == 0 ? 0
                         : theirs > p.heartbeat_ms          ? theirs
                                                            : p.heartbeat_ms;
    }
    p.tcp = p.tcp || sharing_refused(boot, infos);
    return tutti__choose_part(boot, &p, host_ids, boot->comm->size);
}
