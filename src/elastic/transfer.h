/* transfer.h -- sends ranges of memory from one rank to the others.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_ELASTIC_TRANSFER_H
#define TUTTI_ELASTIC_TRANSFER_H

#include <tutti/group.h>

/* A received range, not yet copied to its destination. */
typedef struct tutti__fragment {
    struct tutti__fragment *next;
    tutti_buf to; /* U8 */
    unsigned char *from;
} tutti__fragment;

/* A buffer of received ranges. */
typedef struct tutti__packet {
    struct tutti__packet *next;
    unsigned char bytes[];
} tutti__packet;

/* Set the first four, of which `group`, `from` and `all` are the same on all ranks; zero the rest. */
typedef struct tutti__transfer {
    tutti_group *group;
    int from; /* rank */
    /* else only ranges of up to 1 MiB: ranges that may differ within one step must not be larger */
    bool all;
    bool whole; /* nothing is overwritten before everything has arrived */
    tutti__fragment *first, **end;
    tutti__packet *packets, *open;
    size_t packed; /* bytes in the open packet */
} tutti__transfer;

/* Collective, in the same order on all ranks: sends one range. For the `move` of a part's state (tutti/elastic.h), whose `arg` is
 * the transfer. */
tutti_status tutti__transfer_move(void *transfer, tutti_buf buf);
/* Collective: sends the rest. */
tutti_status tutti__transfer_end(tutti__transfer *t);
/* Also after a failure. */
void tutti__transfer_destroy(tutti__transfer *t);

#endif
