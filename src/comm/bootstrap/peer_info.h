/* peer_info.h -- a rank's host and addresses, published to all.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_PEER_INFO_H
#define TUTTI_COMM_BOOTSTRAP_PEER_INFO_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/topology.h"

enum { TUTTI__MAX_SOCKETS = 16 };

typedef struct tutti__peer_info {
    uint32_t protocol, bytes;
    char version[16], host[64];
    uint64_t host_id, nonce;
    int64_t pid;
    uint32_t tcp, sockets;            /* sockets: for data, a pair; rank 0's value is used by all */
    int32_t world_rank, heartbeat_ms; /* 0: off */
    uint64_t
        choices; /* a hash of TUTTI_ALGORITHM and of the texts of TUTTI_TUNER_FILE and TUTTI_TOPOLOGY */
    tutti__switches switches;
    tutti__address local_at, tcp_at;
    char no_sharing[80]; /* why this rank cannot share memory with others of its host; "": it can */
} tutti__peer_info;

/* Sets the prefix of the keys in the store. base: the job's attempt. */
tutti_status tutti__peer_info_name_keys(tutti__bootstrap *boot, const char *base);
/* Sets everything except no_sharing and the addresses. */
tutti_status tutti__peer_info_fill(const tutti__bootstrap *boot, tutti__peer_info *mine);
/* Through the store: publishes this rank's and reads those of n others, whose names it notes. An error names the ranks that did not
 * come. */
tutti_status tutti__peer_info_exchange(const tutti__bootstrap *boot, const tutti__peer_info *mine,
                                       const int *ranks, int n, tutti__peer_info *infos,
                                       double deadline);
/* MISMATCH unless these ranks run this build and choose algorithms alike; with NULL all n. */
tutti_status tutti__peer_info_check(const tutti__bootstrap *boot, const int *ranks, int n,
                                    const tutti__peer_info *infos);
/* Copies it to the communicator: peers' names, and local rank and size if unknown. */
void tutti__peer_info_note(const tutti__bootstrap *boot, const tutti__peer_info *infos);

/* ---- gather.c ---- */
/* Of a rank that has its own and its neighbours': gathers those of all up the tree, and hands them down. fds[i]: a connection with
 * ranks[i], on which nothing else is sent meanwhile. *id_p: the same on all ranks, of no other group. */
tutti_status tutti__peer_info_gather(const tutti__bootstrap *boot, const int *ranks, const int *fds,
                                     int n, tutti__peer_info *infos, uint64_t *id_p,
                                     double deadline);
/* n of them as the bytes in which each differs from the one before; the caller frees *bytes_p. MEMORY. */
tutti_status tutti__peer_info_pack(const tutti__peer_info *infos, int n, uint8_t **bytes_p,
                                   size_t *n_bytes_p);
/* False: not a table of n. */
bool tutti__peer_info_unpack(const uint8_t *bytes, size_t n_bytes, tutti__peer_info *infos, int n);

#endif
