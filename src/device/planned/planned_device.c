/* planned_device.c -- address space that is counted, and functions that do nothing.   SPDX-License-Identifier: MIT */
#include "device/planned/planned.h"

#include "device/flat.h"

#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define READ_OUT                                                                                   \
    ((size_t)1                                                                                     \
     << 16) /* bytes copied to the host up to which they are zeros, for those that look at them */

typedef struct range {
    char *p;
    size_t bytes; /* whole pages */
    size_t counted;
    char *has;   /* reserved memory: by page, whether it has memory; NULL: not reserved */
    size_t most; /* of it, of what was counted */
} range;

static struct {
    pthread_mutex_t turn; /* held while a thread plans */
    pthread_mutex_t lock; /* of what follows */
    void *ranges;         /* a tree of range, by address */
    tutti__planned_bytes bytes;
} planned = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

/* Ranges do not overlap: one that contains the other's first byte equals it. */
static int by_address(const void *a, const void *b)
{
    const range *x = a, *y = b;

    if (x->p + x->bytes <= y->p)
        return -1;
    return x->p >= y->p + y->bytes;
}

void tutti__planned_begin(void)
{
    pthread_mutex_lock(&planned.turn);
    pthread_mutex_lock(&planned.lock);
    planned.bytes = (tutti__planned_bytes){0, 0};
    pthread_mutex_unlock(&planned.lock);
}

void tutti__planned_end(void)
{
    pthread_mutex_unlock(&planned.turn);
}

tutti__planned_bytes tutti__planned_count(void)
{
    tutti__planned_bytes bytes;

    pthread_mutex_lock(&planned.lock);
    bytes = planned.bytes;
    pthread_mutex_unlock(&planned.lock);
    return bytes;
}

void tutti__planned_mark(void)
{
    pthread_mutex_lock(&planned.lock);
    planned.bytes.most = planned.bytes.now;
    pthread_mutex_unlock(&planned.lock);
}

/* Without huge pages, so that a stray access costs one page. */
static void *take_space(size_t bytes, size_t counted)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    range *r = tutti__alloc(sizeof *r);
    void *p = MAP_FAILED;

    if (!r)
        return NULL;
    *r = (range){.bytes = (bytes / page + 1) * page, .counted = counted};
    if (r->bytes > bytes)
        p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(r);
        tutti__fail(TUTTI_ERR_MEMORY, "planning: no address space for another %zu bytes: %s", bytes,
                    strerror(errno));
        return NULL;
    }
    madvise(p, r->bytes, MADV_NOHUGEPAGE);
    r->p = p;
    pthread_mutex_lock(&planned.lock);
    if (!tsearch(r, &planned.ranges, by_address)) {
        pthread_mutex_unlock(&planned.lock);
        munmap(p, r->bytes);
        free(r);
        tutti__fail(TUTTI_ERR_MEMORY, "planning: no memory for another range");
        return NULL;
    }
    planned.bytes.now += counted;
    if (planned.bytes.now > planned.bytes.most)
        planned.bytes.most = planned.bytes.now;
    pthread_mutex_unlock(&planned.lock);
    return p;
}

void *tutti__planned_space(size_t bytes)
{
    return take_space(bytes, 0);
}

void *tutti__planned_plain(size_t bytes)
{
    return take_space(bytes, bytes);
}

static range *find(const void *p)
{
    range **found =
        tfind(&(range){.p = (char *)(uintptr_t)p, .bytes = 1}, &planned.ranges, by_address);

    return found ? *found : NULL;
}

size_t tutti__planned_free(void *p)
{
    size_t counted;
    range *r;

    if (!p)
        return 0;
    pthread_mutex_lock(&planned.lock);
    r = find(p);
    if (!r)
        abort(); /* freed twice, or never allocated */
    tdelete(r, &planned.ranges, by_address);
    counted = r->counted;
    planned.bytes.now -= counted;
    pthread_mutex_unlock(&planned.lock);
    munmap(r->p, r->bytes);
    free(r->has);
    free(r);
    return counted;
}

bool tutti__planned_owns(const void *p)
{
    bool owns;

    pthread_mutex_lock(&planned.lock);
    owns = find(p) != NULL;
    pthread_mutex_unlock(&planned.lock);
    return owns;
}

/* ---- Memory that is not there all the time --------------------------------------------------------------------- */

void *tutti__planned_reserve(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *has = tutti__alloc(bytes / page + 1), *p = has ? take_space(bytes, 0) : NULL;

    if (!p) {
        free(has);
        return NULL;
    }
    pthread_mutex_lock(&planned.lock);
    find(p)->has = has;
    pthread_mutex_unlock(&planned.lock);
    return p;
}

