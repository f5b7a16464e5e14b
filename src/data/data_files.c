/* data_files.c -- reading files that may be missing, truncated or not files at all.   SPDX-License-Identifier: MIT */
#include "data/data_files.h"

#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tutti_status tutti__open_file(const char *path, int *fd_p, uint64_t *bytes_p)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot open %s", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return tutti__fail(TUTTI_ERR_IO, "%s is not a regular file", path);
    }
    *fd_p = fd;
    *bytes_p = (uint64_t)st.st_size;
    return TUTTI_OK;
}

tutti_status tutti__read_at(int fd, const char *path, uint64_t offset, void *p, size_t bytes)
{
    char *next = p;

    while (bytes > 0) {
        ssize_t n = pread(fd, next, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tutti__fail_errno(errno, "cannot read %s at byte %llu", path,
                                     (unsigned long long)offset);
        if (n == 0)
            return tutti__fail(
                TUTTI_ERR_FORMAT,
                "%s ends at byte %llu, expected %zu byte%s more: was it cut while open?", path,
                (unsigned long long)offset, bytes, tutti__s(bytes));
        next += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return TUTTI_OK;
}

tutti_status tutti__read_file(const char *path, size_t limit, uint8_t **p, size_t *bytes_p)
{
    uint64_t bytes;
    uint8_t *text = NULL;
    tutti_status status = TUTTI_OK;
    int fd;

    TUTTI_TRY(tutti__open_file(path, &fd, &bytes));
    if (bytes > limit)
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s has %llu bytes, expected at most %zu", path,
                             (unsigned long long)bytes, limit);
    else if (!(text = malloc((size_t)bytes + 1)))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    if (status == TUTTI_OK)
        status = tutti__read_at(fd, path, 0, text, (size_t)bytes);
    close(fd);
    if (status != TUTTI_OK) {
        free(text);
        return status;
    }
    text[bytes] = '\0';
    *p = text;
    *bytes_p = (size_t)bytes;
    return TUTTI_OK;
}

static tutti_status holds_any(bool *holds_p, const char *dir, const char *const *files, size_t n)
{
    char path[4096];

    *holds_p = false;
    for (size_t i = 0; i < n; i++) {
        TUTTI_TRY(tutti__path(path, dir, files[i]));
        if (access(path, F_OK) == 0)
            *holds_p = true;
    }
    return TUTTI_OK;
}

tutti_status tutti__with_origin(tutti_status status, const char *origin)
{
    return status == TUTTI_ERR_NOT_FOUND ? tutti__fail(status, "%s. %s", tutti_last_error(), origin)
                                         : status;
}

tutti_status tutti__find_folder(char found[4096], const char *dir, const char *const *subs,
                                size_t n_subs, const char *const *files, size_t n)
{
    struct stat st;
    char path[4096];
    const char *sub = NULL;
    bool holds;

    if (stat(dir, &st) != 0)
        return tutti__fail_errno(errno, "data folder %s", dir);
    if (!S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_NOT_FOUND, "data folder %s is not a folder", dir);
    TUTTI_TRY(holds_any(&holds, dir, files, n));
    if (holds) {
        strcpy(found, dir); /* it fits, as it could be joined above */
        return TUTTI_OK;
    }
    for (size_t i = 0; i < n_subs; i++) {
        TUTTI_TRY(tutti__path(path, dir, subs[i]));
        TUTTI_TRY(holds_any(&holds, path, files, n));
        if (holds && sub)
            return tutti__fail(TUTTI_ERR_ARG, "%s holds %s and %s; name one of them: %s/%s", dir,
                               sub, subs[i], dir, sub);
        if (holds)
            sub = subs[i];
    }
    if (!sub)
        return tutti__fail(TUTTI_ERR_NOT_FOUND, "there is no %s in %s or %s/%s", files[0], dir, dir,
                           subs[0]);
    return tutti__path(found, dir, sub);
}
