/* strict_device.c -- the CPU as a device whose memory the host cannot touch: for tests.   SPDX-License-Identifier: MIT
 *
 *     region  [ used | free | used      | reserved ...                  ]
 *             ^------- unreadable -------^ but inside kernels and copies
 *
 * All memory is part of one region. A layer that accesses it from outside dies by SIGSEGV at that place. Freed memory, and new
 * memory that is not requested zeroed, is filled with NaNs. Reserved memory is apart, and a page that was given back is unreadable also in kernels. Ranks may be threads of one process: while any of them computes, the
 * memory is accessible to all, so only ranks that are processes find every error. */
#include "device/strict/strict_device.h"
#include "device/flat.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVED ((size_t)16 << 30) /* of address space; pages are allocated when written */
#define PAGE     ((size_t)2 << 20)  /* huge pages, so that mprotect has few to change */
#define POISON   0xff

/* A range of the region. */
typedef struct piece {
    struct piece *before, *after; /* by address */
    struct piece *next_free;      /* among the free ones */
    size_t at, bytes;
    bool used;
} piece;

/* Memory that comes and goes, apart from the region. */
typedef struct range {
    struct range *next;
    unsigned char *p;
    size_t n;
    bool *has; /* by page of the system */
} range;

static struct {
    pthread_mutex_t mutex;
    unsigned char *p; /* NULL: not yet reserved */
    size_t top;       /* bytes used so far, in whole pages */
    unsigned open;    /* number of running kernels and copies */
    piece *last;      /* by address */
    piece *spare;     /* the free ones */
    void *used;       /* the used ones, a tree by address (tsearch) */
    range *ranges;
} region = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- Opening and closing; the mutex is held ------------------------------------------------------------ */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Pages from `begin` to before `end`, of those that have memory. */
static void protect_range(const range *r, size_t begin, size_t end, int protection)
{
    const size_t page = page_bytes();

    for (size_t i = begin, first; i < end; i++) {
        for (first = i; i < end && r->has[i]; i++)
            ;
        if (first < i && mprotect(r->p + first * page, (i - first) * page, protection) != 0)
            abort();
    }
}

static void protect(int protection)
{
    for (const range *r = region.ranges; r; r = r->next)
        protect_range(r, 0, r->n, protection);
    if (region.top > 0 && mprotect(region.p, region.top, protection) != 0)
        abort(); /* the kernel is out of memory for page tables: cannot continue */
}

static void enter(void)
{
    if (region.open++ == 0)
        protect(PROT_READ | PROT_WRITE);
}

static void leave(void)
{
    if (--region.open == 0)
        protect(PROT_NONE);
}

void tutti__strict_open(void)
{
    pthread_mutex_lock(&region.mutex);
    enter();
    pthread_mutex_unlock(&region.mutex);
}

void tutti__strict_close(void)
{
    pthread_mutex_lock(&region.mutex);
    leave();
    pthread_mutex_unlock(&region.mutex);
}

/* ---- Memory ---------------------------------------------------------------------------------------------- */

static tutti_status reserve(void)
{
    void *p;

    if (region.p)
        return TUTTI_OK;
    p = mmap(NULL, RESERVED + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "device strict: cannot reserve %zu bytes of addresses; raise ulimit -v",
                           RESERVED);
    region.p = (unsigned char *)p + (PAGE - (uintptr_t)p % PAGE) % PAGE;
    madvise(region.p, RESERVED, MADV_HUGEPAGE); /* best effort */
    return TUTTI_OK;
}

