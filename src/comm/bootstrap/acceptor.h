/* acceptor.h -- accepts connections of this job, and turns strangers away.   SPDX-License-Identifier: MIT
 *
 * Nothing blocks, and a call does a bounded amount of work, however many strangers come: the connections that have not
 * authenticated are limited in number and time, the oldest makes room for the newest, and a flood is named in the log. */
#ifndef TUTTI_COMM_BOOTSTRAP_ACCEPTOR_H
#define TUTTI_COMM_BOOTSTRAP_ACCEPTOR_H

#include "comm/bootstrap/authentication.h"

typedef struct tutti__acceptor_opts {
    int listeners[2]; /* borrowed; -1: none */
    const tutti__secret *secret;
    tutti__claim claim;
    const char *name; /* for log lines: "the rendezvous"; copied */
    int max_unproven; /* at most half of this process's descriptors are used, whatever it says */
    bool crossing; /* members may hang up, because the other connection of two stays: not logged */
    int flood;     /* from this number on, connections that fail within a second are one */
    /* The verdict on a client that has proven its claim; NULL: all are welcome. */
    char (*decide)(void *context, int fd, const tutti__claim *claim);
    /* Takes ownership of the descriptor of a client that was welcomed. */
    void (*welcome)(void *context, int fd, const tutti__claim *claim);
    void *context;
} tutti__acceptor_opts;

typedef struct tutti__unproven tutti__unproven;

typedef struct tutti__acceptor {
    tutti__acceptor_opts opts;
    char name[128];
    int epoll; /* poll it for reading; never one of the descriptors in it */
    int spare; /* a descriptor for rejecting newcomers when none is left; -1: none */
    tutti__unproven *oldest, *newest;
    int n_unproven;
    double resume_ms; /* no descriptor is left: newcomers wait in the kernel until then; 0: none */
    double next_line_ms;
    unsigned hidden; /* refusals since the last line */
    struct {
        double begin_ms, next_line_ms;
        int failed;          /* connections, in the second from begin_ms on */
        tutti__address from; /* of most of them, by majority vote */
        int votes;
    } flood;
} tutti__acceptor;

/* On failure nothing is left to close. */
tutti_status tutti__acceptor_open(tutti__acceptor *acceptor, const tutti__acceptor_opts *opts);
/* 0, or the errno for which a newcomer was rejected or must wait, if there were no descriptors. */
int tutti__acceptor_serve(tutti__acceptor *acceptor);
/* When to call that at the latest (tutti__now_ms). */
double tutti__acceptor_deadline(const tutti__acceptor *acceptor);
/* Leaves the listeners open. */
void tutti__acceptor_close(tutti__acceptor *acceptor);

#endif
