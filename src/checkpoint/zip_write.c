/* zip_write.c -- writes a zip file, entry by entry.   SPDX-License-Identifier: MIT
 *
 * Plain local headers with sizes and CRC-32, so that any reader accepts the file; padding to 64 bytes is an extra field of id
 * 'FB', as PyTorch's own. */
#include "checkpoint/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    ALIGNMENT = 64,
    NAME_BYTES = 512,
    LOCAL_BYTES = 30,
    EXTRA64_BYTES = 28,
    DATE = 0x21
}; /* 1980-01-01 */

typedef struct written {
    char name[NAME_BYTES];
    uint64_t bytes, header;
    uint32_t crc;
} written;

struct tutti__zip_writer {
    int fd;
    const char *path;
    uint64_t limit, at;
    written *entries;
    size_t n, room;
};

/* A buffer to which bytes are appended. */
typedef struct block {
    uint8_t p[NAME_BYTES + 256];
    size_t n;
} block;

static void put(block *b, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->p[b->n++] = (uint8_t)(number >> (8 * i));
}

static void put_bytes(block *b, const char *p, size_t n)
{
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static tutti_status flush(tutti__zip_writer *w, block *b)
{
    TUTTI_TRY(tutti__write_all(w->fd, w->path, b->p, b->n));
    w->at += b->n;
    b->n = 0;
    return TUTTI_OK;
}

tutti_status tutti__zip_writer_new(tutti__zip_writer **writer_p, int fd, const char *path,
                                   uint64_t limit)
{
    tutti__zip_writer *w = *writer_p = tutti__alloc(sizeof *w);

    if (!w)
        return TUTTI_ERR_MEMORY;
    w->fd = fd;
    w->path = path;
    w->limit = limit ? limit : UINT32_MAX;
    return TUTTI_OK;
}

void tutti__zip_writer_free(tutti__zip_writer *writer)
{
    if (writer)
        free(writer->entries);
    free(writer);
}

/* zlib takes 32-bit lengths. */
static uint32_t crc_of(const void *p, uint64_t bytes)
{
    const unsigned char *next = p;
    uLong crc = crc32(0, NULL, 0);

    for (; bytes > 0;) {
        uInt n = bytes < 1u << 30 ? (uInt)bytes : 1u << 30;

        crc = crc32(crc, next, n);
        next += n;
        bytes -= n;
    }
    return (uint32_t)crc;
}

/* What both headers have in common: version needed, flags, method, time, date, CRC, sizes, length of the name. */
static void put_common(block *b, const written *e, bool wide)
{
    put(b, wide ? 45 : 10, 2);
    put(b, 0, 2);
    put(b, 0, 2);
    put(b, 0, 2);
    put(b, DATE, 2);
    put(b, e->crc, 4);
    put(b, wide ? UINT32_MAX : e->bytes, 4);
    put(b, wide ? UINT32_MAX : e->bytes, 4);
    put(b, strlen(e->name), 2);
}

static tutti_status write_local(tutti__zip_writer *w, const written *e)
{
    const bool wide = e->bytes >= w->limit;
    const size_t extra64 = wide ? 20 : 0, name = strlen(e->name);
    const size_t before = LOCAL_BYTES + name + extra64 + 4;
    const size_t padding = (ALIGNMENT - (size_t)((w->at + before) % ALIGNMENT)) % ALIGNMENT;
    block b = {.n = 0};

    put_bytes(&b, "PK\3\4", 4);
    put_common(&b, e, wide);
    put(&b, extra64 + 4 + padding, 2);
    put_bytes(&b, e->name, name);
    if (wide) {
        put(&b, 1, 2);
        put(&b, 16, 2);
        put(&b, e->bytes, 8);
        put(&b, e->bytes, 8);
    }
    put_bytes(&b, "FB", 2);
    put(&b, padding, 2);
    memset(b.p + b.n, 'Z', padding);
    b.n += padding;
    return flush(w, &b);
}

tutti_status tutti__zip_add(tutti__zip_writer *w, const char *name, const void *p, uint64_t bytes)
{
    written *e;

    if (strlen(name) >= NAME_BYTES)
        return tutti__fail(TUTTI_ERR_ARG, "cannot write %s: the name %.60s... is too long", w->path,
                           name);
    if (w->n == w->room) {
        written *more = realloc(w->entries, (2 * w->room + 64) * sizeof *more);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to write %s", w->path);
        w->entries = more;
        w->room = 2 * w->room + 64;
    }
    e = &w->entries[w->n++];
    *e = (written){.bytes = bytes, .header = w->at, .crc = crc_of(p, bytes)};
    strcpy(e->name, name);
    TUTTI_TRY(write_local(w, e));
    TUTTI_TRY(tutti__write_all(w->fd, w->path, p, bytes));
    w->at += bytes;
    return TUTTI_OK;
}

static tutti_status write_central(tutti__zip_writer *w, const written *e)
{
    const bool wide = e->bytes >= w->limit || e->header >= w->limit;
    block b = {.n = 0};

    put_bytes(&b, "PK\1\2", 4);
    put(&b, 45, 2);
    put_common(&b, e, wide);
    put(&b, wide ? EXTRA64_BYTES : 0, 2);
    put(&b, 0, 2); /* comment */
    put(&b, 0, 2); /* disk */
    put(&b, 0, 2);
    put(&b, 0, 4); /* attributes */
    put(&b, wide ? UINT32_MAX : e->header, 4);
    put_bytes(&b, e->name, strlen(e->name));
    if (wide) {
        put(&b, 1, 2);
        put(&b, 24, 2);
        put(&b, e->bytes, 8);
        put(&b, e->bytes, 8);
        put(&b, e->header, 8);
    }
    return flush(w, &b);
}

static void put_end64(block *b, uint64_t n, uint64_t begin, uint64_t end)
{
    put_bytes(b, "PK\6\6", 4);
    put(b, 44, 8);
    put(b, 45, 2);
    put(b, 45, 2);
    put(b, 0, 4);
    put(b, 0, 4);
    put(b, n, 8);
    put(b, n, 8);
    put(b, end - begin, 8);
    put(b, begin, 8);
    put_bytes(b, "PK\6\7", 4);
    put(b, 0, 4);
    put(b, end, 8);
    put(b, 1, 4);
}

tutti_status tutti__zip_finish(tutti__zip_writer *w)
{
    const uint64_t begin = w->at;
    block b = {.n = 0};
    bool wide;

    for (size_t i = 0; i < w->n; i++)
        TUTTI_TRY(write_central(w, &w->entries[i]));
    wide = w->at >= w->limit || w->n >= UINT16_MAX;
    if (wide)
        put_end64(&b, w->n, begin, w->at);
    put_bytes(&b, "PK\5\6", 4);
    put(&b, 0, 4);
    put(&b, wide ? UINT16_MAX : w->n, 2);
    put(&b, wide ? UINT16_MAX : w->n, 2);
    put(&b, wide ? UINT32_MAX : w->at - begin, 4);
    put(&b, wide ? UINT32_MAX : begin, 4);
    put(&b, 0, 2);
    return flush(w, &b);
}
