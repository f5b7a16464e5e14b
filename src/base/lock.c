/* lock.c -- locks of files, which end with the process.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

/* An open file description has the lock, not the process: so threads exclude each other too. */
static int try_lock(int fd, int type, int byte)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    if (byte == TUTTI__WHOLE_FILE)
        lock.l_start = lock.l_len = 0;
    while (fcntl(fd, F_OFD_SETLK, &lock) != 0)
        if (errno != EINTR)
            return errno == EACCES ? EAGAIN : errno;
    return 0;
}

int tutti__lock_file(int fd, int type, int byte, int ms)
{
    const double deadline = tutti__now_ms() + ms;
    int error, tries = 0;

    while ((error = try_lock(fd, type, byte)) == EAGAIN && tutti__now_ms() < deadline)
        poll(NULL, 0, tries++ < 10 ? 0 : 1);
    return error;
}

bool tutti__is_file(int fd, const char *path)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}
