/* wire.h -- how long the calls of a step take on given or measured links.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_WIRE_H
#define TUTTI_TRAIN_WIRE_H

#include "train/forecast/footprint.h"

/* Between two ranks of one host, or two hosts. */
typedef struct tutti__link_speed {
    double gbps;      /* 1e9 bytes a second, of what a rank (a host) sends */
    double us;        /* of a call that carries next to nothing */
    const char *from; /* "given", "measured ..." */
} tutti__link_speed;

typedef struct tutti__wire {
    tutti__link_speed within, between; /* between: of a host, with all its ranks */
    /* Another way to find the seconds of all these calls of a group; NULL: by latency and bytes alone. */
    double (*seconds)(void *of, const tutti__planned_call *call,
                      const tutti__layout_of_ranks *layout);
    void *of;
} tutti__wire;

/* Fills in what is 0: by all_reduce of two ranks that are threads of this process, through shared memory and through TCP on the
 * loopback interface. Takes about 100 ms each. */
tutti_status tutti__wire_measure(tutti__wire *wire, const tutti__layout_of_ranks *layout);
/* Bytes that a rank sends for a message of a call of this name, by the algorithms that need least. */
double tutti__wire_sent(const tutti__planned_call *call, int ranks);
/* Seconds of all these calls. */
double tutti__wire_seconds(const tutti__wire *wire, const tutti__planned_call *call,
                           const tutti__layout_of_ranks *layout);

#endif
