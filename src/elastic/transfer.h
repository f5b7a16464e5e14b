/* transfer.h -- ranges of memory on their way from one rank to the others.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_ELASTIC_TRANSFER_H
#define TUTTI_ELASTIC_TRANSFER_H

#include <tutti/group.h>

/* A range that has come, and is yet to be put where it belongs. */
typedef struct tutti__parcel {
    struct tutti__parcel *next;
    tutti_buf to; /* U8 */
    unsigned char *from;
} tutti__parcel;

/* Memory in which ranges have come. */
typedef struct tutti__crate {
    struct tutti__crate *next;
    unsigned char bytes[];
} tutti__crate;

/* Starts zeroed but for the first four, of which `group`, `from` and `all` are the same on all ranks. */
typedef struct tutti__transfer {
    tutti_group *group;
    int from; /* rank */
    bool
        all; /* else only ranges of up to 1 MiB: what may differ though the step is the same has to be smaller */
    bool whole; /* nothing is put in its place before everything has come */
    tutti__parcel *first, **end;
    tutti__crate *crates, *open;
    size_t packed; /* bytes in the open one, which many small ranges share */
} tutti__transfer;

/* Collective, in the same order on all ranks: one range. A move of a part's state (tutti/elastic.h), with the transfer as `arg`. */
tutti_status tutti__transfer_move(void *transfer, tutti_buf buf);
/* Collective: what is left. */
tutti_status tutti__transfer_end(tutti__transfer *t);
/* Also where something has failed. */
void tutti__transfer_destroy(tutti__transfer *t);

#endif
