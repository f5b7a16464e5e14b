/* plain_memory.h -- memory of tutti_group_alloc for ranks that share none.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_TRANSPORT_PLAIN_MEMORY_H
#define TUTTI_COMM_TRANSPORT_PLAIN_MEMORY_H

#include "comm/core/failure.h"

/* `twice`: mapped a second time, for messages that may still use it when their call has failed: see tutti__plain_take_back. */
typedef struct tutti__plain_memory {
    pthread_mutex_t lock;
    struct tutti__plain_mapping *first;
    bool twice;
} tutti__plain_memory;

void tutti__plain_init(tutti__plain_memory *memory, bool twice);
tutti_status tutti__plain_alloc(tutti__plain_memory *memory, const tutti__operation *op);
void tutti__plain_release(tutti__plain_memory *memory, const tutti__comm *comm, void *p);
/* Frees all remaining allocations; `kept`: but not their second mappings. */
void tutti__plain_destroy(tutti__plain_memory *memory, bool kept);
/* The second mapping of these bytes; NULL: there is none. */
char *tutti__plain_second(tutti__plain_memory *memory, const void *p, size_t bytes);
/* Gives the program private pages with the same contents instead of those of [p, p + bytes) that are mapped twice. */
void tutti__plain_take_back(tutti__plain_memory *memory, const tutti__comm *comm, const void *p,
                            size_t bytes);

#endif
