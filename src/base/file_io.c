/* file_io.c -- folders; files written and read whole.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tutti__is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

tutti_status tutti__make_dirs(const char *path)
{
    char part[4096];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof part)
        return tutti__fail(TUTTI_ERR_ARG, "folder \"%.60s\": the path is empty or too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return tutti__fail_errno(errno, "cannot make folder %s", part);
    }
    return TUTTI_OK;
}

tutti_status tutti__write_all(int fd, const char *path, const void *p, size_t bytes)
{
    const char *next = p;

    while (bytes > 0) {
        ssize_t n = write(fd, next, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tutti__fail_errno(errno, "cannot write %s", path);
        next += n;
        bytes -= (size_t)n;
    }
    return TUTTI_OK;
}

tutti_status tutti__read_text(const char *what, const char *path, const char *expected, size_t most,
                              char **text_p)
{
    struct stat st = {.st_mode = S_IFREG};
    FILE *file;
    char *text;
    size_t n = 0;
    int problem;

    *text_p = NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s%s is a pipe or a device; expected a file, which every process reads",
                           what, path);
    file = fopen(path, "re");
    problem = file ? 0 : errno;
    text = file ? malloc(most + 1) : NULL;
    if (text) {
        errno = 0;
        n = fread(text, 1, most, file);
        problem = ferror(file) ? errno : 0; /* EISDIR, for one */
        text[n] = '\0';
    }
    if (file)
        fclose(file);
    if (!text && !problem)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    if (!problem && n < most && strlen(text) == n) {
        *text_p = text;
        return TUTTI_OK;
    }
    free(text);
    if (problem)
        return tutti__fail(TUTTI_ERR_ARG, "%s%s: %s%s", what, path, strerror(problem), expected);
    return tutti__fail(TUTTI_ERR_ARG, "%s%s is no text of less than %zu bytes", what, path, most);
}

bool tutti__slurp(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = 0;

    while (fd >= 0 && used < bytes - 1 && (n = read(fd, text + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    if (fd >= 0)
        close(fd);
    if (used > 0 && text[used - 1] == '\n')
        used--;
    text[used] = '\0';
    return fd >= 0 && n >= 0;
}
