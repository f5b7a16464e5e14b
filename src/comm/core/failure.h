/* failure.h -- how a communicator dies, once, of one cause that every rank returns.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_FAILURE_H
#define TUTTI_COMM_CORE_FAILURE_H

#include "comm/core/communicator.h"
#include "comm/core/operation.h"

/* Kills it, on all ranks, unless it is dead already. Returns the status of the first cause, no message made. */
tutti_status tutti__comm_fail(tutti__comm *comm, tutti_status status, int culprit,
                              const char *format, ...) TUTTI_PRINTF(4, 5);
/* Kills it here only: the others know. */
void tutti__comm_adopt(tutti__comm *comm, const tutti__cause *cause);
/* Is it dead, as far as this rank or, by shared memory, any rank knows? */
bool tutti__comm_failed(tutti__comm *comm);
/* Of a dead one: that of its cause. */
tutti_status tutti__comm_status(tutti__comm *comm);
/* Makes the message of a call on a dead one; `signature` NULL: not of an operation. */
tutti_status tutti__comm_error(tutti__comm *comm, const tutti__signature *signature);
/* What that says. */
void tutti__comm_error_text(tutti__comm *comm, const tutti__signature *signature, char *text,
                            size_t capacity);
/* Lets the observers report the failure (the flight recorder does), where no call of the program will return it. */
void tutti__comm_report(tutti__comm *comm);

/* The causes that several parts find. All kill the communicator. */

/* The rank's process has ended, or it has left. */
tutti_status tutti__comm_fail_lost(tutti__comm *comm, int rank);
/* The time of the operation is over; missing[r]: rank r has not come. */
tutti_status tutti__comm_fail_late(tutti__comm *comm, const tutti__op *op, const bool *missing);
/* MISMATCH naming both calls. */
tutti_status tutti__comm_fail_different(tutti__comm *comm, int low,
                                        const tutti__signature *low_call, int high,
                                        const tutti__signature *high_call);
/* The same unless theirs equals ours. */
tutti_status tutti__comm_check_signature(tutti__comm *comm, const tutti__signature *ours, int rank,
                                         const tutti__signature *theirs);
/* Uneven: `from` gives `sent` elements to `to`; MISMATCH if that expects another number. */
tutti_status tutti__comm_check_sent(tutti__comm *comm, const tutti__signature *signature, int from,
                                    int to, size_t sent, size_t expected);

#endif
