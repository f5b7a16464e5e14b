/* output.c -- keeps outputs of commands from replacing a run's own files.   SPDX-License-Identifier: MIT */
#include "checkpoint/output.h"

#include "checkpoint/checkpoint_folder.h"

#include <errno.h>
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
    char copy[PATH_MAX], last[PATH_MAX];
    const char *owner, *dir;
    struct stat st;

    if (!*path)
        return tutti__fail(TUTTI_ERR_ARG, "%s is empty; expected a file", flag);
    if (strlen(path) >= sizeof copy)
        return tutti__fail(TUTTI_ERR_ARG, "%s %.60s...: the path is too long", flag, path);
    if (strcmp(path, "-") == 0)
        return TUTTI_OK;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return tutti__fail(TUTTI_ERR_ARG, "%s %s is a folder; expected a file", flag, path);
        if (!S_ISREG(st.st_mode)) /* a pipe or a device */
            return TUTTI_OK;
    }
    /* If nothing is there yet, glibc gives the path up to what is missing, also through a link. */
    if (!realpath(path, last) && errno != ENOENT)
        return TUTTI_OK;
    strcpy(copy, last);
    dir = dirname(copy);
    owner = owner_of(dir, basename(last));
    return owner ? tutti__fail(TUTTI_ERR_ARG,
                               "%s %s would write into a %s, %s, whose own files must stay as they "
                               "are; name a file elsewhere",
                               flag, path, owner, dir)
                 : TUTTI_OK;
}

tutti_status tutti__output_try(const char *path)
{
    tutti__replacement r;
    struct stat st;

    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return TUTTI_OK;
    TUTTI_TRY(tutti__replace_begin(&r, path));
    tutti__replace_end(&r, TUTTI_ERR_STATE, false); /* discards it */
    return TUTTI_OK;
}
