/* output.c -- keeps outputs of commands from replacing a run's own files.   SPDX-License-Identifier: MIT */
#include "checkpoint/output.h"

#include "checkpoint/folder.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The kind of folder whose file this would be; NULL: of none. */
static const char *owner_of(const char *dir, const char *name)
{
    static const char *const files[] = {"config.json", "metrics.jsonl", "summary.json",
                                        "model.safetensors", ".lock"};

    if (tutti__is_checkpoint(dir))
        return "checkpoint";
    for (size_t i = 0; i < TUTTI__COUNT_OF(files); i++)
        if (strcmp(name, files[i]) == 0 && tutti__folder_holds(dir, "config.json") &&
            tutti__folder_holds(dir, "metrics.jsonl"))
            return "run";
    return NULL;
}

tutti_status tutti__output_check(const char *flag, const char *path)
{
    char dir[PATH_MAX], copy[PATH_MAX], last[PATH_MAX];
    const char *owner;
    struct stat st;

    if (!*path)
        return tutti__fail(TUTTI_ERR_ARG, "%s is empty; expected a file", flag);
    if (strlen(path) >= sizeof copy)
        return tutti__fail(TUTTI_ERR_ARG, "%s %.60s...: the path is too long", flag, path);
    if (strcmp(path, "-") == 0)
        return TUTTI_OK;
    strcpy(last, path);
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return tutti__fail(TUTTI_ERR_ARG, "%s %s is a folder; expected a file", flag, path);
        if (!S_ISREG(st.st_mode) || !realpath(path, last)) /* a pipe or a device */
            return TUTTI_OK;
    }
    strcpy(copy, last);
    if (!realpath(dirname(copy), dir))
        return TUTTI_OK;
    owner = owner_of(dir, basename(last));
    return owner ? tutti__fail(TUTTI_ERR_ARG,
                               "%s %s would write into a %s, %s, whose own files must stay as they "
                               "are; name a file elsewhere",
                               flag, path, owner, dir)
                 : TUTTI_OK;
}
