/* tuner.h -- which algorithm runs a call.   SPDX-License-Identifier: MIT
 *
 * In this order: what TUTTI_ALGORITHM names for the operation; a line of TUTTI_TUNER_FILE; in groups of up to TUTTI__TUNER_DIRECT ranks
 * `direct`; else, of those that sum in the common order, the least estimate (tutti__coll_estimate) from the links, which the file gives or ranks have measured at set-up. All ranks
 * have the same of each, and compute in integers, so all choose alike without a word. */
#ifndef TUTTI_COMM_ALGORITHM_TUNER_H
#define TUTTI_COMM_ALGORITHM_TUNER_H

#include "comm/algorithm/levels.h"
#include "comm/core/communicator.h"

enum { TUTTI__TUNER_CHUNK_BYTES = 128 << 10, TUTTI__TUNER_DIRECT = 8, TUTTI__TUNER_SIZES = 48 };

/* A line of the file: in groups of `ranks`, calls of up to so many bytes (tutti__coll_bytes). */
typedef struct tutti__tuner_rule {
    const tutti__coll_algorithm *algorithm;
    int ranks;
    uint64_t bytes;
} tutti__tuner_rule;

typedef struct tutti__tuner {
    const tutti__coll_algorithm *forced[TUTTI__N_OPS]; /* NULL: none */
    bool told[TUTTI__N_OPS];                           /* that the forced one does not fit a call */
    tutti__tuner_rule *rules;
    size_t n_rules;
    uint64_t digest; /* of both texts */
    bool has_links;  /* else only `direct` is chosen without being asked for */
    /* By level (levels.h). given: by a file, which counts the bytes of a host's link, not of a rank's share of it. */
    tutti__coll_links links;
    bool given;
    /* Calls among all ranks, and, if it is another number, among one rank a host. */
    tutti__shape shapes[2];
    size_t chunk_bytes;
    tutti__coll last[TUTTI__N_OPS]; /* the last call that was chosen for; size 0: none */
    /* What has been estimated, by operation, wide or not, and power of two of bytes. */
    struct {
        const tutti__coll_algorithm *algorithm;
        int ranks;
    } chosen[TUTTI__N_OPS][2][TUTTI__TUNER_SIZES];
} tutti__tuner;

/* Reads both variables. ARG: a name that is not in the table, with those that are, or a file that cannot be read, or its line. */
tutti_status tutti__tuner_open(tutti__tuner *tuner, size_t chunk_bytes);
void tutti__tuner_close(tutti__tuner *tuner);
/* Before the first call: shapes[which], that of n ranks in this order. Rank 0 logs if the topology is known and they do not follow it. */
void tutti__tuner_set_shape(tutti__tuner *tuner, int which, const tutti__comm *comm,
                            const tutti__places *places, const int *ranks, int n);
/* Measured ones. */
void tutti__tuner_set_links(tutti__tuner *tuner, const tutti__coll_links *links);
/* What lines "links" of a file's text say, which is overwritten; other lines are checked. Errors as in tutti__tuner_open, with the path,
 * and NOT_FOUND: there are none. */
tutti_status tutti__tuner_read_links(const char *path, char *text, tutti__coll_links *links);
/* The blocks of a call, by its size. */
void tutti__tuner_place(const tutti__tuner *tuner, tutti__coll *call);
/* tutti__coll_estimate of a placed call by these links. */
uint64_t tutti__tuner_estimate(const tutti__tuner *tuner, const tutti__coll_algorithm *algorithm,
                               const tutti__coll *call);
/* What ranks must have alike: a hash of both texts. */
tutti_status tutti__tuner_digest(uint64_t *digest_p);
/* Forces it by name, for operations that have algorithms; NULL: no longer. ARG as above. */
tutti_status tutti__tuner_force(tutti__tuner *tuner, tutti__op_kind op, const char *name);

/* Bytes of a call's larger buffer, as `tutti bench` counts them. */
uint64_t tutti__coll_bytes(const tutti__coll *call);
/* The call's algorithm, `direct` where nothing else fits; NULL: the operation has none in the table. Sets call->chunk
 * and places it. */
const tutti__coll_algorithm *tutti__tuner_choose(tutti__tuner *tuner, tutti__coll *call);
typedef enum tutti__tuner_reason {
    TUTTI__TUNER_FORCED,
    TUTTI__TUNER_RULE,
    TUTTI__TUNER_FEW, /* ranks */
    TUTTI__TUNER_ESTIMATE
} tutti__tuner_reason;
/* Why that is chosen. */
tutti__tuner_reason tutti__tuner_why(const tutti__tuner *tuner, const tutti__coll *call);
/* The call of an operation among `size` ranks; chunk is not set. */
tutti__coll tutti__coll_of(const tutti__signature *signature, int size);

#endif
