/* roster.h -- the nodes of an elastic round in the order of succession, and which of them may continue without the others.
 * SPDX-License-Identifier: MIT
 *
 * The coordinator makes it and sends it to all; its first entry is the coordinator. The term increases with each coordinator,
 * the version with each change. docs/design/elasticity.md, "Succession", says why two sides of a partitioned network never both
 * continue. */
#ifndef TUTTI_LAUNCH_ROSTER_H
#define TUTTI_LAUNCH_ROSTER_H

#include "base/base.h"

enum {
    /* so that it fits into a message; with more nodes there is no succession */
    TUTTI__ROSTER_MAX = 1024,
    TUTTI__ROSTER_BYTES = 63000,
    TUTTI__ROSTER_ADDRESS = 64
};

typedef struct tutti__roster_node {
    int id;
    int workers;
    char address[TUTTI__ROSTER_ADDRESS];
    int port; /* where it listens; 0: does not */
    bool first;
    bool dead; /* known to this process, because its host's kernel refused a connection */
} tutti__roster_node;

typedef struct tutti__roster {
    int64_t term, version;
    int n; /* 0: no list yet, or too many nodes for one */
    tutti__roster_node list[TUTTI__ROSTER_MAX];
} tutti__roster;

/* Copies the entries in use: most lists are short. */
void tutti__roster_copy(tutti__roster *to, const tutti__roster *from);
/* Whether it fits into a message, as text, beside what else that contains. */
bool tutti__roster_fits(const tutti__roster *roster);
/* The entry, or NULL. */
tutti__roster_node *tutti__roster_find(tutti__roster *roster, int id);
/* Whether one node comes before another in the order of succession: of a list, in which either need not be. */
bool tutti__roster_precedes(const tutti__roster *roster, int id, int other);
/* -1: not in the list. */
int tutti__roster_index(const tutti__roster *roster, int id);
bool tutti__roster_is_newer(const tutti__roster *roster, const tutti__roster *than);
/* Whether the nodes that are `here` may continue. Without a list, yes. Else they must be more than half of those not known to
 * be dead; or half of them, including the first. */
bool tutti__roster_suffices(const tutti__roster *roster, bool (*here)(void *context, int id),
                            void *context);
/* Whether all nodes not known to be dead are here. */
bool tutti__roster_all_here(const tutti__roster *roster, bool (*here)(void *context, int id),
                            void *context);

#endif
