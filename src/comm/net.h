/* net.h -- sockets with deadlines, and the proof that both ends belong to one job.   SPDX-License-Identifier: MIT
 *
 * All sockets are non-blocking and close on exec; a deadline is a time of tutti__now_ms(). */
#ifndef TUTTI_COMM_NET_H
#define TUTTI_COMM_NET_H

#include "base/base.h"

#include <sys/socket.h>

typedef struct tutti__address {
    struct sockaddr_storage at;
    socklen_t length;
} tutti__address;

/* "10.0.0.1:29500", "[::1]:29500", "@unix". */
void tutti__address_text(const tutti__address *address, char *text, size_t capacity);
bool tutti__address_is_loopback(const tutti__address *address);
int tutti__address_port(const tutti__address *address);
void tutti__address_set_port(tutti__address *address, int port);
/* The interface of a link-local IPv6 address, which is this host's business: one that comes from another host gets the
 * number that this host has for the link. 0: the address needs none. */
uint32_t tutti__address_scope(const tutti__address *address);
void tutti__address_set_scope(tutti__address *address, uint32_t scope);
/* An address of host, the same on every host; "::1", "[::1]", "fe80::1%eth0". ARG if the name is unknown. */
tutti_status tutti__resolve(tutti__address *address, const char *host, int port);
/* Of an interface that the list allows (see docs/hosts.md), if there is a choice of the family AF_INET or AF_INET6 (0: IPv4);
 * ARG, naming those there are, if none has an address. */
tutti_status tutti__interface_address(tutti__address *address, const char *list, int family);

/* Listens; `address` becomes the bound one. A taken port is IO with the remedy. */
tutti_status tutti__listen(tutti__address *address, int *fd_p);
/* One attempt; returns a connected socket, or -1 with errno. */
int tutti__connect_once(const tutti__address *address, double deadline);
/* -1 with errno; EAGAIN when nobody waits. */
int tutti__accept(int listener);

/* Milliseconds left, for poll(): at least 0. */
int tutti__poll_ms(double deadline);
/* Whole transfers: 0, or an errno (ETIMEDOUT at the deadline, ECONNRESET at the end of the stream). */
int tutti__send_all(int fd, const void *p, size_t bytes, double deadline);
int tutti__receive_all(int fd, void *p, size_t bytes, double deadline);

/* ---- The job's secret ------------------------------------------------------------------------------
 * Whoever connects and whoever accepts prove to each other that they know it (HMAC-SHA-256 over both sides' nonces)
 * before anything else is read. Without a secret the same messages are exchanged and prove nothing. */

typedef struct tutti__secret {
    bool set;
    uint8_t key[32];
} tutti__secret;

/* From TUTTI_SECRET, or the 0600 file that TUTTI_SECRET_FILE names; not set if there is neither. */
tutti_status tutti__secret_read(tutti__secret *secret);

enum { TUTTI__HELLO_BYTES = 48, TUTTI__ANSWER_BYTES = 80, TUTTI__PROOF_BYTES = 32 };

/* The connecting side, as far as it goes; `kind` says what for ('S' store, 'G' group). `who` (a peer or a store) is for
 * the message. PEER: it hung up; IO: it is no member of this job. */
tutti_status tutti__greet(int fd, const tutti__secret *secret, char kind, const char *who,
                          double deadline);

/* The accepting side, one step a readable socket, so that a silent client stops nobody. */
typedef struct tutti__doorman {
    uint8_t hello[TUTTI__HELLO_BYTES], answer[TUTTI__ANSWER_BYTES], proof[TUTTI__PROOF_BYTES];
    size_t got;
} tutti__doorman;
/* 1: proven; 0: call again when readable; -1: turn it away. */
int tutti__doorman_step(tutti__doorman *doorman, int fd, const tutti__secret *secret, char kind);

#endif
