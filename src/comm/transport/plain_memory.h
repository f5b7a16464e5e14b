/* plain_memory.h -- memory of tutti_group_alloc for ranks that share none.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_TRANSPORT_PLAIN_MEMORY_H
#define TUTTI_COMM_TRANSPORT_PLAIN_MEMORY_H

#include "comm/core/failure.h"

typedef struct tutti__plain_memory {
    pthread_mutex_t lock;
    struct tutti__plain_mapping *first;
} tutti__plain_memory;

void tutti__plain_init(tutti__plain_memory *memory);
tutti_status tutti__plain_alloc(tutti__plain_memory *memory, const tutti__operation *op);
void tutti__plain_release(tutti__plain_memory *memory, const tutti__comm *comm, void *p);
/* Frees all remaining allocations. */
void tutti__plain_destroy(tutti__plain_memory *memory);

#endif
