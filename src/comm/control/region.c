/* region.c -- memory that ranks of one host share.   SPDX-License-Identifier: MIT */
#include "comm/control/region.h"

#include "comm/core/shared_mapping.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* At the beginning, in its own page. */
typedef struct region_head {
    size_t mapped;
    _Atomic uint32_t users; /* if they are threads of one process */
} region_head;

static void set(tutti__region *region, bool one_process, void *mapping, size_t mapped)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    *region = (tutti__region){.p = (char *)mapping + page,
                              .bytes = mapped - page,
                              .one_process = one_process,
                              .mapping = mapping,
                              .mapped = mapped};
}

/* *fd_p: -1 for one process. 0 or an errno. */
static int make(size_t bytes, size_t used, bool one_process, int *fd_p, tutti__region *region)
{
    void *mapping = NULL;
    int error = 0;

    *fd_p = -1;
    if (!one_process)
        error = tutti__shared_mapping_make(bytes, used, fd_p, &mapping, NULL);
    else if (!tutti__fits_memory(used))
        error = ENOMEM;
    else if ((mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                             0)) == MAP_FAILED)
        error = errno;
    if (!error)
        set(region, one_process, mapping, bytes);
    return error;
}

void tutti__region_make(tutti__control *control, const int *ranks, int n, bool one_process,
                        size_t bytes, size_t used, tutti__region *region)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + 2 * page - 1) / page * page;
    int fd, error;

    *region = (tutti__region){0};
    error = make(mapped, used, one_process, &fd, region);
    if (error) { /* an empty handle */
        tutti__control_spread_handle(control, ranks, n, -1, 0);
        return;
    }
    ((region_head *)region->mapping)->mapped = mapped;
    atomic_store(&((region_head *)region->mapping)->users, (uint32_t)n);
    tutti__control_spread_handle(control, ranks, n, fd,
                                 one_process ? (uint64_t)(uintptr_t)region->mapping : 0);
    if (fd >= 0)
        close(fd);
}

/* 0 or an errno. */
static int map(int fd, tutti__region *region)
{
    struct stat status;
    void *mapping;
    int error = fstat(fd, &status) != 0
                    ? errno
                    : tutti__shared_mapping_take(fd, (size_t)status.st_size, &mapping);

    close(fd);
    if (!error)
        set(region, false, mapping, (size_t)status.st_size);
    return error;
}

int tutti__region_take(tutti__control *control, const int *ranks, int n, int i, bool one_process,
                       double deadline, tutti__region *region)
{
    tutti__handed handed;
    int error = tutti__control_take_spread(control, ranks, n, i, &handed, deadline);

    *region = (tutti__region){.handed = handed};
    if (error || (handed.fd < 0 && handed.number == 0))
        return error;
    if (one_process) {
        region_head *head = (region_head *)(uintptr_t)handed.number;

        set(region, true, head, head->mapped);
        return 0;
    }
    return map(handed.fd, region);
}

void tutti__region_drop(tutti__region *region)
{
    region_head *head = region->mapping;

    if (head && (!region->one_process || atomic_fetch_sub(&head->users, 1) == 1))
        munmap(region->mapping, region->mapped);
    *region = (tutti__region){0};
}
