/* hosts.h -- several hosts on one machine: network namespaces, joined by a bridge.   SPDX-License-Identifier: MIT
 *
 * The calling process moves into a namespace of its own, the hub, with the bridge; every host is one more, held by a child
 * process, with its port. All call their interface "eth0". They have no names and end with the process, however that ends. Needs root and iproute2. */
#ifndef TUTTI_TESTS_HOSTS_H
#define TUTTI_TESTS_HOSTS_H

/* NULL, or why there can be none here. Hosts have 10.77.0.1, .2, ..., fd77::1, ... and fe80::1, ...; the hub has those
 * below. Once a process. */
const char *tutti_hosts_make(int n);
/* The calling thread goes to that host; what it starts is there too. */
void tutti_host_enter(int host);
/* Of the host's cable to the bridge, from any namespace. */
void tutti_host_cut(int host);

#define TUTTI_HUB_V4         "10.77.0.254"
#define TUTTI_HUB_V6         "fd77::fe"
#define TUTTI_HUB_LINK_LOCAL "fe80::fe%eth0"

#endif
