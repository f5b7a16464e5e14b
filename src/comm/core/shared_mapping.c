/* shared_mapping.c -- memory that processes of one host share.   SPDX-License-Identifier: MIT */
#include "comm/core/shared_mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Growing a file past this limit would end the process with SIGXFSZ. */
static bool file_may_have(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

static int grow_and_map(int fd, size_t bytes, void **mapping_p, const char **step_p)
{
    *step_p = "growing shared memory (ulimit -f)";
    if (!file_may_have(bytes))
        return EFBIG;
    if (ftruncate(fd, (off_t)bytes) != 0)
        return errno;
    *step_p = "mmap of shared memory";
    return tutti__shared_mapping_take(fd, bytes, mapping_p);
}

int tutti__shared_mapping_make(size_t bytes, size_t used, int *fd_p, void **mapping_p,
                               const char **step_p)
{
    const char *step;
    int error;

    step_p = step_p ? step_p : &step;
    *step_p = "more shared memory than this host has";
    if (!tutti__fits_memory(used))
        return ENOMEM;
    *step_p = "memfd_create";
    *fd_p = memfd_create("tutti", MFD_CLOEXEC);
    if (*fd_p < 0)
        return errno;
    error = grow_and_map(*fd_p, bytes, mapping_p, step_p);
    if (error)
        close(*fd_p);
    return error;
}

int tutti__shared_mapping_take(int fd, size_t bytes, void **mapping_p)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return errno;
    *mapping_p = p;
    return 0;
}
