/* directory.h -- where each rank of a group listens, as long as connections may still be needed.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_DIRECTORY_H
#define TUTTI_COMM_BOOTSTRAP_DIRECTORY_H

#include "comm/bootstrap/choose_transport.h"

/* An address without what sockaddr_storage has for all others. */
typedef struct tutti__packed_address {
    uint16_t family, port; /* family 0: none; port: of a unix address, the length of its name */
    uint32_t scope;
    uint8_t bytes[16];
} tutti__packed_address;

typedef struct tutti__directory_entry {
    tutti__packed_address control, data;
    int64_t pid;
    bool here; /* its host has this one's name */
} tutti__directory_entry;

typedef struct tutti__directory {
    int size;
    tutti__directory_entry places[];
} tutti__directory;

/* From the information of all. The control channel uses unix sockets within a host, unless the plan is TCP for all; data use TCP.
 * NULL: out of memory. free() it. */
tutti__directory *tutti__directory_new(const tutti__bootstrap *boot, const tutti__peer_info *infos,
                                       const tutti__transport_plan *plan);
/* The address for the control channel of this rank, which is `rank`, with another. */
tutti__address tutti__control_address(const tutti__peer_info *infos, int rank, int other, bool tcp);
tutti__address tutti__address_unpack(const tutti__packed_address *packed);

#endif
