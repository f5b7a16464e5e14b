/* data.c -- holds the place of `tutti data` until its own file replaces it.   SPDX-License-Identifier: MIT */
#include "cli/cli.h"

#include <stdio.h>

int tutti__cli_data(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr, "tutti %s: not in this build yet\n", argv[0]);
    return 2;
}
