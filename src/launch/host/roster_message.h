/* roster_message.h -- the list of nodes in a message.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ROSTER_MESSAGE_H
#define TUTTI_LAUNCH_ROSTER_MESSAGE_H

#include "launch/decide/roster.h"

#include <jansson.h>

/* The "list" of `nodes`: for each node "ID ADDRESS PORT WORKERS;", to be freed; and all three parts of it as a new object. All nodes are
 * sent it, and read it: a text takes a twentieth of an array's time. NULL: no memory. */
char *tutti__roster_text(const tutti__roster *roster);
json_t *tutti__roster_write(const tutti__roster *roster);
/* Of either; no node is dead. False: invalid. */
bool tutti__roster_read(tutti__roster *roster, const json_t *object);

#endif
