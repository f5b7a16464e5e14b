/* zip_read.c -- the directory of a zip file, and its entries' bytes.   SPDX-License-Identifier: MIT */
#include "data/zip_read.h"

#include "data/data_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    MAX_COMMENT = 65535,
    MAX_DIRECTORY = 64 << 20,
    CHECKED_AT_ONCE = 1 << 18
};

struct tutti__zip {
    int fd;
    uint64_t file_bytes, directory, directory_bytes, n_said;
    uint64_t packed; /* of the entries so far */
    const char *kind;
    tutti__zip_entry *entries;
    const tutti__zip_entry **by_name;
    size_t n;
    char *names;
    char path[];
};

static tutti_status malformed(const tutti__zip *zip, const char *format, ...) TUTTI_PRINTF(2, 3);
static tutti_status malformed(const tutti__zip *zip, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a valid %s file: %s", zip->path, zip->kind,
                       text);
}

static tutti_status read_at(const tutti__zip *zip, void *dst, uint64_t bytes, uint64_t offset)
{
    return tutti__read_at(zip->fd, zip->path, offset, dst, (size_t)bytes);
}

/* Reads a little-endian number of 2, 4 or 8 bytes. */
static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t n = 0;

    while (bytes-- > 0)
        n = n << 8 | p[bytes];
    return n;
}

/* ---- The end record, which has the directory's offset ------------------------------------------------------------ */

/* Reads the zip64 end record, if its locator is before the end record at `end`. */
static tutti_status read_end64(tutti__zip *zip, uint64_t end)
{
    uint8_t locator[LOCATOR_BYTES], p[END64_BYTES];
    uint64_t at;

    if (end < LOCATOR_BYTES)
        return TUTTI_OK;
    TUTTI_TRY(read_at(zip, locator, sizeof locator, end - LOCATOR_BYTES));
    if (memcmp(locator, "PK\6\7", 4) != 0)
        return TUTTI_OK;
    at = number(locator + 8, 8);
    if (at > end || end - at < END64_BYTES)
        return malformed(zip, "its zip64 end is outside of the file");
    TUTTI_TRY(read_at(zip, p, sizeof p, at));
    if (memcmp(p, "PK\6\6", 4) != 0)
        return malformed(zip, "there is no zip64 end where its locator points");
    zip->n_said = number(p + 32, 8);
    zip->directory_bytes = number(p + 40, 8);
    zip->directory = number(p + 48, 8);
    return TUTTI_OK;
}

static tutti_status find_end(tutti__zip *zip)
{
    const size_t n = zip->file_bytes < END_BYTES + MAX_COMMENT ? (size_t)zip->file_bytes
                                                               : END_BYTES + MAX_COMMENT;
    uint8_t *tail = tutti__alloc(n);
    tutti_status status = tail ? read_at(zip, tail, n, zip->file_bytes - n) : TUTTI_ERR_MEMORY;
    const uint8_t *p = NULL;

    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; status == TUTTI_OK && !p && i-- > 0;)
        if (memcmp(tail + i, "PK\5\6", 4) == 0 && i + END_BYTES + number(tail + i + 20, 2) == n)
            p = tail + i;
    if (status == TUTTI_OK && !p)
        status = malformed(zip, "it has no end of a directory (truncated?)");
    if (status == TUTTI_OK) {
        zip->n_said = number(p + 10, 2);
        zip->directory_bytes = number(p + 12, 4);
        zip->directory = number(p + 16, 4);
        status = read_end64(zip, zip->file_bytes - n + (uint64_t)(p - tail));
    }
    free(tail);
    if (status == TUTTI_OK && (zip->directory > zip->file_bytes ||
                               zip->directory_bytes > zip->file_bytes - zip->directory))
        status = malformed(zip, "its directory is outside of the file");
    if (status == TUTTI_OK && zip->directory_bytes > MAX_DIRECTORY)
        status = malformed(zip, "its directory claims %llu bytes, more than %d",
                           (unsigned long long)zip->directory_bytes, MAX_DIRECTORY);
    return status;
}

/* ---- The directory ------------------------------------------------------------------------------------------ */

