/* replace.c -- replaces a file's contents atomically.   SPDX-License-Identifier: MIT
 *
 * They are written to a file that has no name, where the file system and the kernel have such (O_TMPFILE), so that a process that is
 * killed leaves nothing; it then gets a name beside the old one and is renamed. Elsewhere the temporary file has its unique name from
 * the beginning. Readers see the old or the new file, writers do not disturb each other, and a failure leaves the old contents. What is
 * not a regular file (a device, a pipe) is written directly. */
#include "base/base.h"

#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 100 };

tutti_status tutti__fail_open(int error, const char *path)
{
    if (error == ENXIO)
        return tutti__fail(
            TUTTI_ERR_IO,
            "cannot write %s: it is a pipe that nobody reads; start its reader first, or remove it",
            path);
    return tutti__fail_errno(error, "cannot write %s", path);
}

/* A pipe without a reader is an error and does not block; writes to one with a reader may block. */
static tutti_status open_special(tutti__replacement *r, const char *path)
{
    r->fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (r->fd < 0)
        return tutti__fail_open(errno, path);
    fcntl(r->fd, F_SETFL, O_WRONLY);
    return TUTTI_OK;
}

/* A symbolic link is kept, and its target is replaced or created. */
static tutti_status find_target(tutti__replacement *r, const char *path, bool exists)
{
    struct stat info;
    int fd;

    if (!exists && lstat(path, &info) == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) {
            int error = errno;
            ssize_t n = readlink(path, r->target, sizeof r->target - 1);

            return tutti__fail_errno(error, "cannot write %s, a link to %.*s", path,
                                     n > 0 ? (int)n : 0, r->target);
        }
        close(fd);
        exists = true;
    }
    if (exists && realpath(path, r->target))
        return TUTTI_OK;
    if (snprintf(r->target, sizeof r->target, "%s", path) >= (int)sizeof r->target)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", path);
    return TUTTI_OK;
}

/* Gives the open file a name; false: errno. */
static bool link_unnamed(int fd, const char *name)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* target.tmp, or another name if there is such a file: of another writer, or of a killed process. An open file gets the name, or a new
 * file is opened. False: errno, 0 if the path is too long. */
static bool take_temporary_name(tutti__replacement *r)
{
    static atomic_uint turn;
    const int room = (int)sizeof r->temporary;
    int n = snprintf(r->temporary, sizeof r->temporary, "%s.tmp", r->target);

    for (int i = 0; i < NAMES && n < room; i++) {
        if (r->unnamed ? link_unnamed(r->fd, r->temporary)
                       : (r->fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                       0666)) >= 0) {
            r->unnamed = false;
            return true;
        }
        if (errno != EEXIST)
            return false;
        n = snprintf(r->temporary, sizeof r->temporary, "%s.%ld-%u.tmp", r->target, (long)getpid(),
                     atomic_fetch_add(&turn, 1));
    }
    errno = n >= room ? 0 : errno;
    return false;
}

