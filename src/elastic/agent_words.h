/* agent_words.h -- what a worker and the agent that started it tell each other about groups.   SPDX-License-Identifier: MIT
 *
 * Fixed-size datagrams over a pair of SOCK_SEQPACKET sockets; the worker's end is the descriptor TUTTI_AGENT_FD. Both ends are of
 * one host and one build of the launcher; `protocol` refuses others. A worker that never speaks is none of the elastic ones, and
 * its death is the round's failure. */
#ifndef TUTTI_ELASTIC_AGENT_WORDS_H
#define TUTTI_ELASTIC_AGENT_WORDS_H

#include "base/base.h"

enum { TUTTI__AGENT_PROTOCOL = 1, TUTTI__AGENT_MAX_LOST = 16 };

typedef enum tutti__worker_word_kind {
    TUTTI__WORKER_READY,     /* is in no group, and waits for a generation */
    TUTTI__WORKER_COMMITTED, /* has committed `step` */
    TUTTI__WORKER_LEAVES,    /* ends in good order, and the job goes on without it */
    TUTTI__WORKER_FINISHED   /* the job's work is done: nobody is replaced any more */
} tutti__worker_word_kind;

typedef struct tutti__worker_word {
    uint32_t protocol, kind;
    uint32_t generation; /* the last that it was in; 0: none yet */
    int32_t shards;      /* no generation has more members */
    int64_t step;        /* committed; -1: it has no state */
    int32_t n_lost,
        lost[TUTTI__AGENT_MAX_LOST]; /* ranks of that generation that it takes for dead */
    char build[128];                 /* library version and instruction set: members must agree */
    char why[256];                   /* what ended that generation for it, in words; "" */
} tutti__worker_word;

typedef enum tutti__agent_word_kind {
    TUTTI__AGENT_GENERATION, /* form this group */
    TUTTI__AGENT_REGROUP, /* somebody waits to join: end the generation when the step at hand is committed */
    TUTTI__AGENT_LEAVE,  /* end this worker when the step at hand is committed */
    TUTTI__AGENT_REFUSED /* cannot be a member: `why`; end with exit code 2 */
} tutti__agent_word_kind;

typedef struct tutti__agent_word {
    uint32_t protocol, kind;
    uint32_t generation; /* from 1, one more each time */
    int32_t rank, size, local_rank, local_size;
    int32_t attempt; /* that the store asks for */
    int32_t fresh;   /* no member has the state */
    int32_t
        committed; /* fresh, but the job had begun: all who had the state have died, a checkpoint is to be taken up */
    char store[288]; /* host:port */
    char why[256];
} tutti__agent_word;

#endif
