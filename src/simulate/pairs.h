/* pairs.h -- messages between two simulated ranks, and the receives that wait for them, in order.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_SIMULATE_PAIRS_H
#define TUTTI_SIMULATE_PAIRS_H

#include "comm/algorithm/rounds.h"
#include "simulate/data.h"
#include "simulate/network.h"

/* A message under way, or there and not yet received. */
typedef struct tutti__sim_message {
    tutti__sim_packet packet;
    size_t count;
    tutti__sim_bytes *bytes;
    uint32_t place; /* among the messages of its pair */
    bool arrived;
    int next; /* in a list; -1: none */
} tutti__sim_message;

/* A receive whose message is not there. */
typedef struct tutti__sim_receive {
    tutti__coll_action action;
    int next;
} tutti__sim_receive;

/* Exists as long as anything between the two is open. */
typedef struct tutti__sim_pair {
    uint64_t key; /* 0: free */
    uint32_t sent, delivered;
    int early;                 /* messages that overtook an earlier one */
    int first, last;           /* that are there */
    int first_wait, last_wait; /* receives that wait */
} tutti__sim_pair;

typedef struct tutti__sim_pairs {
    tutti__sim_pair *table; /* open addressing */
    size_t n, capacity;     /* a power of two */
    tutti__sim_message *messages;
    tutti__sim_receive *receives;
    int n_messages, n_receives, free_message, free_receive; /* free: lists; -1: none */
} tutti__sim_pairs;

tutti_status tutti__sim_pairs_new(tutti__sim_pairs *pairs);
void tutti__sim_pairs_free(tutti__sim_pairs *pairs);
/* The pair, made if it is not there. Valid until the next call. NULL: no memory. */
tutti__sim_pair *tutti__sim_pair_of(tutti__sim_pairs *pairs, int from, int to);
/* Forgets it if nothing is open. */
void tutti__sim_pair_done(tutti__sim_pairs *pairs, tutti__sim_pair *pair);
/* An unused one's index; -1: no memory. */
int tutti__sim_new_message(tutti__sim_pairs *pairs);
int tutti__sim_new_receive(tutti__sim_pairs *pairs);
void tutti__sim_drop_message(tutti__sim_pairs *pairs, int message);
void tutti__sim_drop_receive(tutti__sim_pairs *pairs, int receive);

#endif
