/* user_secret.h -- the secret that all jobs of a user share.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_USER_SECRET_H
#define TUTTI_COMM_BOOTSTRAP_USER_SECRET_H

#include "base/base.h"

#include <limits.h>

typedef struct tutti__user_secret {
    char text[256];      /* "": none */
    char path[PATH_MAX]; /* of its file */
    char why_none[300];
} tutti__user_secret;

/* Reads the file, and makes it first if there is none. If it cannot be made (no home, a read-only one) there is no secret,
 * and that is not an error. ARG: others could have read it, or written another. */
tutti_status tutti__user_secret_read(tutti__user_secret *secret);

#endif
