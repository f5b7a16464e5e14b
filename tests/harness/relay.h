/* relay.h -- a simulated network: with delay, limited bandwidth, or cut.   SPDX-License-Identifier: MIT
 *
 * Replaces a network emulator, which kernels may lack. A thread forwards TCP connections to 127.0.0.1: bytes arrive in
 * order, each `delay_ms` after it was sent and no faster than the rate. */
#ifndef TUTTI_TESTS_RELAY_H
#define TUTTI_TESTS_RELAY_H

typedef struct tutti_relay tutti_relay;

/* Forwards to a port of this machine; bytes_per_s, of each direction of each connection, 0: no limit. Aborts if it cannot. */
tutti_relay *tutti_relay_new(int target_port, double delay_ms, double bytes_per_s);
int tutti_relay_port(const tutti_relay *relay);
/* From now on nothing is forwarded, and no connection ends: neither side is notified. */
void tutti_relay_cut(tutti_relay *relay);
/* Ends all connections. */
void tutti_relay_free(tutti_relay *relay);

#endif
