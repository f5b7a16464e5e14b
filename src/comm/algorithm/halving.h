/* halving.h -- recursive halving: log2 n exchanges of half of what is left, after which each number (pairs.h) has the sum of its part.
 * SPDX-License-Identifier: MIT
 *
 *     copy, if sums are wide │ pairs: give, add │ half of all: exchange, add │ a quarter: exchange, add │ ...
 *
 * Sums are in the common order. That of a part ends in WORK, at the part's own place in the data. */
#ifndef TUTTI_COMM_ALGORITHM_HALVING_H
#define TUTTI_COMM_ALGORITHM_HALVING_H

#include "comm/algorithm/pairs.h"

/* Elements of all that a rank gives. */
size_t tutti__halving_elements(const tutti__coll *call);
/* The parts of consecutive numbers: of a piece equal ones, of a piece for each rank those of the ranks that the number represents. */
tutti__piece tutti__halving_parts(const tutti__coll *call, int number, int n);
size_t tutti__halving_rounds(const tutti__coll *call);
size_t tutti__halving_work(const tutti__coll *call, int rank);
/* At most so many actions has a round of them. */
size_t tutti__halving_actions(const tutti__coll *call);
/* Does nothing from tutti__halving_rounds on. */
void tutti__halving_round(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out);

#endif
