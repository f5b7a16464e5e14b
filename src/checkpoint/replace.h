/* replace.h -- a file written whole or not at all.   SPDX-License-Identifier: MIT
 *
 *   tutti__replacement r;
 *   TUTTI_TRY(tutti__replace_begin(&r, path));
 *   status = ...writes to r.fd, which r.writing names...
 *   return tutti__replace_end(&r, status);
 *
 * Written is PATH.tmp, which takes PATH's name when all is on the disk: a failure leaves what was there. Processes that write to
 * one path do so one after the other. A link stays a link; a device or a pipe is written to, not replaced. */
#ifndef TUTTI_CHECKPOINT_REPLACE_H
#define TUTTI_CHECKPOINT_REPLACE_H

#include "base/base.h"

typedef struct tutti__replacement {
    int fd;
    bool in_place;
    char path[4096], temporary[4096];
    const char *writing; /* the path that fd is open on, for messages */
} tutti__replacement;

tutti_status tutti__replace_begin(tutti__replacement *r, const char *path);
/* `status`: of the writing. Returns it, or what the end of the work makes of OK. */
tutti_status tutti__replace_end(tutti__replacement *r, tutti_status status);

#endif