static int by_address(const void *a, const void *b)
{
    const piece *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* A new free piece after `before`, not yet in the list of spare ones. */
static piece *piece_new(piece *before, size_t at, size_t bytes)
{
    piece *new_piece = tutti__alloc(sizeof *new_piece);

    if (!new_piece)
        return NULL;
    *new_piece = (piece){.before = before, .at = at, .bytes = bytes};
    new_piece->after = before ? before->after : NULL;
    if (before)
        before->after = new_piece;
    if (new_piece->after)
        new_piece->after->before = new_piece;
    else
        region.last = new_piece;
    return new_piece;
}

static void keep_spare(piece *free_piece)
{
    free_piece->next_free = region.spare;
    region.spare = free_piece;
}

/* Removes a free piece of at least this size from the spare ones; if there is none, appends one. */
static piece *find(size_t bytes)
{
    const size_t end = region.last ? region.last->at + region.last->bytes : 0;

    for (piece **link = &region.spare; *link; link = &(*link)->next_free) {
        piece *found = *link;

        if (found->bytes < bytes)
            continue;
        *link = found->next_free;
        return found;
    }
    if (bytes <= RESERVED - end)
        return piece_new(region.last, end, bytes);
    tutti__fail(TUTTI_ERR_MEMORY, "device strict: no %zu bytes are left of %zu", bytes, RESERVED);
    return NULL;
}

/* NULL with the message set. */
static void *take(size_t bytes)
{
    piece *found = find(bytes), *rest;
    size_t end;

    if (!found)
        return NULL;
    if (found->bytes > bytes) {
        rest = piece_new(found, found->at + bytes, found->bytes - bytes);
        if (rest) {
            found->bytes = bytes;
            keep_spare(rest);
        }
    }
    if (!tsearch(found, &region.used, by_address)) {
        keep_spare(found);
        tutti__fail(TUTTI_ERR_MEMORY, "device strict: no memory for a list of what is in use");
        return NULL;
    }
    found->used = true;
    end = (found->at + found->bytes + PAGE - 1) / PAGE * PAGE;
    if (end > region.top) {
        region.top = end;
        if (region.open > 0)
            protect(PROT_READ | PROT_WRITE);
    }
    return region.p + found->at;
}

static void fill(void *p, int byte, size_t bytes)
{
    enter();
    memset(p, byte, bytes);
    leave();
}

static void *strict_alloc(tutti_device device, size_t bytes, bool zeroed)
{
    void *p = NULL;

    (void)device;
    if (bytes > RESERVED) {
        tutti__fail(TUTTI_ERR_MEMORY, "device strict: cannot allocate %zu bytes", bytes);
        return NULL;
    }
    bytes = bytes ? (bytes + 63) / 64 * 64 : 64;
    pthread_mutex_lock(&region.mutex);
    if (reserve() == TUTTI_OK)
        p = take(bytes);
    if (p)
        fill(p, zeroed ? 0 : POISON, bytes);
    pthread_mutex_unlock(&region.mutex);
    return p;
}

static void take_out(const piece *spare)
{
    piece **link = &region.spare;

    while (*link != spare)
        link = &(*link)->next_free;
    *link = spare->next_free;
}

/* Merges a with the free piece after it; neither is in the list. */
static void join(piece *a)
{
    piece *b = a->after;

    a->bytes += b->bytes;
    a->after = b->after;
    if (b->after)
        b->after->before = a;
    else
        region.last = a;
    free(b);
}

/* Nothing is in use: returns the pages, so that processes forked from now on do not share them. */
static void begin_anew(piece *only)
{
    protect(PROT_NONE);
    madvise(region.p, region.top, MADV_DONTNEED);
    region.top = 0;
    region.last = region.spare = NULL;
    free(only);
}

static void strict_free(tutti_device device, void *p)
{
    piece **found, *at;

    (void)device;
    if (!p)
        return;
    pthread_mutex_lock(&region.mutex);
    found =
        tfind(&(piece){.at = (size_t)((unsigned char *)p - region.p)}, &region.used, by_address);
    if (!found)
        abort(); /* freed twice, or never allocated */
    at = *found;
    tdelete(at, &region.used, by_address);
    fill(p, POISON, at->bytes);
    at->used = false;
    if (at->after && !at->after->used) {
        take_out(at->after);
        join(at);
    }
    if (at->before && !at->before->used) {
        at = at->before;
        take_out(at);
        join(at);
    }
    if (at->before || at->after)
        keep_spare(at);
    else
        begin_anew(at);
    pthread_mutex_unlock(&region.mutex);
}

/* ---- Memory that comes and goes -------------------------------------------------------------------------- */

static void *strict_reserve(tutti_device device, size_t bytes)
{
    const size_t page = page_bytes();
    range *r = tutti__alloc(sizeof *r);
    void *p;

    (void)device;
    if (!r)
        return NULL;
    r->n = bytes / page + 1;
    r->has = tutti__alloc(r->n * sizeof *r->has);
    p = r->has
            ? mmap(NULL, r->n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(r->has);
        free(r);
        tutti__fail(TUTTI_ERR_MEMORY, "device strict: no addresses for %zu bytes", bytes);
        return NULL;
    }
    r->p = p;
    pthread_mutex_lock(&region.mutex);
    r->next = region.ranges;
    region.ranges = r;
    pthread_mutex_unlock(&region.mutex);
    return p;
}

static range **range_of(const void *p)
{
    range **link = &region.ranges;

    while (*link && !((const unsigned char *)p >= (*link)->p &&
                      (const unsigned char *)p < (*link)->p + (*link)->n * page_bytes()))
        link = &(*link)->next;
    if (!*link)
        abort(); /* it was never reserved */
    return link;
}

static void strict_unreserve(tutti_device device, void *p, size_t bytes)
{
    range **link, *r;

    (void)device;
    (void)bytes;
    if (!p)
        return;
    pthread_mutex_lock(&region.mutex);
    link = range_of(p);
    r = *link;
    *link = r->next;
    pthread_mutex_unlock(&region.mutex);
    munmap(r->p, r->n * page_bytes());
    free(r->has);
    free(r);
}

static tutti_status strict_back(tutti_device device, void *p, size_t bytes, bool stays)
{
    const size_t page = page_bytes();
    const range *r;
    size_t at;

    (void)device;
    (void)stays;
    if (bytes == 0)
        return TUTTI_OK;
    pthread_mutex_lock(&region.mutex);
    enter();
    r = *range_of(p);
    at = (size_t)((unsigned char *)p - r->p);
    for (size_t i = at / page; i < (at + bytes + page - 1) / page; i++) {
        if (r->has[i])
            continue;
        r->has[i] = true;
        protect_range(r, i, i + 1, PROT_READ | PROT_WRITE);
        memset(r->p + i * page, POISON, page);
    }
    leave();
    pthread_mutex_unlock(&region.mutex);
    return TUTTI_OK;
}

static void strict_give_back(tutti_device device, void *p, size_t bytes)
{
    const size_t page = page_bytes();
    const range *r;
    size_t at;

    (void)device;
    if (bytes == 0)
        return;
    pthread_mutex_lock(&region.mutex);
    r = *range_of(p);
    at = (size_t)((unsigned char *)p - r->p);
    for (size_t i = (at + page - 1) / page; i < (at + bytes) / page; i++) {
        if (!r->has[i])
            continue;
        protect_range(r, i, i + 1, PROT_NONE);
        madvise(r->p + i * page, page, MADV_DONTNEED);
        r->has[i] = false;
    }
    pthread_mutex_unlock(&region.mutex);
}

static void strict_together(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    (void)p;
    (void)bytes;
}

static void *host_alloc(tutti_device device, size_t bytes)
{
    return tutti__cpu_ops.host_alloc(device, bytes);
}

static void host_free(tutti_device device, void *p)
{
    tutti__cpu_ops.host_free(device, p);
}

/* ---- Streams and copies: complete when the call returns, as the CPU's ----------------------------------------- */

static tutti_status stream_new(tutti_stream **stream_p, tutti_device device, void *native)
{
    TUTTI_TRY(tutti__cpu_ops.stream_new(stream_p, device, native));
    (*stream_p)->ops = &tutti__strict_ops;
    return TUTTI_OK;
}

static void stream_free(tutti_stream *stream)
{
    tutti__cpu_ops.stream_free(stream);
}

static tutti_status stream_wait(tutti_stream *stream)
{
    return tutti__cpu_ops.stream_wait(stream);
}

/* Runs a CPU function with the memory accessible. */
#define OPENED(call)                                                                               \
    do {                                                                                           \
        tutti_status status;                                                                       \
                                                                                                   \
        tutti__strict_open();                                                                      \
        status = (call);                                                                           \
        tutti__strict_close();                                                                     \
        return status;                                                                             \
    } while (0)

static tutti_status copy(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    OPENED(tutti__cpu_ops.copy(stream, dst, src, bytes));
}

static tutti_status zero(tutti_stream *stream, void *p, size_t bytes)
{
    OPENED(tutti__cpu_ops.zero(stream, p, bytes));
}

static tutti_status flat_fill(tutti_stream *stream, float *p, size_t n, float value)
{
    OPENED(tutti__cpu_flat_ops.fill(stream, p, n, value));
}

static tutti_status flat_scale(tutti_stream *stream, float *p, size_t n, float factor)
{
    OPENED(tutti__cpu_flat_ops.scale(stream, p, n, factor));
}

static tutti_status flat_count(tutti_stream *stream, int64_t *p)
{
    OPENED(tutti__cpu_flat_ops.count(stream, p));
}

static tutti_status flat_sgd(tutti_stream *stream, float *p, const float *g, float *buffer,
                             size_t n, const tutti__sgd *c)
{
    OPENED(tutti__cpu_flat_ops.sgd(stream, p, g, buffer, n, c));
}

static tutti_status flat_adam(tutti_stream *stream, float *p, const float *g, float *m, float *v,
                              size_t n, const tutti__adam *c)
{
    OPENED(tutti__cpu_flat_ops.adam(stream, p, g, m, v, n, c));
}

static tutti_status flat_rmsprop(tutti_stream *stream, float *p, const float *g, float *square,
                                 float *mean, float *buffer, size_t n, const tutti__rmsprop *c)
{
    OPENED(tutti__cpu_flat_ops.rmsprop(stream, p, g, square, mean, buffer, n, c));
}

static tutti_status flat_adagrad(tutti_stream *stream, float *p, const float *g, float *sum,
                                 size_t n, const tutti__adagrad *c)
{
    OPENED(tutti__cpu_flat_ops.adagrad(stream, p, g, sum, n, c));
}

static tutti_status flat_clamp(tutti_stream *stream, float *p, size_t n, float limit)
{
    OPENED(tutti__cpu_flat_ops.clamp(stream, p, n, limit));
}

static tutti_status flat_sum_squares(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                     tutti__squares *sum)
{
    OPENED(tutti__cpu_flat_ops.sum_squares(stream, spans, n, sum));
}

static tutti_status flat_unscale(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                 float factor, bool *finite_p)
{
    OPENED(tutti__cpu_flat_ops.unscale(stream, spans, n, factor, finite_p));
}

static tutti_status flat_find_nonfinite(tutti_stream *stream, const void *p, size_t n,
                                        tutti_dtype dtype, int32_t *found)
{
    OPENED(tutti__cpu_flat_ops.find_nonfinite(stream, p, n, dtype, found));
}

static tutti_status flat_narrow(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    OPENED(tutti__cpu_flat_ops.narrow(stream, p, n, dtype));
}

static tutti_status flat_widen(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    OPENED(tutti__cpu_flat_ops.widen(stream, p, n, dtype));
}

static tutti_status flat_fixed_add(tutti_stream *stream, void *sums, const float *g, size_t n,
                                   const tutti__fixed *f, bool first, const tutti__fixed_seen *seen)
{
    OPENED(tutti__cpu_flat_ops.fixed_add(stream, sums, g, n, f, first, seen));
}

static tutti_status flat_fixed_join(tutti_stream *stream, void *sums, const void *more, size_t n,
                                    const tutti__fixed *f)
{
    OPENED(tutti__cpu_flat_ops.fixed_join(stream, sums, more, n, f));
}

static tutti_status flat_fixed_mean(tutti_stream *stream, float *mean, const void *sums, size_t n,
                                    const tutti__fixed *f, int number,
                                    const tutti__fixed_seen *seen)
{
    OPENED(tutti__cpu_flat_ops.fixed_mean(stream, mean, sums, n, f, number, seen));
}

static const tutti__flat_ops flat = {
    .fill = flat_fill,
    .scale = flat_scale,
    .count = flat_count,
    .sgd = flat_sgd,
    .adam = flat_adam,
    .rmsprop = flat_rmsprop,
    .adagrad = flat_adagrad,
    .clamp = flat_clamp,
    .sum_squares = flat_sum_squares,
    .unscale = flat_unscale,
    .find_nonfinite = flat_find_nonfinite,
    .narrow = flat_narrow,
    .widen = flat_widen,
    .fixed_add = flat_fixed_add,
    .fixed_join = flat_fixed_join,
    .fixed_mean = flat_fixed_mean,
};

/* ---- The table --------------------------------------------------------------------------------------------- */

static int count(void)
{
    return 1;
}

static tutti_status why(void)
{
    return TUTTI_OK;
}

static tutti_status event_new(tutti_device device, tutti__event **event_p)
{
    return tutti__cpu_ops.event_new(device, event_p);
}

static void event_free(tutti_device device, tutti__event *event)
{
    tutti__cpu_ops.event_free(device, event);
}

static tutti_status event_record(tutti__event *event, tutti_stream *stream)
{
    return tutti__cpu_ops.event_record(event, stream);
}

static tutti_status event_passed(tutti__event *event, bool *passed_p)
{
    return tutti__cpu_ops.event_passed(event, passed_p);
}

const tutti__device_ops tutti__strict_ops = {
    .name = "strict",
    .is_host = false,
    .count = count,
    .why = why,
    .alloc = strict_alloc,
    .free = strict_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .reserve = strict_reserve,
    .unreserve = strict_unreserve,
    .back = strict_back,
    .give_back = strict_give_back,
    .together = strict_together,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_wait = stream_wait,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_record,
    .event_passed = event_passed,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .zero = zero,
    .flat = &flat,
};
