/* replace.c -- temporary file, lock, fsync, rename, fsync of the folder.   SPDX-License-Identifier: MIT */
#include "checkpoint/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_MS = 60000, NAP_MS = 5, LOOKS = 100 };

/* Makes a rename in path's folder last. Some file systems cannot; then there is nothing more to do. */
static tutti_status sync_folder(const char *path)
{
    char copy[4096];
    int fd, error = 0;

    snprintf(copy, sizeof copy, "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return TUTTI_OK;
    if (fsync(fd) != 0 && (errno == EIO || errno == ENOSPC))
        error = errno;
    close(fd);
    return error ? tutti__fail_errno(error, "cannot make %s durable", path) : TUTTI_OK;
}

/* Waits for whoever holds the file, but not for ever: it may be somebody who never lets go. Where files cannot be locked, nobody
 * holds it. */
static tutti_status lock(int fd, const char *path)
{
    const struct timespec nap = {0, NAP_MS * 1000000};

    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += NAP_MS) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return TUTTI_OK;
        if (waited >= LOCK_MS)
            return tutti__fail(TUTTI_ERR_IO,
                               "cannot write %s: another process has held it for %d s; end that "
                               "one, or write elsewhere",
                               path, LOCK_MS / 1000);
        nanosleep(&nap, NULL);
    }
    return TUTTI_OK;
}

/* Opens the temporary file, empty, once nobody else writes it: ranks that all save to one path do so one after the other,
 * each a whole file. The lock lasts until the close, which therefore comes after the rename. */
static tutti_status open_alone(tutti__replacement *r)
{
    struct stat mine, there;

    for (int look = 0;; look++) {
        tutti_status status;

        r->fd = open(r->temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (r->fd < 0)
            return tutti__fail_errno(errno, "cannot write %s", r->temporary);
        status = lock(r->fd, r->temporary);
        /* It may have been renamed or removed while we waited. File systems that number a file anew at each look are believed
         * in the end. */
        if (status == TUTTI_OK && look < LOOKS &&
            (fstat(r->fd, &mine) != 0 || stat(r->temporary, &there) != 0 ||
             mine.st_ino != there.st_ino || mine.st_dev != there.st_dev)) {
            close(r->fd);
            continue;
        }
        if (status == TUTTI_OK && fstat(r->fd, &mine) == 0 && S_ISREG(mine.st_mode) &&
            mine.st_size > 0 && ftruncate(r->fd, 0) != 0)
            status = tutti__fail_errno(errno, "cannot empty %s", r->temporary);
        if (status != TUTTI_OK)
            close(r->fd);
        return status;
    }
}

/* A pipe that nobody reads is an error, not a wait. */
static tutti_status open_special(tutti__replacement *r)
{
    r->in_place = true;
    r->writing = r->path;
    r->fd = open(r->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (r->fd < 0 || fcntl(r->fd, F_SETFL, 0) != 0)
        return tutti__fail_errno(errno, "cannot write %s", r->path);
    return TUTTI_OK;
}

tutti_status tutti__replace_begin(tutti__replacement *r, const char *path)
{
    char target[PATH_MAX];
    struct stat info;

    *r = (tutti__replacement){.fd = -1};
    r->writing = r->temporary;
    if (stat(path, &info) == 0 && realpath(path, target))
        path = target;
    else
        info.st_mode = S_IFREG;
    if (snprintf(r->path, sizeof r->path, "%s", path) >= (int)sizeof r->path ||
        snprintf(r->temporary, sizeof r->temporary, "%s.tmp", path) >= (int)sizeof r->temporary)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", path);
    if (S_ISDIR(info.st_mode))
        return tutti__fail(TUTTI_ERR_ARG, "cannot write %s: it is a folder", path);
    return S_ISREG(info.st_mode) ? open_alone(r) : open_special(r);
}

tutti_status tutti__replace_end(tutti__replacement *r, tutti_status status)
{
    if (status == TUTTI_OK && fsync(r->fd) != 0 && errno != EINVAL && errno != EROFS)
        status = tutti__fail_errno(errno, "cannot write %s", r->writing);
    if (r->in_place) {
        close(r->fd);
        return status;
    }
    if (status == TUTTI_OK && rename(r->temporary, r->path) != 0)
        status = tutti__fail_errno(errno, "cannot rename %s to %s", r->temporary, r->path);
    if (status != TUTTI_OK)
        unlink(r->temporary);
    close(r->fd); /* all is synced: there is no error left to come */
    return status == TUTTI_OK ? sync_folder(r->path) : status;
}
