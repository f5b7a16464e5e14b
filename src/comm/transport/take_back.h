/* take_back.h -- makes memory that others may still write private to the program again.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_TRANSPORT_TAKE_BACK_H
#define TUTTI_COMM_TRANSPORT_TAKE_BACK_H

#include "comm/core/failure.h"

/* Of a shared mapping: replaces [p, p + bytes) by private memory with the same contents, so that writes through other
 * mappings of those pages are not seen here. Whole pages: other data in the first and the last keep their values too,
 * unless they are being written. If there is no memory for that, it logs so. */
void tutti__take_back(const tutti__comm *comm, const void *p, size_t bytes);

#endif
