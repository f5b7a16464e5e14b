/* roster.h -- the nodes of an elastic round in the order of their succession, and which of them may go on without the others.
 * SPDX-License-Identifier: MIT
 *
 * The coordinator makes it and tells it to all; the first of it is the coordinator itself. The term is one more for each
 * coordinator, the version for each change. docs/design/elasticity.md, "Succession", says why two sides of a network that is cut
 * never both go on. */
#ifndef TUTTI_LAUNCH_ROSTER_H
#define TUTTI_LAUNCH_ROSTER_H

#include "base/base.h"

#include <jansson.h>

enum { TUTTI__ROSTER_MAX = 400 }; /* so that it fits a message; more nodes have no succession */

typedef struct tutti__roster_node {
    int id;
    int workers;
    char address[128];
    int port; /* where it listens; 0: nowhere */
    bool first;
    bool dead; /* this process knows so: the kernel of its host said it */
} tutti__roster_node;

typedef struct tutti__roster {
    int64_t term, version;
    int n; /* 0: none was told */
    tutti__roster_node list[TUTTI__ROSTER_MAX];
} tutti__roster;

/* The entry, or NULL. */
tutti__roster_node *tutti__roster_find(tutti__roster *roster, int id);
/* -1: it is not in it. */
int tutti__roster_index(const tutti__roster *roster, int id);
bool tutti__roster_is_newer(const tutti__roster *roster, const tutti__roster *than);
/* May those that are `here` go on? Where there is no list, yes. More than half of those that are not known to be dead; or half
 * of them, with the first. */
bool tutti__roster_suffices(const tutti__roster *roster, bool (*here)(void *context, int id),
                            void *context);
/* All but those who are known to be dead are. */
bool tutti__roster_all_here(const tutti__roster *roster, bool (*here)(void *context, int id),
                            void *context);
/* {"term", "version", "list"}: a new object; nobody is dead in what is read. False: it makes no sense. */
json_t *tutti__roster_write(const tutti__roster *roster);
bool tutti__roster_read(tutti__roster *roster, const json_t *object);

#endif
