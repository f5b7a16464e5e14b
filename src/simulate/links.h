/* links.h -- the machines of a simulation: ranks on hosts, hosts at switches, and what a message costs between them.
 * SPDX-License-Identifier: MIT
 *
 * Ranks are numbered host by host, hosts switch by switch. A message between ranks of a host is copied by the receiver's core;
 * one between hosts leaves by the link of its sender's host, which all ranks of that host share, and comes in by that of its
 * receiver's; between hosts of different switches it also passes the links of both switches. Links have two directions. */
#ifndef TUTTI_SIMULATE_LINKS_H
#define TUTTI_SIMULATE_LINKS_H

#include "base/base.h"

typedef enum tutti__level {
    TUTTI__LEVEL_CORE,   /* from core to core of a host */
    TUTTI__LEVEL_HOST,   /* from host to host of a switch */
    TUTTI__LEVEL_SWITCH, /* from switch to switch */
    TUTTI__LEVELS
} tutti__level;

typedef struct tutti__level_costs {
    double latency_us; /* from end to end; SWITCH: in addition to HOST's */
    double
        gbps; /* 1e9 bytes a second: of a core that copies; of a host's link; of a switch's link to the others */
    double message_us; /* of a core, for each message that it sends or receives */
} tutti__level_costs;

typedef struct tutti__sim_links {
    tutti__level_costs level[TUTTI__LEVELS];
    double memory_gbps; /* of all cores of a host together */
    double
        reduce_gbps; /* of a core: bytes that it copies, or of each source that it combines with another */
    double retransmit_us;    /* until a lost message is sent again */
    double heartbeat_us;     /* after which a silent host is considered lost */
    double hosts_per_switch; /* a whole number */
} tutti__sim_links;

/* The names of levels in results, and in files. */
extern const char *const tutti__level_names[TUTTI__LEVELS];

/* Those that are assumed without a file: `tutti simulate --help` states them. */
void tutti__sim_links_default(tutti__sim_links *links);
/* Replaces what the file gives: a JSON object, or the lines of tutti bench --tune. Errors: ARG for an unknown key, or a value out of its
 * range; IO, NOT_FOUND. */
tutti_status tutti__sim_links_read(tutti__sim_links *links, const char *path);

/* Ranks on hosts, equally many on each but for the last, which may have fewer. */
typedef struct tutti__machines {
    int ranks, hosts, switches;
    int per_host, per_switch; /* ranks of a host, hosts of a switch, at most */
} tutti__machines;

tutti__machines tutti__machines_of(const tutti__sim_links *links, int ranks, int hosts);
static inline int tutti__host_of(const tutti__machines *m, int rank)
{
    return rank / m->per_host;
}
tutti__level tutti__level_between(const tutti__machines *m, int rank, int other);

#endif
