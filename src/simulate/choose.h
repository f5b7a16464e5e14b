/* choose.h -- the algorithm that ranks on simulated machines choose.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_SIMULATE_CHOOSE_H
#define TUTTI_SIMULATE_CHOOSE_H

#include "comm/algorithm/rounds.h"
#include "simulate/links.h"

/* Sets the call's blocks of ranks that are near each other. */
void tutti__sim_set_blocks(tutti__coll *call, const tutti__machines *machines);
/* As ranks choose that know these links: sets *algorithm_p, NULL if there is none, and the call's chunk, of so many bytes. Errors: ARG for
 * a text in the environment (TUTTI_ALGORITHM, TUTTI_TUNER_FILE). */
tutti_status tutti__sim_choose(const tutti__coll_algorithm **algorithm_p, tutti__coll *call,
                               const tutti__sim_links *links, const tutti__machines *machines,
                               size_t chunk_bytes);
/* The costs as the algorithms' own estimate takes them. */
tutti__coll_links tutti__sim_coll_links(const tutti__sim_links *links,
                                        const tutti__machines *machines);
/* About as many rounds or messages as it takes to simulate the call. */
uint64_t tutti__sim_steps(const tutti__coll_algorithm *algorithm, const tutti__coll *call);

#endif
