/* take_back.h -- memory that others may still write is the program's alone again.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_TRANSPORT_TAKE_BACK_H
#define TUTTI_COMM_TRANSPORT_TAKE_BACK_H

#include "comm/core/failure.h"

/* Of a shared mapping: puts private memory with the same contents in the place of [p, p + bytes), so that who writes by
 * another mapping of those pages is not seen here. Whole pages: what else lies in the first and the last keeps its values
 * too, unless it is being written. Where there is no memory for that, the log says so. */
void tutti__take_back(const tutti__comm *comm, const void *p, size_t bytes);

#endif