/* The zip64 extra has the numbers that did not fit into 4 bytes, in this order. */
static bool read_extra64(const uint8_t *extra, size_t n, uint64_t *bytes, uint64_t *packed,
                         uint64_t *header)
{
    uint64_t *const wanted[] = {bytes, packed, header};

    for (size_t at = 0; at + 4 <= n;) {
        size_t length = (size_t)number(extra + at + 2, 2);
        const uint8_t *p = extra + at + 4;

        if (length > n - at - 4)
            return false;
        if (number(extra + at, 2) == 1) {
            for (size_t i = 0; i < TUTTI__COUNT_OF(wanted); i++) {
                if (*wanted[i] != UINT32_MAX)
                    continue;
                if (length < 8)
                    return false;
                *wanted[i] = number(p, 8);
                p += 8;
                length -= 8;
            }
            return true;
        }
        at += 4 + length;
    }
    return *bytes != UINT32_MAX && *packed != UINT32_MAX && *header != UINT32_MAX;
}

/* Reads the entry at p; n bytes remain, of which it takes *used_p. Copies its name to `name`. */
static tutti_status read_entry(tutti__zip *zip, const uint8_t *p, size_t n, char *name,
                               size_t *used_p)
{
    tutti__zip_entry *e = &zip->entries[zip->n];
    size_t name_bytes, extra_bytes;

    if (n < CENTRAL_BYTES || memcmp(p, "PK\1\2", 4) != 0)
        return malformed(zip, "its directory is broken at entry %zu", zip->n);
    name_bytes = (size_t)number(p + 28, 2);
    extra_bytes = (size_t)number(p + 30, 2);
    *used_p = CENTRAL_BYTES + name_bytes + extra_bytes + (size_t)number(p + 32, 2);
    if (*used_p > n || memchr(p + CENTRAL_BYTES, '\0', name_bytes))
        return malformed(zip, "its directory is broken at entry %zu", zip->n);
    memcpy(name, p + CENTRAL_BYTES, name_bytes);
    name[name_bytes] = '\0';
    e->name = name;
    e->crc = (uint32_t)number(p + 16, 4);
    e->packed = number(p + 20, 4);
    e->bytes = number(p + 24, 4);
    e->header = number(p + 42, 4);
    e->stored = number(p + 10, 2) == 0 && (p[8] & 1) == 0;
    e->deflated = number(p + 10, 2) == 8 && (p[8] & 1) == 0;
    if (!read_extra64(p + CENTRAL_BYTES + name_bytes, extra_bytes, &e->bytes, &e->packed,
                      &e->header))
        return malformed(zip, "entry \"%.100s\" lacks its zip64 sizes", name);
    if (e->stored && e->packed != e->bytes)
        return malformed(zip, "entry \"%.100s\" is stored, but of two sizes", name);
    if (e->packed > zip->file_bytes - zip->packed)
        return malformed(zip, "its entries overlap: together they are larger than the file");
    zip->packed += e->packed;
    zip->n++;
    return TUTTI_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tutti__zip_entry *const *)a)->name,
                  (*(const tutti__zip_entry *const *)b)->name);
}

static tutti_status sort_names(tutti__zip *zip)
{
    for (size_t i = 0; i < zip->n; i++)
        zip->by_name[i] = &zip->entries[i];
    if (zip->n > 0)
        qsort(zip->by_name, zip->n, sizeof *zip->by_name, by_name);
    for (size_t i = 1; i < zip->n; i++)
        if (strcmp(zip->by_name[i]->name, zip->by_name[i - 1]->name) == 0)
            return malformed(zip, "there are two entries \"%.100s\"", zip->by_name[i]->name);
    return TUTTI_OK;
}

static tutti_status read_directory(tutti__zip *zip)
{
    const size_t bytes = (size_t)zip->directory_bytes, most = bytes / CENTRAL_BYTES + 1;
    uint8_t *p = tutti__alloc(bytes + 1);
    tutti_status status = p ? read_at(zip, p, bytes, zip->directory) : TUTTI_ERR_MEMORY;
    char *name = zip->names = tutti__alloc(bytes + 1);

    zip->entries = tutti__alloc(most * sizeof *zip->entries);
    zip->by_name = tutti__alloc(most * sizeof *zip->by_name);
    if (status == TUTTI_OK && (!zip->names || !zip->entries || !zip->by_name))
        status = TUTTI_ERR_MEMORY;
    for (size_t at = 0, used = 0; status == TUTTI_OK && at < bytes; at += used) {
        status = read_entry(zip, p + at, bytes - at, name, &used);
        if (status == TUTTI_OK)
            name += strlen(name) + 1;
    }
    free(p);
    /* The end record's count has 16 bits. */
    if (status == TUTTI_OK && (zip->n & 0xffff) != (zip->n_said & 0xffff))
        status = malformed(zip, "its directory holds %zu file%s, and its end says %llu", zip->n,
                           tutti__s(zip->n), (unsigned long long)zip->n_said);
    return status == TUTTI_OK ? sort_names(zip) : status;
}

