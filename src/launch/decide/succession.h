/* succession.h -- which nodes an agent asks for the job when its elastic round has lost the coordinator, and when it takes the
 * coordinator's place itself.   SPDX-License-Identifier: MIT
 *
 * Nodes ask in the order of the list, starting with the lost coordinator. A node that is asked and coordinates accepts the
 * asking node; any other names a coordinator that it knows, or says that it knows none. A node without living predecessors in the
 * list becomes the coordinator, which then waits for enough others (rounds.h), and meanwhile asks these whether one of them
 * coordinates already. No input or output, no clock. */
#ifndef TUTTI_LAUNCH_SUCCESSION_H
#define TUTTI_LAUNCH_SUCCESSION_H

#include "launch/decide/rounds.h"

typedef struct tutti__succession {
    tutti__roster roster; /* the last one received */
    int id;               /* this node's, in it; 0: no list yet */
    bool may_coordinate;  /* others can reach this node */
    bool uncertain;       /* the coordinator was lost, and it is unknown whether it is dead */
    /* The search. */
    int at, asked;    /* the node being asked: its index in the list, and its id */
    int disconnects;  /* how often it disconnected */
    bool predecessor; /* a node before this one in the list is alive, in this pass */
    bool redirected;  /* the one being asked is not the one in the list, but one it named: */
    char address[TUTTI__ROSTER_ADDRESS];
    int port;         /* 0: it is being asked */
    uint64_t next_ms; /* when to ask again */
} tutti__succession;

typedef enum tutti__succession_act {
    TUTTI__SUCCESSION_WAIT,     /* until next_ms */
    TUTTI__SUCCESSION_ASK,      /* the node at this address */
    TUTTI__SUCCESSION_TAKE_OVER /* this node coordinates */
} tutti__succession_act;

/* Takes a newer list. False: it is not. */
bool tutti__succession_listed(tutti__succession *s, const tutti__roster *roster, int id);
/* Whether it has a list, with nodes besides this one, which itself may not be in it. */
bool tutti__succession_has_others(const tutti__succession *s);
/* A round begins: the list of an earlier one, perhaps of another coordinator, is not its. */
void tutti__succession_forget(tutti__succession *s);
/* The coordinator was lost; ended: by its end, or its host's kernel. */
void tutti__succession_begin(tutti__succession *s, bool ended);
/* What to do now, if no node is being asked. own: the rounds of this node's own paused coordinator; NULL: it has none. */
tutti__succession_act tutti__succession_next(tutti__succession *s, uint64_t now_ms,
                                             const tutti__rounds *own, const char **address_p,
                                             int *port_p);

/* Answers of the node that is asked. Its host refused the connection: no process listens. */
void tutti__succession_refused(tutti__succession *s, tutti__rounds *own);
/* None; disconnected: it may be just starting or ending. */
void tutti__succession_unanswered(tutti__succession *s, uint64_t now_ms, bool disconnected);
/* Not it, but the coordinator of this term at this address (term 0: it knows none); unrelated: it was never part of this job, so
 * the node that listened there is dead. */
void tutti__succession_redirected(tutti__succession *s, tutti__rounds *own, int64_t term,
                                  const char *address, int port, bool unrelated);
/* It has accepted this node. */
void tutti__succession_accepted(tutti__succession *s);

#endif
