/* user_secret.c -- the secret that all jobs of a user share, if none was given.
 * SPDX-License-Identifier: MIT
 *
 * A line of 32 random bytes in hexadecimal, in a file of mode 0600 under the user's home, which the hosts of a cluster
 * share. The first process that needs it makes it: link() creates the complete file exactly once, even if ranks on several
 * hosts try at the same time. */
#include "comm/bootstrap/user_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, FOLDER = PATH_MAX - 64, TRIES = 50, PAUSE_MS = 20 };

/* XDG_CONFIG_HOME, or HOME and a folder in it; false: why there is none. */
static bool find_folder(char folder[FOLDER], char *why, size_t capacity)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME"), *base = home;
    struct stat info;
    int n;

    if (config && *config == '/') {
        base = config;
        n = snprintf(folder, FOLDER, "%s/tutti", config);
    } else if (home && *home == '/') {
        n = snprintf(folder, FOLDER, "%s/.config/tutti", home);
    } else {
        snprintf(why, capacity, "HOME is not set");
        return false;
    }
    if (n >= FOLDER) {
        snprintf(why, capacity, "the path of the home folder is too long");
        return false;
    }
    /* A folder of another user, as under sudo, is unsuitable for a file that its owner must be able to read. A
     * configuration folder that does not exist yet is accepted. */
    if (stat(base, &info) == 0 ? info.st_uid == geteuid() : base == config)
        return true;
    snprintf(why, capacity, "%.200s %s", base,
             stat(base, &info) == 0 ? "belongs to another user" : "does not exist");
    return false;
}

/* Writes a new secret to a temporary file and links it to the name, unless another process was faster. 0, or an errno. */
static int make_file(const char *folder, const char *path)
{
    char temporary[PATH_MAX], text[2 * SECRET_BYTES + 2];
    uint8_t bytes[SECRET_BYTES];
    int fd, error = 0;

    snprintf(temporary, sizeof temporary, "%s", folder);
    *strrchr(temporary, '/') = '\0';
    if (*temporary && tutti__make_dirs(temporary) != TUTTI_OK)
        return errno ? errno : EACCES;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return errno;
    snprintf(temporary, sizeof temporary, "%s/secret.XXXXXX", folder);
    fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return errno;
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(text, sizeof text, bytes, sizeof bytes);
    strcat(text, "\n");
    if (tutti__write_all(fd, temporary, text, strlen(text)) != TUTTI_OK || fsync(fd) != 0)
        error = errno ? errno : EIO;
    /* Some file systems have no links. */
    if (!error && link(temporary, path) != 0 && errno != EEXIST)
        error =
            renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0 || errno == EEXIST
                ? 0
                : errno;
    close(fd);
    unlink(temporary);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(text, sizeof text);
    return error;
}

/* Another host may have made it a moment ago, which NFS does not show yet. */
static int open_or_make(const char *folder, const char *path, int *fd_p)
{
    int error = ENOENT;

    *fd_p = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    for (int i = 0; i < TRIES && *fd_p < 0; i++) {
        if (errno != ENOENT)
            return errno;
        if (i == 0)
            error = make_file(folder, path);
        else
            poll(NULL, 0, PAUSE_MS);
        if (i == 0 && error)
            return error;
        *fd_p = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    }
    return *fd_p >= 0 ? 0 : errno;
}

static tutti_status read_secret(int fd, tutti__user_secret *secret)
{
    struct stat info;
    ssize_t n;

    if (fstat(fd, &info) != 0)
        return tutti__fail_errno(errno, "cannot read %s", secret->path);
    if (!S_ISREG(info.st_mode))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s, the secret of this user's jobs, is not a regular file: remove it, "
                           "and the next job makes one",
                           secret->path);
    if (info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s, the secret of this user's jobs, belongs to user %ld and has mode "
                           "%04o; expected user %ld and 0600: chmod 600 it, or remove it, and the "
                           "next job makes another",
                           secret->path, (long)info.st_uid, (unsigned)(info.st_mode & 07777),
                           (long)geteuid());
    n = read(fd, secret->text, sizeof secret->text - 1);
    if (n < 0)
        return tutti__fail_errno(errno, "cannot read %s", secret->path);
    while (n > 0 && strchr("\r\n \t", secret->text[n - 1]))
        n--;
    secret->text[n] = '\0';
    if (n < SECRET_BYTES)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s, the secret of this user's jobs, holds %zd characters, expected at "
                           "least %d: remove it, and the next job makes another",
                           secret->path, n, SECRET_BYTES);
    return TUTTI_OK;
}

tutti_status tutti__user_secret_read(tutti__user_secret *secret)
{
    char folder[FOLDER], message[2048];
    int error, fd;
    tutti_status status;

    *secret = (tutti__user_secret){0};
    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (!find_folder(folder, secret->why_none, sizeof secret->why_none))
        return TUTTI_OK;
    snprintf(secret->path, sizeof secret->path, "%s/secret", folder);
    errno = 0;
    error = open_or_make(folder, secret->path, &fd);
    if (error) {
        snprintf(secret->why_none, sizeof secret->why_none, "%.200s: %s", secret->path,
                 strerror(error));
        (void)tutti__fail_again(TUTTI_OK, message);
        return TUTTI_OK;
    }
    status = read_secret(fd, secret);
    close(fd);
    return status;
}