/* Pages from byte `begin` to before `end` of a range. */
static void set_pages(range *r, size_t begin, size_t end, bool has)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = begin / page; i < end / page; i++) {
        if (r->has[i] == has)
            continue;
        r->has[i] = has;
        r->counted = has ? r->counted + page : r->counted - page;
        planned.bytes.now = has ? planned.bytes.now + page : planned.bytes.now - page;
    }
    if (r->counted > r->most)
        r->most = r->counted;
    if (planned.bytes.now > planned.bytes.most)
        planned.bytes.most = planned.bytes.now;
}

void tutti__planned_touch(const void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    range *r;

    pthread_mutex_lock(&planned.lock);
    r = bytes > 0 ? find(p) : NULL;
    if (r && r->has) {
        const size_t at = (size_t)((const char *)p - r->p);

        set_pages(r, at, (at + bytes + page - 1) / page * page, true);
    }
    pthread_mutex_unlock(&planned.lock);
}

void tutti__planned_give_back(const void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    range *r;

    pthread_mutex_lock(&planned.lock);
    r = bytes > 0 ? find(p) : NULL;
    if (r && r->has) {
        const size_t at = (size_t)((const char *)p - r->p);

        set_pages(r, (at + page - 1) / page * page, at + bytes, false);
    }
    pthread_mutex_unlock(&planned.lock);
}

tutti__planned_bytes tutti__planned_backed(const void *p)
{
    tutti__planned_bytes bytes = {0, 0};
    const range *r;

    pthread_mutex_lock(&planned.lock);
    r = find(p);
    if (r)
        bytes = (tutti__planned_bytes){r->counted, r->has ? r->most : r->counted};
    pthread_mutex_unlock(&planned.lock);
    return bytes;
}

static void drop(const void *node, VISIT visit, void *arg)
{
    const range *r = *(range *const *)node;

    (void)arg;
    if (visit == postorder || visit == leaf)
        madvise(r->p, r->bytes, MADV_DONTNEED);
}

void tutti__planned_drop(void)
{
    pthread_mutex_lock(&planned.lock);
    twalk_r(planned.ranges, drop, NULL);
    pthread_mutex_unlock(&planned.lock);
}

/* ---- The device ------------------------------------------------------------------------------------------------- */

static int planned_count(void)
{
    return 1;
}

static tutti_status planned_why(void)
{
    return TUTTI_OK;
}

static void *planned_alloc(tutti_device device, size_t bytes, bool zeroed)
{
    (void)device;
    (void)zeroed;
    return take_space(bytes, tutti__alloc_takes(bytes));
}

static void planned_free(tutti_device device, void *p)
{
    (void)device;
    (void)tutti__planned_free(p);
}

static void *planned_reserve(tutti_device device, size_t bytes)
{
    (void)device;
    return tutti__planned_reserve(bytes);
}

static void planned_unreserve(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    (void)bytes;
    (void)tutti__planned_free(p);
}

static tutti_status planned_back(tutti_device device, void *p, size_t bytes, bool stays)
{
    (void)device;
    (void)stays;
    tutti__planned_touch(p, bytes);
    return TUTTI_OK;
}

static void planned_give_back(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    tutti__planned_give_back(p, bytes);
}

static void planned_together(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    (void)p;
    (void)bytes;
}

static void *planned_host_alloc(tutti_device device, size_t bytes)
{
    return planned_alloc(device, bytes, false);
}

static tutti_status planned_stream_new(tutti_stream **stream_p, tutti_device device, void *native)
{
    TUTTI_TRY(tutti__cpu_ops.stream_new(stream_p, device, native));
    (*stream_p)->ops = &tutti__planned_ops;
    return TUTTI_OK;
}

static void planned_stream_free(tutti_stream *stream)
{
    tutti__cpu_ops.stream_free(stream);
}

static tutti_status planned_stream_wait(tutti_stream *stream)
{
    (void)stream;
    return TUTTI_OK;
}

static tutti_status planned_event_new(tutti_device device, tutti__event **event_p)
{
    return tutti__cpu_ops.event_new(device, event_p);
}

static void planned_event_free(tutti_device device, tutti__event *event)
{
    tutti__cpu_ops.event_free(device, event);
}

static tutti_status planned_event_record(tutti__event *event, tutti_stream *stream)
{
    return tutti__cpu_ops.event_record(event, stream);
}

static tutti_status planned_event_passed(tutti__event *event, bool *passed_p)
{
    return tutti__cpu_ops.event_passed(event, passed_p);
}

static tutti_status planned_copy(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    (void)stream;
    (void)dst;
    (void)src;
    (void)bytes;
    return TUTTI_OK;
}

/* Copies to memory of the device use the pages that they write. */
static tutti_status planned_copy_in(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    tutti__planned_touch(dst, bytes);
    return planned_copy(stream, dst, src, bytes);
}

static tutti_status planned_copy_out(tutti_stream *stream, void *host_dst, const void *src,
                                     size_t bytes)
{
    (void)stream;
    (void)src;
    if (bytes > 0 && bytes <= READ_OUT)
        memset(host_dst, 0, bytes);
    return TUTTI_OK;
}

