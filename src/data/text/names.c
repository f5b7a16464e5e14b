/* names.c -- the files of a folder, in the order of their names.   SPDX-License-Identifier: MIT */
#include "data/text/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tutti__file_names_free(tutti__file_names *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->of[i]);
    free(all->of);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tutti_status add_name(tutti__file_names *all, const char *name)
{
    if (all->n == all->room) {
        char **more = realloc(all->of, (2 * all->room + 8) * sizeof *more);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the names of files");
        all->of = more;
        all->room = 2 * all->room + 8;
    }
    all->of[all->n] = strdup(name);
    return all->of[all->n++] ? TUTTI_OK
                             : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the names of files");
}

tutti_status tutti__file_names_list(tutti__file_names *all, const char *dir, const char *end)
{
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d)
        return tutti__fail_errno(errno, "cannot list folder %s", dir);
    while (status == TUTTI_OK && (entry = readdir(d)))
        if (entry->d_name[0] != '.' && tutti__ends_in(entry->d_name, end))
            status = add_name(all, entry->d_name);
    closedir(d);
    if (all->n)
        qsort(all->of, all->n, sizeof *all->of, by_name);
    return status;
}
