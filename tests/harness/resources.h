/* resources.h -- what this process has open, for tests and benches that expect it not to grow.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_HARNESS_RESOURCES_H
#define TUTTI_TESTS_HARNESS_RESOURCES_H

#include <dirent.h>
#include <stdio.h>

/* Entries of a folder, without "." and "..". The one by which /proc/self/fd is read counts itself, so only differences mean
 * something there. */
static inline int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int n = 0;

    while (folder && (entry = readdir(folder)) != NULL)
        n += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return n;
}

static inline int count_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

static inline int count_threads(void)
{
    return count_entries("/proc/self/task");
}

static inline int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    int n = 0;

    for (int c; maps && (c = fgetc(maps)) != EOF;)
        n += c == '\n';
    if (maps)
        fclose(maps);
    return n;
}

#endif