static tutti_status planned_zero(tutti_stream *stream, void *p, size_t bytes)
{
    (void)stream;
    (void)p;
    (void)bytes;
    return TUTTI_OK;
}

/* ---- Flat memory -------------------------------------------------------------------------------------------------- */

static tutti_status planned_fill(tutti_stream *stream, float *p, size_t n, float value)
{
    (void)value;
    return planned_zero(stream, p, n);
}

static tutti_status planned_tally(tutti_stream *stream, int64_t *p)
{
    return planned_zero(stream, p, 1);
}

static tutti_status planned_sgd(tutti_stream *stream, float *p, const float *g, float *buffer,
                                size_t n, const tutti__sgd *c)
{
    (void)buffer;
    (void)c;
    return planned_copy(stream, p, g, n);
}

static tutti_status planned_adam(tutti_stream *stream, float *p, const float *g, float *m, float *v,
                                 size_t n, const tutti__adam *c)
{
    (void)m;
    (void)v;
    (void)c;
    return planned_copy(stream, p, g, n);
}

static tutti_status planned_rmsprop(tutti_stream *stream, float *p, const float *g, float *square,
                                    float *mean, float *buffer, size_t n, const tutti__rmsprop *c)
{
    (void)square;
    (void)mean;
    (void)buffer;
    (void)c;
    return planned_copy(stream, p, g, n);
}

static tutti_status planned_adagrad(tutti_stream *stream, float *p, const float *g, float *sum,
                                    size_t n, const tutti__adagrad *c)
{
    (void)sum;
    (void)c;
    return planned_copy(stream, p, g, n);
}

static tutti_status planned_sum_squares(tutti_stream *stream, const tutti__flat_span *spans,
                                        size_t n, tutti__squares *sum)
{
    (void)stream;
    (void)spans;
    (void)n;
    (void)sum;
    return TUTTI_OK;
}

static tutti_status planned_unscale(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                    float factor, bool *finite_p)
{
    (void)stream;
    (void)spans;
    (void)n;
    (void)factor;
    *finite_p = true;
    return TUTTI_OK;
}

static tutti_status planned_find_nonfinite(tutti_stream *stream, const void *p, size_t n,
                                           tutti_dtype dtype, int32_t *found)
{
    (void)dtype;
    (void)found;
    return planned_copy(stream, NULL, p, n);
}

static tutti_status planned_convert(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    (void)dtype;
    return planned_zero(stream, p, n);
}

static tutti_status planned_fixed_add(tutti_stream *stream, void *sums, const float *g, size_t n,
                                      const tutti__fixed *f, bool first,
                                      const tutti__fixed_seen *seen)
{
    (void)f;
    (void)first;
    (void)seen;
    return planned_copy(stream, sums, g, n);
}

static tutti_status planned_fixed_join(tutti_stream *stream, void *sums, const void *more, size_t n,
                                       const tutti__fixed *f)
{
    (void)f;
    return planned_copy(stream, sums, more, n);
}

static tutti_status planned_fixed_mean(tutti_stream *stream, float *mean, const void *sums,
                                       size_t n, const tutti__fixed *f, int number,
                                       const tutti__fixed_seen *seen)
{
    (void)f;
    (void)number;
    (void)seen;
    return planned_copy(stream, mean, sums, n);
}

static const tutti__flat_ops flat = {
    .fill = planned_fill,
    .scale = planned_fill,
    .count = planned_tally,
    .sgd = planned_sgd,
    .adam = planned_adam,
    .rmsprop = planned_rmsprop,
    .adagrad = planned_adagrad,
    .clamp = planned_fill,
    .sum_squares = planned_sum_squares,
    .unscale = planned_unscale,
    .find_nonfinite = planned_find_nonfinite,
    .narrow = planned_convert,
    .widen = planned_convert,
    .fixed_add = planned_fixed_add,
    .fixed_join = planned_fixed_join,
    .fixed_mean = planned_fixed_mean,
};

const tutti__device_ops tutti__planned_ops = {
    .name = "planned",
    .is_host = true,
    .plans = true,
    .count = planned_count,
    .why = planned_why,
    .alloc = planned_alloc,
    .free = planned_free,
    .host_alloc = planned_host_alloc,
    .host_free = planned_free,
    .reserve = planned_reserve,
    .unreserve = planned_unreserve,
    .back = planned_back,
    .give_back = planned_give_back,
    .together = planned_together,
    .stream_new = planned_stream_new,
    .stream_free = planned_stream_free,
    .stream_wait = planned_stream_wait,
    .event_new = planned_event_new,
    .event_free = planned_event_free,
    .event_record = planned_event_record,
    .event_wait = planned_event_record,
    .event_passed = planned_event_passed,
    .copy_in = planned_copy_in,
    .copy_out = planned_copy_out,
    .copy = planned_copy_in,
    .zero = planned_zero,
    .flat = &flat,
};
