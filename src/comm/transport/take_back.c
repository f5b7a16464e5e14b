/* take_back.c -- replaces shared memory by private memory.   SPDX-License-Identifier: MIT */
#include "comm/transport/take_back.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void tutti__take_back(const tutti__comm *comm, const void *p, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *begin = (char *)((uintptr_t)p / page * page);
    size_t whole = ((size_t)((const char *)p - begin) + bytes + page - 1) / page * page;
    void *copy = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy != MAP_FAILED) {
        memcpy(copy, begin, whole);
        /* Not by the C library's mremap: UCX replaces that by its own, which loses the last argument. */
        if (syscall(SYS_mremap, copy, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, begin) != -1)
            return;
        munmap(copy, whole);
    }
    tutti_log(TUTTI_LOG_WARN, "comm",
              "no memory for a private copy of %zu bytes of group \"%s\": a peer that was stopped "
              "may still write to them when it continues",
              bytes, comm->name);
}