static tutti_status read_zip(tutti__zip *zip)
{
    struct stat st;

    if (zip->fd < 0 || fstat(zip->fd, &st) != 0)
        return tutti__fail_errno(errno, "cannot open %s", zip->path);
    if (!S_ISREG(st.st_mode))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a regular file", zip->path);
    zip->file_bytes = (uint64_t)st.st_size;
    TUTTI_TRY(find_end(zip));
    return read_directory(zip);
}

tutti_status tutti__zip_open(tutti__zip **zip_p, const char *path, const char *kind)
{
    tutti__zip *zip = tutti__alloc(sizeof *zip + strlen(path) + 1);
    tutti_status status;

    *zip_p = NULL;
    if (!zip)
        return TUTTI_ERR_MEMORY;
    strcpy(zip->path, path);
    zip->kind = kind;
    zip->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    status = read_zip(zip);
    if (status == TUTTI_OK)
        *zip_p = zip;
    else
        tutti__zip_close(zip);
    return status;
}

void tutti__zip_close(tutti__zip *zip)
{
    if (!zip)
        return;
    if (zip->fd >= 0)
        close(zip->fd);
    free(zip->entries);
    free(zip->by_name);
    free(zip->names);
    free(zip);
}

/* ---- Entries ------------------------------------------------------------------------------------------------- */

size_t tutti__zip_count(const tutti__zip *zip)
{
    return zip->n;
}

const tutti__zip_entry *tutti__zip_at(const tutti__zip *zip, size_t i)
{
    return i < zip->n ? &zip->entries[i] : NULL;
}

const tutti__zip_entry *tutti__zip_find(const tutti__zip *zip, const char *name)
{
    const tutti__zip_entry key = {.name = name}, *wanted = &key;
    const tutti__zip_entry *const *found =
        zip->n ? bsearch(&wanted, zip->by_name, zip->n, sizeof *zip->by_name, by_name) : NULL;

    return found ? *found : NULL;
}

uint64_t tutti__zip_file_bytes(const tutti__zip *zip)
{
    return zip->file_bytes;
}

/* Where the data begin: the local header's extra field may differ from the directory's. */
static tutti_status find_data(const tutti__zip *zip, const tutti__zip_entry *e, uint64_t *begin_p)
{
    uint8_t p[LOCAL_BYTES];
    uint64_t begin;

    if (e->header > zip->file_bytes || zip->file_bytes - e->header < LOCAL_BYTES)
        return malformed(zip, "entry \"%.100s\" is outside of the file", e->name);
    TUTTI_TRY(read_at(zip, p, sizeof p, e->header));
    if (memcmp(p, "PK\3\4", 4) != 0)
        return malformed(zip, "entry \"%.100s\" has no header where the directory says", e->name);
    begin = e->header + LOCAL_BYTES + number(p + 26, 2) + number(p + 28, 2);
    if (begin > zip->file_bytes || e->packed > zip->file_bytes - begin)
        return malformed(zip, "entry \"%.100s\" of %llu bytes is incomplete (truncated?)", e->name,
                         (unsigned long long)e->bytes);
    *begin_p = begin;
    return TUTTI_OK;
}

tutti_status tutti__zip_read(const tutti__zip *zip, const tutti__zip_entry *entry, void *dst,
                             uint64_t bytes, uint64_t offset)
{
    uint64_t begin = 0;

    if (offset > entry->bytes || bytes > entry->bytes - offset)
        return malformed(zip, "entry \"%.100s\" has %llu bytes, but more were requested",
                         entry->name, (unsigned long long)entry->bytes);
    if (!entry->stored)
        return malformed(zip, "entry \"%.100s\" is compressed or encrypted, expected stored",
                         entry->name);
    TUTTI_TRY(find_data(zip, entry, &begin));
    return read_at(zip, dst, bytes, begin + offset);
}

