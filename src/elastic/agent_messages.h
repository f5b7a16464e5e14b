/* agent_messages.h -- the messages between a worker and the agent that started it.   SPDX-License-Identifier: MIT
 *
 * Datagrams over a pair of SOCK_SEQPACKET sockets; the worker's end is the descriptor TUTTI_AGENT_FD. Both ends are on
 * one host; `protocol` rejects other versions of the launcher. A worker that never sends a message is not elastic, and its death
 * fails the round. */
#ifndef TUTTI_ELASTIC_AGENT_MESSAGES_H
#define TUTTI_ELASTIC_AGENT_MESSAGES_H

#include "base/base.h"

#include <stddef.h>
#include <string.h>

/* Fault injection: of the eventfd in TUTTI_CHAOS_FLIP, to which a worker adds 1 for a bit that it has flipped, and this for one that it
 * should have and could not. */
#define TUTTI__FLIP_MISSED ((uint64_t)1 << 32)

enum { TUTTI__AGENT_PROTOCOL = 4, TUTTI__AGENT_MAX_LOST = 16, TUTTI__AGENT_SETTINGS = 4096 };

typedef enum tutti__worker_message_kind {
    TUTTI__WORKER_READY,     /* in no group, waits for a generation */
    TUTTI__WORKER_COMMITTED, /* has committed `step` */
    TUTTI__WORKER_LEAVES,    /* ends normally, and the job continues without it */
    TUTTI__WORKER_FINISHED,  /* all steps are done. From rank 0: others are no longer replaced */
    TUTTI__WORKER_FAILS      /* ends with a failure that its replacement would have too */
} tutti__worker_message_kind;

/* In place of a step: it has no state, because a share of it was lost with its last generation, to whose other members this
 * applies as well. */
enum { TUTTI__STATE_WAS_SHARED = -2 };

typedef struct tutti__worker_message {
    uint32_t protocol, kind;
    uint32_t generation; /* its last one; 0: none yet */
    int32_t shards;      /* the most members that a generation can have */
    int64_t step;        /* committed; -1: it has no state; or TUTTI__STATE_WAS_SHARED */
    /* ranks of that generation that it considers dead */
    int32_t n_lost, lost[TUTTI__AGENT_MAX_LOST];
    char build[128]; /* library version and instruction set: members must agree */
    char why[256];   /* why that generation ended for it; "" if it did not */
    /* READY: what all members must have alike, as "NAME: VALUE;" for each. "": it does not say */
    char settings[TUTTI__AGENT_SETTINGS];
} tutti__worker_message;

/* Sent is what is in use: without the rest of the settings, which most messages have none of. */
enum { TUTTI__WORKER_MESSAGE_LEAST = offsetof(tutti__worker_message, settings) + 1 };

static inline size_t tutti__worker_message_bytes(const tutti__worker_message *message)
{
    return TUTTI__WORKER_MESSAGE_LEAST + strlen(message->settings);
}

typedef enum tutti__agent_message_kind {
    TUTTI__AGENT_GENERATION, /* form this group */
    TUTTI__AGENT_REGROUP, /* a worker waits to join: end the generation when the current step is committed */
    TUTTI__AGENT_LEAVE,   /* end this worker when the current step is committed */
    TUTTI__AGENT_REFUSED, /* cannot be a member because of `why`: end with exit code 2 */
    TUTTI__AGENT_LAST     /* no other generation follows: end if in none */
} tutti__agent_message_kind;

typedef struct tutti__agent_message {
    uint32_t protocol, kind;
    uint32_t generation; /* from 1, one more each time */
    int32_t rank, size, local_rank, local_size;
    int32_t attempt; /* of the round, for the store */
    int32_t fresh;   /* no member has the state */
    /* fresh, but the job had begun: all workers with the state have died, read a checkpoint */
    int32_t committed;
    int32_t left;    /* workers that have left the job in an orderly way so far */
    char store[288]; /* host:port */
    char why[256];
} tutti__agent_message;

#endif
