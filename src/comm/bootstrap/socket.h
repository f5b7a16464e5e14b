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

/* ---- Proving to be of the job ----------------------------------------------------------------------
 * Whoever connects and whoever accepts prove to each other that they know the job's secret, and who they are in it:
 * HMAC-SHA-256 over both sides' claims and nonces, before anything else is read. Without a secret the same messages are
 * exchanged and prove nothing. */

/* The secret, and what this process is in the job. */
typedef struct tutti__secret {
    bool set;
    uint8_t key[32];
    uint64_t job;           /* hash of its name; 0: not told, matches any */
    uint64_t process;       /* tells two processes apart that claim one rank */
    uint32_t attempt, rank; /* rank: 1 + this process's rank; 0: none (the launcher, a tool) */
} tutti__secret;

/* From TUTTI_SECRET, or the 0600 file that TUTTI_SECRET_FILE names; not set if there is neither. The rest from what the
 * launcher says. */
tutti_status tutti__secret_read(tutti__secret *secret);

/* What a connection is for. */
typedef struct tutti__claim {
    uint32_t kind;    /* 'S' store, 'G' group */
    uint32_t attempt; /* of the job */
    uint64_t job, process;
    uint64_t group;         /* 'G': its id */
    uint32_t rank, channel; /* 1 + rank, in the job or the group; 0: none */
} tutti__claim;

enum {
    TUTTI__HEAD_BYTES = 88,
    TUTTI__ANSWER_BYTES = TUTTI__HEAD_BYTES + 32,
    TUTTI__PROOF_BYTES = 32
};

/* A store's claim, of this process. */
tutti__claim tutti__store_claim(const tutti__secret *secret);

/* The connecting side, as far as it goes. `theirs`, unless NULL, is what the other side must claim to be. `who` (a peer or
 * a store) is for the message. PEER: it hung up; IO: it is no member of this job, or does not want us. */
tutti_status tutti__greet(int fd, const tutti__secret *secret, const tutti__claim *mine,
                          const tutti__claim *theirs, const char *who, double deadline);

/* The accepting side, one step a readable socket, so that a silent client stops nobody. */
typedef struct tutti__acceptor {
    uint8_t hello[TUTTI__HEAD_BYTES], answer[TUTTI__ANSWER_BYTES], proof[TUTTI__PROOF_BYTES];
    size_t got;
    tutti__claim claim; /* of the client, once it is proven */
    const char *why;    /* it is turned away */
} tutti__acceptor;
/* 1: proven, the caller decides; 0: call again when readable; -1: turn it away. */
int tutti__acceptor_step(tutti__acceptor *acceptor, int fd, const tutti__secret *secret,
                         const tutti__claim *mine);
/* Tells a proven client the decision; false: it is gone, or was not welcome. */
enum { TUTTI__WELCOME = 'W', TUTTI__STALE = 'A', TUTTI__TAKEN = 'R', TUTTI__UNKNOWN = 'G' };
bool tutti__acceptor_decide(tutti__acceptor *acceptor, int fd, char verdict);

/* A log line for each client that is turned away, one a second at most, in which the others are counted. */
typedef struct tutti__refusals {
    double next_ms;
    unsigned hidden;
} tutti__refusals;
void tutti__log_refusal(tutti__refusals *refusals, int fd, const tutti__acceptor *acceptor,
                        const char *door, const char *why);

#endif
