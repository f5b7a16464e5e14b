/* halving.h -- recursive halving, or division by another radix (order.h): in each step ranks exchange what is left for the others of it, after which each base rank has
 * the sum of its part.   SPDX-License-Identifier: MIT
 *
 *     copy, if sums are wide │ half of all: exchange, add │ a quarter: exchange, add │ ...
 *
 * Sums are in the common order. That of a part ends in WORK, at the part's own place in the data. */
#ifndef TUTTI_COMM_ALGORITHM_HALVING_H
#define TUTTI_COMM_ALGORITHM_HALVING_H

#include "comm/algorithm/order.h"

/* The parts of n consecutive vranks: of a piece equal ones, of a piece for each rank those of the ranks that the base rank represents. */
tutti__piece tutti__halving_parts(const tutti__coll *call, const tutti__order *o, int vrank, int n);
/* The parts that the rank has after a step; of step -1: before all. */
tutti__piece tutti__halving_after(const tutti__coll *call, const tutti__order *o, int rank,
                                  int step);
size_t tutti__halving_rounds(const tutti__coll *call, const tutti__order *o);
size_t tutti__halving_work(const tutti__coll *call, int rank);
/* At most so many actions has a round of them. */
size_t tutti__halving_actions(const tutti__coll *call, const tutti__order *o);
/* Does nothing from tutti__halving_rounds on. */
void tutti__halving_round(const tutti__coll *call, const tutti__order *o, int rank, size_t round,
                          tutti__coll_round *out);

#endif
