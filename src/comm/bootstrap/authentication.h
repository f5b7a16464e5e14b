/* authentication.h -- proves that both ends of a connection belong to one job.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_AUTHENTICATION_H
#define TUTTI_COMM_BOOTSTRAP_AUTHENTICATION_H

#include "comm/bootstrap/socket.h"

/* ---- Authentication --------------------------------------------------------------------------------
 * Both sides prove to each other that they know the job's secret, and their place in the job: HMAC-SHA-256 over both
 * sides' claims and nonces, before anything else is read. Without a secret the same messages are exchanged and prove
 * nothing. */

/* The secret, and the place of this process in the job. */
typedef struct tutti__secret {
    bool set;
    bool users; /* it is the user's, in the file `where`, because the job has none */
    uint8_t key[32];
    /* `users`: its file; not `set`: why there is none, "" if none was looked for */
    char where[256];
    uint64_t job;           /* hash of its name; 0: unknown, matches any */
    uint64_t process;       /* distinguishes two processes that claim one rank */
    uint32_t attempt, rank; /* rank: 1 + this process's rank; 0: none (the launcher, a tool) */
    bool speaks; /* this rank logs that rank 0 is missing: one a host, or the next rank */
} tutti__secret;

/* From TUTTI_SECRET, or the 0600 file that TUTTI_SECRET_FILE names, else the user's (user_secret.h); not set if there is
 * none of these. The other members come from the launcher's variables. */
tutti_status tutti__secret_read(tutti__secret *secret);
/* The same without the user's secret: for ranks that meet in a process, a file or MPI instead of over TCP. */
tutti_status tutti__secret_read_given(tutti__secret *secret);

/* The purpose of a connection. */
typedef struct tutti__claim {
    uint32_t kind;    /* 'S' store, 'G' group */
    uint32_t attempt; /* of the job */
    uint64_t job, process;
    uint64_t group;         /* 'G': its id */
    uint32_t rank, channel; /* 1 + rank, in the job or the group; 0: none */
} tutti__claim;

/* A channel: the client only asks which process listens here. No connection comes of it. */
#define TUTTI__PROBE UINT32_MAX

enum {
    TUTTI__HEAD_BYTES = 88,
    TUTTI__ANSWER_BYTES = TUTTI__HEAD_BYTES + 32,
    TUTTI__PROOF_BYTES = 32
};

/* The claim of a connection of this process to a store. */
tutti__claim tutti__store_claim(const tutti__secret *secret);

/* The connecting side (connector.h), one step for each time that the socket is readable. The accepting side may be busy with
 * others before it answers. */
typedef struct tutti__client_handshake {
    uint8_t hello[TUTTI__HEAD_BYTES], answer[TUTTI__ANSWER_BYTES];
    size_t got;
    enum { TUTTI__SAY_HELLO, TUTTI__AWAIT_ANSWER, TUTTI__AWAIT_VERDICT } next;
    tutti_status status; /* of a failure, as below */
    bool replaced;       /* another process has the address of the one that was called */
} tutti__client_handshake;
/* 1: authenticated; 0: call again when readable; -1: failed, PEER: it hung up; IO: it is not of this job, or rejects us; MEMORY:
 * it has no descriptor left. `theirs`, unless NULL, is the claim that the other side must make. `who` (a peer or a store) is
 * for messages. */
int tutti__client_handshake_step(tutti__client_handshake *handshake, int fd,
                                 const tutti__secret *secret, const tutti__claim *mine,
                                 const tutti__claim *theirs, const char *who);
/* It cannot go on because of this errno: PEER, or TIMEOUT if nothing came. */
tutti_status tutti__client_handshake_fail(tutti__client_handshake *handshake, const char *who,
                                          int error);

/* The accepting side (acceptor.h), one step for each time that the socket is readable, so that a silent client blocks no
 * other. */
typedef struct tutti__server_handshake {
    uint8_t hello[TUTTI__HEAD_BYTES], answer[TUTTI__ANSWER_BYTES], proof[TUTTI__PROOF_BYTES];
    size_t got;
    tutti__claim claim; /* of the client, when proven */
    const char *why;    /* why it is rejected; NULL: it left before it said anything */
    bool ended;         /* it hung up */
} tutti__server_handshake;
/* 1: proven, the caller decides; 0: call again when readable; -1: reject it. */
int tutti__server_handshake_step(tutti__server_handshake *handshake, int fd,
                                 const tutti__secret *secret, const tutti__claim *mine);
/* Sends the decision to a proven client; false: it is gone, or was not welcome. CROSSED is the answer to a probe, too. */
enum {
    TUTTI__WELCOME = 'W',
    TUTTI__STALE = 'A',
    TUTTI__TAKEN = 'R',
    TUTTI__UNKNOWN = 'G',
    TUTTI__OTHER_USER = 'U',
    TUTTI__CROSSED = 'C' /* the two have a connection, or are about to: this one is not needed */
};
bool tutti__server_handshake_decide(tutti__server_handshake *handshake, int fd, char verdict);
/* Without a secret: true if the kernel reports that the other end of the connection, on this host, belongs to another user
 * than this process. */
bool tutti__of_another_user(int fd);

/* Tells a client that there is no descriptor for it: it may try again, and then name the limit. */
void tutti__refuse_full(int fd);

#endif
