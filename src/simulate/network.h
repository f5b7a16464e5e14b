/* network.h -- messages between simulated ranks: when each arrives, and what the links carried.   SPDX-License-Identifier: MIT
 *
 * Virtual time in microseconds. A link carries one message after another, in the order in which their first bytes reach it, and passes
 * them on as they come (cut-through): a message that meets no other takes its latencies, and its bytes on the slowest of its links.
 * Messages from one rank to another arrive in order. All is a function of what was sent, and of the seed. */
#ifndef TUTTI_SIMULATE_NETWORK_H
#define TUTTI_SIMULATE_NETWORK_H

#include "simulate/links.h"

enum { TUTTI__PATH_MOST = 4 };

/* What is between two ranks may be cut for a while, or for good. */
typedef struct tutti__cut {
    int first, last; /* hosts that are cut from all others */
    double from_us, to_us;
} tutti__cut;

typedef struct tutti__disturbance {
    uint64_t seed;
    double
        jitter_us; /* the mean of what is added to a message's latency, exponentially distributed */
    double loss;   /* the probability that a message must be sent again */
    const tutti__cut *cuts;
    int n_cuts;
} tutti__disturbance;

/* A direction of a link, or a core's copying. */
typedef struct tutti__sim_link {
    double free_us; /* when it has carried all that has reached it */
    uint64_t bytes, messages;
} tutti__sim_link;

typedef struct tutti__level_use {
    uint64_t bytes, messages;  /* between ranks of which this is the level */
    uint64_t carried, busiest; /* by the level's links together, and by the busiest of them */
} tutti__level_use;

typedef struct tutti__network {
    const tutti__sim_links *links;
    tutti__machines machines;
    const tutti__disturbance *disturbance;
    tutti__sim_link *core;               /* of each rank */
    tutti__sim_link *memory;             /* of each host */
    tutti__sim_link *host_out, *host_in; /* of each host */
    tutti__sim_link *switch_out, *switch_in;
    tutti__level_use level[TUTTI__LEVELS];
    uint64_t n_lost;
} tutti__network;

/* A message under way: at most one link is ahead of its first byte. */
typedef struct tutti__sim_packet {
    int from, to;
    uint64_t bytes, number; /* number: unique, for chance */
    tutti__sim_link *path[TUTTI__PATH_MOST];
    double gbps[TUTTI__PATH_MOST], latency_us[TUTTI__PATH_MOST]; /* latency: before that link */
    int n_path, at;
    double whole_us; /* when its last byte has passed the links so far, at the end of the path */
} tutti__sim_packet;

tutti_status tutti__network_new(tutti__network *network, const tutti__sim_links *links,
                                const tutti__machines *machines,
                                const tutti__disturbance *disturbance);
void tutti__network_free(tutti__network *network);

/* At `now`, a message of packet->from, to, bytes and number: returns when it reaches its first link. */
double tutti__network_begin(tutti__network *network, tutti__sim_packet *packet, double now_us);
/* At that time: its next link takes it. Returns when it reaches the one after, or, *arrived_p, when it is there as a whole. */
double tutti__network_pass(tutti__network *network, tutti__sim_packet *packet, double now_us,
                           bool *arrived_p);
/* The use of each level, with what its links had carried at that time. */
void tutti__network_use(const tutti__network *network, double now_us,
                        tutti__level_use use[TUTTI__LEVELS]);
/* Whether hosts are cut from each other at this time; *until_p: to when. */
bool tutti__network_is_cut(const tutti__network *network, int rank, int other, double now_us,
                           double *until_p);

#endif
