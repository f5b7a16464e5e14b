/* data.h -- what is in the buffers of simulated ranks: all of it, or what becomes of some elements.   SPDX-License-Identifier: MIT
 *
 * REAL: each rank has memory, in which sums are computed. SAMPLED: of some elements, chosen by the seed, what they are and which ranks'
 * contributions they contain is followed from place to place, as a sum of random numbers, one a contribution: one that is missing, or
 * is in it twice, shows in the sum. */
#ifndef TUTTI_SIMULATE_DATA_H
#define TUTTI_SIMULATE_DATA_H

#include "comm/algorithm/rounds.h"

typedef enum tutti__sim_data_kind {
    TUTTI__SIM_REAL, /* of F32 sums */
    TUTTI__SIM_SAMPLED,
    TUTTI__SIM_NO_DATA
} tutti__sim_data_kind;

typedef struct tutti__sim_data tutti__sim_data;
typedef struct tutti__sim_bytes tutti__sim_bytes; /* of a message */

/* Bytes that REAL takes for a call. */
uint64_t tutti__sim_data_needs(const tutti__coll_algorithm *algorithm, const tutti__coll *call);
/* Errors: MEMORY. */
tutti_status tutti__sim_data_new(tutti__sim_data **data_p, tutti__sim_data_kind kind,
                                 const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                                 uint64_t seed);
void tutti__sim_data_free(tutti__sim_data *data);
/* What a rank sends. *bytes_p is NULL if there is nothing to follow. Errors: MEMORY. */
tutti_status tutti__sim_data_take(tutti__sim_data *data, int rank, const tutti__coll_action *action,
                                  tutti__sim_bytes **bytes_p);
/* A rank receives it. Frees it. Errors: MEMORY. */
tutti_status tutti__sim_data_put(tutti__sim_data *data, int rank, const tutti__coll_action *action,
                                 tutti__sim_bytes *bytes);
void tutti__sim_bytes_free(tutti__sim_bytes *bytes);
/* A local action. Errors: MEMORY. */
tutti_status tutti__sim_data_local(tutti__sim_data *data, int rank,
                                   const tutti__coll_action *action);
/* Adds the elements of this rank's result that were looked at, and those that are not what the operation says. */
void tutti__sim_data_check(const tutti__sim_data *data, int rank, uint64_t *checked_p,
                           uint64_t *wrong_p);

#endif
