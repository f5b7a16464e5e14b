/* file_names.c -- the files of a folder, in the order of their names.   SPDX-License-Identifier: MIT */
#include "data/file_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

tutti_status tutti__file_names_add(tutti__file_names *all, const char *name)
{
    char *copy;

    if (all->n == all->room) {
        const size_t room = all->room ? 2 * all->room : 64;
        char **grown = realloc(all->of, room * sizeof *grown);

        if (!grown)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the names of files");
        all->of = grown;
        all->room = room;
    }
    copy = strdup(name);
    if (!copy)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the names of files");
    all->of[all->n++] = copy;
    return TUTTI_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tutti__file_names_sort(tutti__file_names *all)
{
    if (all->n)
        qsort(all->of, all->n, sizeof *all->of, by_name);
}

tutti_status tutti__file_names_list(tutti__file_names *all, const char *dir, const char *end)
{
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d)
        return tutti__fail_errno(errno, "cannot list folder %s", dir);
    errno = 0;
    while (status == TUTTI_OK && (entry = readdir(d))) {
        if (entry->d_name[0] != '.' && tutti__ends_in(entry->d_name, end))
            status = tutti__file_names_add(all, entry->d_name);
        errno = 0;
    }
    if (status == TUTTI_OK && errno)
        status = tutti__fail_errno(errno, "cannot list folder %s", dir);
    closedir(d);
    tutti__file_names_sort(all);
    return status;
}

void tutti__file_names_free(tutti__file_names *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->of[i]);
    free(all->of);
    *all = (tutti__file_names){0};
}
