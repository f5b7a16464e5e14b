/* authentication.h -- the proof that both ends of a connection belong to one job.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_AUTHENTICATION_H
#define TUTTI_COMM_BOOTSTRAP_AUTHENTICATION_H

#include "comm/bootstrap/socket.h"

/* ---- Proving to be of the job ----------------------------------------------------------------------
 * Whoever connects and whoever accepts prove to each other that they know the job's secret, and who they are in it:
 * HMAC-SHA-256 over both sides' claims and nonces, before anything else is read. Without a secret the same messages are
 * exchanged and prove nothing. */

/* The secret, and what this process is in the job. */
typedef struct tutti__secret {
    bool set;
    bool users; /* it is the user's, in the file `where`, for want of one of the job's own */
    uint8_t key[32];
    char where
        [256]; /* `users`: its file; not `set`: why there is none, "" where none was looked for */
    uint64_t job;           /* hash of its name; 0: not told, matches any */
    uint64_t process;       /* tells two processes apart that claim one rank */
    uint32_t attempt, rank; /* rank: 1 + this process's rank; 0: none (the launcher, a tool) */
    bool speaks;            /* of all that wait for rank 0, one a host, or the next rank, says so */
} tutti__secret;

/* From TUTTI_SECRET, or the 0600 file that TUTTI_SECRET_FILE names, else the user's (user_secret.h); not set if there is none
 * of them. The rest from what the launcher says. */
tutti_status tutti__secret_read(tutti__secret *secret);
/* The same without the user's: for ranks that meet elsewhere than over TCP, in a process, a file or MPI. */
tutti_status tutti__secret_read_given(tutti__secret *secret);

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
 * a store) is for the message. PEER: it hung up; IO: it is no member of this job, or does not want us; MEMORY: it has no
 * descriptor for us. */
tutti_status tutti__greet(int fd, const tutti__secret *secret, const tutti__claim *mine,
                          const tutti__claim *theirs, const char *who, double deadline);
/* Its first half. Whoever accepts may be busy with others: where the caller wants to look around while it waits, it does so
 * between the two. */
typedef struct tutti__greeting {
    uint8_t hello[TUTTI__HEAD_BYTES];
} tutti__greeting;
tutti_status tutti__greet_begin(tutti__greeting *greeting, int fd, const tutti__secret *secret,
                                const tutti__claim *mine, const char *who, double deadline);
tutti_status tutti__greet_end(const tutti__greeting *greeting, int fd, const tutti__secret *secret,
                              const tutti__claim *mine, const tutti__claim *theirs, const char *who,
                              double deadline);
/* The second half in two, each of which waits only where the socket is not readable yet. */
tutti_status tutti__greet_prove(const tutti__greeting *greeting, int fd,
                                const tutti__secret *secret, const tutti__claim *mine,
                                const tutti__claim *theirs, const char *who, double deadline);
tutti_status tutti__greet_verdict(int fd, const tutti__claim *mine, const char *who,
                                  double deadline);

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
enum {
    TUTTI__WELCOME = 'W',
    TUTTI__STALE = 'A',
    TUTTI__TAKEN = 'R',
    TUTTI__UNKNOWN = 'G',
    TUTTI__OTHER_USER = 'U'
};
bool tutti__acceptor_decide(tutti__acceptor *acceptor, int fd, char verdict);
/* Where no secret proves anything: true if the kernel says that the other end of the connection, on this host, is of another
 * user than this process. */
bool tutti__of_another_user(int fd);

/* To a client for whom there is no descriptor: worth another try, and then a limit that it can name. */
void tutti__acceptor_refuse_full(int fd);

/* A log line for each client that is turned away, one a second at most, in which the others are counted. */
typedef struct tutti__refusals {
    double next_ms;
    unsigned hidden;
} tutti__refusals;
void tutti__log_refusal(tutti__refusals *refusals, int fd, const tutti__acceptor *acceptor,
                        const char *door, const char *why);

#endif
