/* failure.h -- how a communicator dies, once, of one cause that every rank returns.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_FAILURE_H
#define TUTTI_COMM_CORE_FAILURE_H

#include "comm/core/communicator.h"
#include "comm/core/operation.h"

/* Kills it on all ranks, unless it is dead already. Returns the status of the first cause; sets no message. */
tutti_status tutti__comm_fail(tutti__comm *comm, tutti_status status, int culprit,
                              const char *format, ...) TUTTI_PRINTF(4, 5);
tutti_status tutti__comm_fail_of(tutti__comm *comm, const tutti__cause *cause);
/* Kills it on all ranks because this one ends, with status `own`: ABORTED, "rank 2 on host VERB: why". */
tutti_status tutti__comm_abort(tutti__comm *comm, tutti_status own, const char *verb,
                               const char *why);
/* Kills it on this rank only: the others know. */
void tutti__comm_adopt(tutti__comm *comm, const tutti__cause *cause);
/* Whether it is dead, as far as this rank knows or, through shared memory, any rank of the host. */
bool tutti__comm_failed(tutti__comm *comm);
/* Of a dead one: its cause's status. */
tutti_status tutti__comm_status(tutti__comm *comm);
/* Sets the message of a call on a dead one and returns its status; `signature` NULL: not an operation. */
tutti_status tutti__comm_error(tutti__comm *comm, const tutti__signature *signature);
/* The text of that message. */
void tutti__comm_error_text(tutti__comm *comm, const tutti__signature *signature, char *text,
                            size_t capacity);
/* Lets the observers report the failure (as the flight recorder does), if no call of the program will return it. */
void tutti__comm_report(tutti__comm *comm);

/* Causes that several parts find. Each kills the communicator. */

/* The rank's process has ended, or it has left. */
tutti_status tutti__comm_fail_lost(tutti__comm *comm, int rank);
/* The operation timed out; missing[r]: rank r has not arrived. */
tutti_status tutti__comm_fail_late(tutti__comm *comm, const tutti__operation *op,
                                   const bool *missing);
/* MISMATCH naming both calls. */
tutti_status tutti__comm_fail_different(tutti__comm *comm, int low,
                                        const tutti__signature *low_call, int high,
                                        const tutti__signature *high_call);
/* Fails like that unless theirs equals ours. */
tutti_status tutti__comm_check_signature(tutti__comm *comm, const tutti__signature *ours, int rank,
                                         const tutti__signature *theirs);
/* Uneven collectives: `from` gives `sent` elements to `to`; MISMATCH if that expects another number. */
tutti_status tutti__comm_check_sent(tutti__comm *comm, const tutti__signature *signature, int from,
                                    int to, size_t sent, size_t expected);

#endif
