/* checkpoint_path.h -- a path for the checkpoint of a test, in a folder of its own.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_CHECKPOINT_PATH_H
#define TUTTI_TESTS_CHECKPOINT_PATH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[64], path[96];

/* Both return 0, or else not. */
static int path_new(void)
{
    strcpy(dir, "/tmp/tutti-checkpoint-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/mlp.ckpt", dir);
    return 0;
}

static int path_remove(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

#endif
