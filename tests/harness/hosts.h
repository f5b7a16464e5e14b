/* hosts.h -- several hosts on one machine: network namespaces, joined by a bridge.   SPDX-License-Identifier: MIT
 *
 * The calling process moves into a new namespace, the hub, with the bridge; every host is another one, held by a child
 * process, with its port. All interfaces are called "eth0". They have no names and
 * end with the process, however that ends. Needs root and iproute2. */
#ifndef TUTTI_TESTS_HOSTS_H
#define TUTTI_TESTS_HOSTS_H

/* NULL, or why it is not possible here. Hosts have 10.77.0.1, .2, ..., fd77::1, ... and fe80::1, ...; the hub has those
 * below. Once per process. */
const char *tutti_hosts_make(int n);
/* Moves the calling thread to that host; processes that it starts are there too. */
void tutti_host_enter(int host);
/* Disconnects the host from the bridge, from any namespace. */
void tutti_host_cut(int host);

#define TUTTI_HUB_V4         "10.77.0.254"
#define TUTTI_HUB_V6         "fd77::fe"
#define TUTTI_HUB_LINK_LOCAL "fe80::fe%eth0"

#endif
