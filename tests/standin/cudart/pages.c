/* pages.c -- the driver's virtual memory: addresses, memory, and which is where.   SPDX-License-Identifier: MIT
 *
 * Memory is a file, of which parts are mapped. What is unmapped cannot be accessed, so work that still uses it ends the process. */
#include "standin/cudart/cudart.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define POISON 0xff

/* Memory, from cuMemCreate. Its number is the address of this. */
typedef struct memory {
    size_t at, bytes;  /* of the file */
    int device, users; /* the handle, and mappings */
} memory;

/* A page of addresses. */
typedef struct place {
    memory *memory; /* NULL: nothing is mapped */
    size_t offset;  /* in the memory */
    bool open;
} place;

typedef struct range {
    struct range *next;
    unsigned char *p;
    size_t n;
    place *places;
} range;

static struct {
    size_t page, end;
    int file;
    range *ranges;
} v = {.file = -1};

static size_t page_bytes(void)
{
    const char *text = getenv("STANDIN_CUDA_PAGE");

    if (v.page == 0)
        v.page = text && *text ? (size_t)atoll(text) : 4096;
    return v.page;
}

/* As run-time errors are: the last one is not kept. */
static CUresult leave(CUresult error)
{
    (void)standin_leave(cudaSuccess);
    return error;
}

static range *range_of(CUdeviceptr p, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)(uintptr_t)p;

    for (range *r = v.ranges; r; r = r->next)
        if (at >= r->p && at + bytes <= r->p + r->n * v.page)
            return r;
    return NULL;
}

/* Neighbours that may be accessed, together. */
void standin_protect_pages(int protection)
{
    for (const range *r = v.ranges; r; r = r->next)
        for (size_t i = 0, first; i < r->n; i++) {
            for (first = i; i < r->n && r->places[i].open; i++)
                ;
            if (first < i && mprotect(r->p + first * v.page, (i - first) * v.page, protection) != 0)
                abort();
        }
}

bool standin_holds_pages(const void *p, size_t bytes)
{
    const range *r = range_of((CUdeviceptr)(uintptr_t)p, bytes);
    const size_t at = r ? (size_t)((const unsigned char *)p - r->p) : 0;

    for (size_t i = at / page_bytes(); r && i < (at + bytes + v.page - 1) / v.page; i++)
        if (!r->places[i].open)
            return false;
    return r != NULL;
}

static CUresult get_error_name(CUresult error, const char **name_p)
{
    *name_p =
        error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice index)
{
    (void)index;
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult get_granularity(size_t *bytes, const CUmemAllocationProp *properties,
                                CUmemAllocationGranularity_flags option)
{
    (void)properties;
    (void)option;
    *bytes = page_bytes();
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr at,
                        unsigned long long flags)
{
    range *r = calloc(1, sizeof *r);
    void *addresses =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)flags;
    if (!r || addresses == MAP_FAILED || bytes % page_bytes() != 0 || alignment || at)
        return CUDA_ERROR_INVALID_VALUE;
    *r = (range){.p = addresses, .n = bytes / v.page};
    r->places = calloc(r->n, sizeof *r->places);
    standin_enter();
    r->next = v.ranges;
    v.ranges = r;
    *p = (CUdeviceptr)(uintptr_t)addresses;
    return leave(CUDA_SUCCESS);
}

static CUresult free_addresses(CUdeviceptr p, size_t bytes)
{
    standin_enter();
    for (range **link = &v.ranges; *link; link = &(*link)->next) {
        range *r = *link;

        if (r->p != (unsigned char *)(uintptr_t)p || r->n * v.page != bytes)
            continue;
        for (size_t i = 0; i < r->n; i++)
            if (r->places[i].memory)
                return leave(CUDA_ERROR_INVALID_VALUE);
        *link = r->next;
        munmap(r->p, bytes);
        free(r->places);
        free(r);
        return leave(CUDA_SUCCESS);
    }
    return leave(CUDA_ERROR_INVALID_VALUE);
}

static void *map_file(void *at, size_t bytes, int protection, size_t offset)
{
    return mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), v.file, (off_t)offset);
}

