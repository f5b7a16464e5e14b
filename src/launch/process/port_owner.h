/* port_owner.h -- the process that listens on a port of this machine.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_PORT_OWNER_H
#define TUTTI_LAUNCH_PORT_OWNER_H

#include <stdbool.h>
#include <stddef.h>

/* "process 4711 (python3) of user 1000"; "a process of user 1000" if it is another user's or in a container, and its number
 * cannot be read. False, and no text, if no process listens on that TCP port in this network namespace, or /proc is not
 * available. */
bool tutti__port_owner(int port, char *text, size_t bytes);

#endif