tutti_status tutti__zip_check(const tutti__zip *zip, const tutti__zip_entry *entry)
{
    uLong crc = crc32(0, NULL, 0);
    uint8_t *p = tutti__alloc(CHECKED_AT_ONCE);
    tutti_status status = p ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (uint64_t at = 0; at < entry->bytes && status == TUTTI_OK;) {
        uint64_t n = entry->bytes - at < CHECKED_AT_ONCE ? entry->bytes - at : CHECKED_AT_ONCE;

        status = tutti__zip_read(zip, entry, p, n, at);
        crc = crc32(crc, p, (uInt)n);
        at += n;
    }
    free(p);
    if (status == TUTTI_OK && (uint32_t)crc != entry->crc)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s is damaged: entry \"%.100s\" has CRC-32 %08lx, and the file says %08lx", zip->path,
            entry->name, crc, (unsigned long)entry->crc);
    return status;
}

/* ---- Whole entries, also compressed ------------------------------------------------------------------------------ */

/* Reads the packed bytes in parts, and unpacks them to exactly entry->bytes. */
static tutti_status unpack(const tutti__zip *zip, const tutti__zip_entry *entry, uint64_t begin,
                           z_stream *z, uint8_t *to)
{
    uint8_t from[1 << 14];
    uint64_t left = entry->packed, room = entry->bytes;
    int code = Z_OK;

    z->next_out = to;
    /* zlib may have taken all of the input, and still hold output for which there was no room. */
    while (code == Z_OK && (left > 0 || z->avail_in > 0 || (z->avail_out == 0 && room > 0))) {
        if (z->avail_in == 0 && left > 0) {
            const size_t n = left < sizeof from ? (size_t)left : sizeof from;

            TUTTI_TRY(read_at(zip, from, n, begin + (entry->packed - left)));
            z->next_in = from;
            z->avail_in = (uInt)n;
            left -= n;
        }
        if (z->avail_out == 0) {
            z->avail_out = room < (1 << 30) ? (uInt)room : 1 << 30;
            room -= z->avail_out;
        }
        code = inflate(z, Z_NO_FLUSH);
    }
    if (code != Z_STREAM_END || z->avail_out != 0 || room != 0)
        return malformed(zip, "entry \"%.100s\" does not unpack to its %llu bytes", entry->name,
                         (unsigned long long)entry->bytes);
    return TUTTI_OK;
}

static tutti_status load(const tutti__zip *zip, const tutti__zip_entry *entry, uint8_t *to)
{
    z_stream z = {.zalloc = NULL};
    uint64_t begin = 0;
    tutti_status status;

    TUTTI_TRY(find_data(zip, entry, &begin));
    if (entry->stored)
        return read_at(zip, to, entry->bytes, begin);
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) /* a raw stream, without zlib's header */
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", zip->path);
    status = unpack(zip, entry, begin, &z, to);
    inflateEnd(&z);
    return status;
}

static uint32_t crc_of(const uint8_t *p, uint64_t bytes)
{
    uLong crc = crc32(0, NULL, 0);

    for (uint64_t n; bytes > 0; bytes -= n, p += n) {
        n = bytes < (1 << 30) ? bytes : 1 << 30;
        crc = crc32(crc, p, (uInt)n);
    }
    return (uint32_t)crc;
}

tutti_status tutti__zip_load(const tutti__zip *zip, const tutti__zip_entry *entry, uint64_t limit,
                             uint8_t **p)
{
    const uint64_t most = 1032 * entry->packed + 64; /* deflate packs no denser */
    tutti_status status;

    if (!entry->stored && !entry->deflated)
        return malformed(zip,
                         "entry \"%.100s\" is encrypted, or compressed in another way than "
                         "deflate",
                         entry->name);
    if (entry->bytes > limit || entry->bytes > most)
        return malformed(zip, "entry \"%.100s\" claims %llu bytes, more than %llu", entry->name,
                         (unsigned long long)entry->bytes,
                         (unsigned long long)(limit < most ? limit : most));
    *p = malloc((size_t)entry->bytes + 1);
    if (!*p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the %llu bytes of %s in %s",
                           (unsigned long long)entry->bytes, entry->name, zip->path);
    status = load(zip, entry, *p);
    if (status == TUTTI_OK && crc_of(*p, entry->bytes) != entry->crc)
        status = malformed(zip, "entry \"%.100s\" is damaged: its CRC-32 is another", entry->name);
    if (status != TUTTI_OK) {
        free(*p);
        *p = NULL;
    }
    return status;
}