static int open_unnamed(const char *target)
{
    char copy[sizeof((tutti__replacement *)0)->target];

    snprintf(copy, sizeof copy, "%s", target);
    return open(dirname(copy), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

/* Whether a file without a name can get one: not without /proc, nor in a sandbox that refuses the call. Found out once, with an
 * empty file. */
static bool links_unnamed(tutti__replacement *r)
{
    static atomic_int known; /* 1: yes, 2: no */
    int fd;

    if (atomic_load(&known) == 0 && (fd = open_unnamed(r->target)) >= 0) {
        tutti__replacement empty = *r;

        empty.fd = fd;
        empty.unnamed = true;
        atomic_store(&known, take_temporary_name(&empty) && unlink(empty.temporary) == 0 ? 1 : 2);
        close(fd);
    }
    return atomic_load(&known) == 1;
}

static tutti_status open_temporary(tutti__replacement *r)
{
    const int n = snprintf(r->temporary, sizeof r->temporary, "%s.tmp", r->target);

    if (n < (int)sizeof r->temporary && links_unnamed(r) &&
        (r->fd = open_unnamed(r->target)) >= 0) {
        r->unnamed = true;
        return TUTTI_OK;
    }
    if (take_temporary_name(r))
        return TUTTI_OK;
    if (errno == 0)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", r->target);
    if (errno == ENOENT) {
        char copy[sizeof r->target];
        const char *folder;

        strcpy(copy, r->target);
        folder = dirname(copy);
        if (access(folder, F_OK) != 0)
            return tutti__fail(TUTTI_ERR_NOT_FOUND,
                               "cannot write %s: there is no folder %s (mkdir -p makes it)",
                               r->target, folder);
        errno = ENOENT; /* in /proc, where none can be made */
    }
    return tutti__fail_errno(errno, "cannot write %s", r->temporary);
}

/* The folder of a path, and *name_p within it. */
static bool folder_of(const char *path, struct stat *folder, const char **name_p)
{
    const char *slash = strrchr(path, '/');
    char text[4096];

    *name_p = slash ? slash + 1 : path;
    return snprintf(text, sizeof text, "%.*s.", (int)(*name_p - path), path) < (int)sizeof text &&
           stat(text, folder) == 0;
}

bool tutti__same_file(const char *a, const char *b)
{
    const char *name_a, *name_b;
    struct stat x, y;
    const bool is_a = stat(a, &x) == 0, is_b = stat(b, &y) == 0;

    if (is_a != is_b)
        return false;
    if (!is_a &&
        !(folder_of(a, &x, &name_a) && folder_of(b, &y, &name_b) && strcmp(name_a, name_b) == 0))
        return false;
    return (!is_a || S_ISREG(x.st_mode)) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

tutti_status tutti__replace_begin(tutti__replacement *r, const char *path)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;

    *r = (tutti__replacement){.fd = -1};
    if (exists && !S_ISREG(info.st_mode)) {
        snprintf(r->temporary, sizeof r->temporary, "%s", path);
        return open_special(r, path);
    }
    TUTTI_TRY(find_target(r, path, exists));
    return open_temporary(r);
}

tutti_status tutti__sync_file(int fd, const char *path)
{
    /* Some file systems and devices cannot sync. */
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOSYS)
        return tutti__fail_errno(errno, "cannot write %s", path);
    return TUTTI_OK;
}

tutti_status tutti__sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;

    if (fd < 0)
        return TUTTI_OK;
    if (fsync(fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        error = errno;
    close(fd);
    return error ? tutti__fail_errno(error, "cannot make %s durable", path) : TUTTI_OK;
}

tutti_status tutti__replace_end(tutti__replacement *r, tutti_status status, bool durable)
{
    const bool in_place = !r->target[0];

    if (status == TUTTI_OK && durable)
        status = tutti__sync_file(r->fd, r->temporary);
    if (status == TUTTI_OK && r->unnamed && !take_temporary_name(r))
        status = tutti__fail_errno(errno, "cannot make %s", r->temporary);
    if (close(r->fd) != 0 && status == TUTTI_OK)
        status = tutti__fail_errno(errno, "cannot write %s", r->temporary);
    r->fd = -1;
    if (in_place)
        return status;
    if (status == TUTTI_OK && rename(r->temporary, r->target) != 0)
        status = tutti__fail_errno(errno, "cannot rename %s to %s", r->temporary, r->target);
    if (status != TUTTI_OK && !r->unnamed)
        unlink(r->temporary);
    return status == TUTTI_OK && durable ? tutti__sync_folder(dirname(r->target)) : status;
}

/* A signal that ends the process would leave the temporary file behind, where nothing handles it. */
tutti_status tutti__write_file(const char *path, const void *p, size_t bytes)
{
    tutti__replacement r;
    tutti_status status;
    sigset_t kept;

    tutti__hold_signals(&kept);
    status = tutti__replace_begin(&r, path);
    if (status == TUTTI_OK && !r.target[0]) /* a pipe: writing may take for ever */
        pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (status == TUTTI_OK)
        status = tutti__replace_end(&r, tutti__write_all(r.fd, r.temporary, p, bytes), false);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    return status;
}

tutti_status tutti__replace_link(const char *target, const char *path)
{
    char temporary[4096];
    struct stat info;

    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return tutti__fail(TUTTI_ERR_ARG, "link %.60s...: the path is too long", path);
    if (lstat(path, &info) == 0 && !S_ISLNK(info.st_mode))
        return tutti__fail(TUTTI_ERR_IO,
                           "cannot make the link %s: there is something else; move it away", path);
    (void)unlink(temporary);
    if (symlink(target, temporary) != 0)
        return errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS
                   ? TUTTI_OK
                   : tutti__fail_errno(errno, "cannot make the link %s", temporary);
    if (rename(temporary, path) != 0) {
        const int error = errno;

        (void)unlink(temporary);
        return tutti__fail_errno(error, "cannot rename %s to %s", temporary, path);
    }
    return TUTTI_OK;
}
