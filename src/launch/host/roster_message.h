/* roster_message.h -- the list of nodes in a message.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ROSTER_MESSAGE_H
#define TUTTI_LAUNCH_ROSTER_MESSAGE_H

#include "launch/decide/roster.h"

#include <jansson.h>

/* {"term", "version", "list"}: a new object; when read, no node is dead. False: invalid. */
json_t *tutti__roster_write(const tutti__roster *roster);
bool tutti__roster_read(tutti__roster *roster, const json_t *object);

#endif