/* New memory has NaNs. */
static bool fill(const memory *m)
{
    void *p = map_file(NULL, m->bytes, PROT_READ | PROT_WRITE, m->at);

    if (p == MAP_FAILED)
        return false;
    memset(p, POISON, m->bytes);
    munmap(p, m->bytes);
    return true;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    const int index = properties->location.id;
    memory *m = calloc(1, sizeof *m);

    (void)flags;
    standin_enter();
    standin_count_wait("cuMemCreate");
    if (!m || bytes == 0 || bytes % page_bytes() != 0)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (v.file < 0)
        v.file = memfd_create("standin cuda", MFD_CLOEXEC);
    *m = (memory){.at = v.end, .bytes = bytes, .device = index, .users = 1};
    if (bytes > s.memory - s.device[index].used || v.file < 0 ||
        ftruncate(v.file, (off_t)(v.end + bytes)) != 0 || !fill(m)) {
        free(m);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    v.end += bytes;
    s.device[index].used += bytes;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)m;
    return leave(CUDA_SUCCESS);
}

static void let_go(memory *m)
{
    if (--m->users > 0)
        return;
    (void)!fallocate(v.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)m->at,
                     (off_t)m->bytes);
    s.device[m->device].used -= m->bytes;
    free(m);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    standin_enter();
    let_go((memory *)(uintptr_t)handle);
    return leave(CUDA_SUCCESS);
}

static CUresult map(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    memory *m = (memory *)(uintptr_t)handle;
    range *r;
    size_t first;

    (void)flags;
    standin_enter();
    r = range_of(p, bytes);
    if (!r || offset || bytes != m->bytes || (uintptr_t)p % v.page != 0)
        return leave(CUDA_ERROR_INVALID_VALUE);
    first = (size_t)((unsigned char *)(uintptr_t)p - r->p) / v.page;
    for (size_t i = 0; i < bytes / v.page; i++)
        if (r->places[first + i].memory)
            return leave(CUDA_ERROR_INVALID_VALUE);
    if (map_file((void *)(uintptr_t)p, bytes, PROT_NONE, m->at) == MAP_FAILED)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < bytes / v.page; i++)
        r->places[first + i] = (place){.memory = m, .offset = i * v.page};
    m->users++;
    return leave(CUDA_SUCCESS);
}

static CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
    range *r;
    size_t first;

    (void)access;
    standin_enter();
    r = range_of(p, bytes);
    if (!r || n != 1)
        return leave(CUDA_ERROR_INVALID_VALUE);
    first = (size_t)((unsigned char *)(uintptr_t)p - r->p) / v.page;
    for (size_t i = 0; i < bytes / v.page; i++)
        if (!r->places[first + i].memory)
            return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < bytes / v.page; i++)
        r->places[first + i].open = true;
    if (s.open > 0)
        (void)mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE);
    return leave(CUDA_SUCCESS);
}

/* Whole mappings only. */
static CUresult unmap(CUdeviceptr p, size_t bytes)
{
    range *r;
    size_t first;

    standin_enter();
    r = range_of(p, bytes);
    if (!r)
        return leave(CUDA_ERROR_INVALID_VALUE);
    first = (size_t)((unsigned char *)(uintptr_t)p - r->p) / v.page;
    for (size_t i = 0; i < bytes / v.page; i++)
        if (!r->places[first + i].memory)
            return leave(CUDA_ERROR_INVALID_VALUE);
    if (mmap((void *)(uintptr_t)p, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    for (size_t i = 0; i < bytes / v.page; i++) {
        place *q = &r->places[first + i];
        memory *m = q->memory;
        const bool is_first = q->offset == 0;

        *q = (place){0};
        if (is_first)
            let_go(m);
    }
    return leave(CUDA_SUCCESS);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **p, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } all[] = {
        {"cuGetErrorName", (void (*)(void))get_error_name},
        {"cuDeviceGetAttribute", (void (*)(void))get_attribute},
        {"cuMemGetAllocationGranularity", (void (*)(void))get_granularity},
        {"cuMemAddressReserve", (void (*)(void))reserve},
        {"cuMemAddressFree", (void (*)(void))free_addresses},
        {"cuMemCreate", (void (*)(void))create},
        {"cuMemRelease", (void (*)(void))release},
        {"cuMemMap", (void (*)(void))map},
        {"cuMemSetAccess", (void (*)(void))set_access},
        {"cuMemUnmap", (void (*)(void))unmap},
    };

    (void)version;
    (void)flags;
    *p = NULL;
    *result = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(symbol, all[i].name) == 0) {
            memcpy(p, &all[i].function, sizeof *p);
            *result = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
