/* safetensors_read.c -- opens a safetensors file, and checks everything before using it.   SPDX-License-Identifier: MIT
 *
 * Accepts what the reference reader accepts: entries sorted by offset tile the data exactly, without gap, overlap or
 * rest, and the size of each matches its shape and dtype. */
#include "checkpoint/safetensors.h"

#include "data/data_files.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER 100000000u
/* Of the header's JSON, enough for a million tensors. A value takes up to a hundred bytes of memory, and as few as two in the
 * file. */
#define MAX_VALUES 8000000u

struct tutti__safetensors {
    int fd;
    uint64_t data_start, data_bytes;
    uint64_t header_digest;
    json_t *header; /* owns the names */
    tutti__safetensors_entry *entries;
    size_t n;
    char path[];
};

/* Types that a file may have: text, bits, and our dtype (-1: none). */
static const struct {
    const char *text;
    unsigned bits;
    int dtype;
} DTYPES[] = {
#define X(name, value, bytes, text) {text, 8 * bytes, value},
    TUTTI_DTYPE_TABLE(X)
#undef X
        {"BOOL", 8, -1},
    {"C64", 64, -1},
    {"F8_E5M2", 8, -1},
    {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1},
    {"F8_E4M3FNUZ", 8, -1},
    {"F8_E5M2FNUZ", 8, -1},
    {"F4", 4, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
};

static tutti_status malformed(const tutti__safetensors *file, const char *format, ...)
    TUTTI_PRINTF(2, 3);
static tutti_status malformed(const tutti__safetensors *file, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a valid safetensors file: %s", file->path,
                       text);
}

tutti_status tutti__check_tensor_name(const char *path, const char *name, size_t n)
{
    enum { MAX_NAME = 4096 };

    if (n <= MAX_NAME)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s: a tensor's name has %zu bytes, at most %d are read: \"%.40s...\"", path,
                       n, MAX_NAME, name);
}

/* A non-negative JSON integer. */
static bool natural(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static tutti_status entry_shape(const tutti__safetensors *file, const json_t *shape, unsigned bits,
                                tutti__safetensors_entry *e)
{
    uint64_t total = bits;

    if (!json_is_array(shape))
        return malformed(file, "tensor \"%.100s\" has no list \"shape\"", e->name);
    if (json_array_size(shape) > TUTTI_MAX_DIMS)
        return malformed(file, "tensor \"%.100s\" has %zu dimensions, at most %d are supported",
                         e->name, json_array_size(shape), TUTTI_MAX_DIMS);
    e->shape.n = (int)json_array_size(shape);
    for (int i = 0; i < e->shape.n; i++) {
        uint64_t d;

        if (!natural(json_array_get(shape, (size_t)i), &d))
            return malformed(file, "tensor \"%.100s\": dimension %d is not a whole number", e->name,
                             i);
        e->shape.d[i] = (int64_t)d;
        if (__builtin_mul_overflow(total, d, &total))
            return malformed(file, "tensor \"%.100s\" is larger than any file", e->name);
    }
    if (total % 8 != 0)
        return malformed(file, "tensor \"%.100s\" does not fill whole bytes", e->name);
    if (total / 8 != e->bytes)
        return malformed(file,
                         "tensor \"%.100s\" holds %" PRIu64
                         " bytes by its shape and dtype but %" PRIu64 " by its offsets",
                         e->name, total / 8, e->bytes);
    return TUTTI_OK;
}

static tutti_status parse_entry(const tutti__safetensors *file, const char *name,
                                const json_t *value, tutti__safetensors_entry *e)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    uint64_t end;

    TUTTI_TRY(tutti__check_tensor_name(file->path, name, strlen(name)));
    e->name = name;
    if (!json_is_object(value) || json_object_size(value) != 3)
        return malformed(file, "tensor \"%.100s\" must have dtype, shape and data_offsets only",
                         name);
    if (json_array_size(offsets) != 2 || !natural(json_array_get(offsets, 0), &e->offset) ||
        !natural(json_array_get(offsets, 1), &end) || end < e->offset || end > file->data_bytes)
        return malformed(file,
                         "tensor \"%.100s\": data_offsets are not [begin, end] within %" PRIu64
                         " bytes of data",
                         name, file->data_bytes);
    e->bytes = end - e->offset;
    for (size_t i = 0; dtype && i < TUTTI__COUNT_OF(DTYPES); i++)
        if (strcmp(dtype, DTYPES[i].text) == 0) {
            e->dtype_text = DTYPES[i].text;
            e->readable = DTYPES[i].dtype >= 0;
            e->dtype = e->readable ? (tutti_dtype)DTYPES[i].dtype : TUTTI_U8;
            return entry_shape(file, json_object_get(value, "shape"), DTYPES[i].bits, e);
        }
    return malformed(file, "tensor \"%.100s\" has dtype \"%.20s\", which is none of safetensors'",
                     name, dtype ? dtype : "(none)");
}

static int by_offset(const void *a, const void *b)
{
    const tutti__safetensors_entry *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* empty tensors come before the one at the same offset */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static tutti_status check_tiling(const tutti__safetensors *file)
{
    uint64_t end = 0;

    for (size_t i = 0; i < file->n; i++) {
        if (file->entries[i].offset != end)
            return malformed(file,
                             "tensor \"%.100s\" begins at byte %" PRIu64
                             " of the data, expected %" PRIu64 " (a hole or an overlap)",
                             file->entries[i].name, file->entries[i].offset, end);
        end += file->entries[i].bytes;
    }
    if (end != file->data_bytes)
        return malformed(file, "its tensors cover %" PRIu64 " bytes of %" PRIu64 " (%s)", end,
                         file->data_bytes, "truncated, or something was appended");
    return TUTTI_OK;
}

static tutti_status parse_header(tutti__safetensors *file)
{
    const char *name, *key;
    json_t *value, *text;

    file->entries = tutti__alloc(json_object_size(file->header) * sizeof *file->entries);
    if (!file->entries)
        return TUTTI_ERR_MEMORY;
    json_object_foreach(file->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_is_object(value))
                return malformed(file, "__metadata__ is not an object");
            json_object_foreach(value, key, text) if (!json_is_string(text)) return malformed(
                file, "__metadata__ \"%.100s\" is not a text", key);
            continue;
        }
        TUTTI_TRY(parse_entry(file, name, value, &file->entries[file->n]));
        file->n++;
    }
    if (file->n > 0)
        qsort(file->entries, file->n, sizeof *file->entries, by_offset);
    return check_tiling(file);
}

/* Counts commas and opening brackets outside of strings: an upper bound on the number of values. */
static size_t count_values(const char *text, size_t n)
{
    size_t values = 1;
    bool inside = false;

    for (size_t i = 0; i < n; i++)
        if (inside && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            inside = !inside;
        else if (!inside)
            values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values;
}

static tutti_status read_header(tutti__safetensors *file)
{
    struct stat st;
    unsigned char head[8];
    uint64_t n;
    char *block, *text;
    json_error_t error;
    tutti_status status;

    if (fstat(file->fd, &st) != 0)
        return tutti__fail_errno(errno, "cannot read %s", file->path);
    if (S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is a folder; expected a file", file->path);
    if (!S_ISREG(st.st_mode))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a regular file", file->path);
    if (st.st_size < 8)
        return malformed(file, "it has %lld bytes, less than a header", (long long)st.st_size);
    TUTTI_TRY(tutti__read_at(file->fd, file->path, 0, head, 8));
    memcpy(&n, head, 8);
    n = le64toh(n);
    if (n > MAX_HEADER || n > (uint64_t)st.st_size - 8)
        return malformed(file,
                         "its header claims %" PRIu64 " bytes, the file has %lld (truncated?)", n,
                         (long long)st.st_size);
    file->data_start = 8 + n;
    file->data_bytes = (uint64_t)st.st_size - file->data_start;
    block = tutti__alloc((size_t)n + 9);
    if (!block)
        return TUTTI_ERR_MEMORY;
    text = block + 8;
    status = tutti__read_at(file->fd, file->path, 0, block, (size_t)n + 8);
    file->header_digest = tutti__hash64(block, (size_t)n + 8);
    if (status == TUTTI_OK && text[0] != '{')
        status = malformed(file, "its header does not begin with '{'");
    if (status == TUTTI_OK && count_values(text, (size_t)n) > MAX_VALUES)
        status = malformed(file, "its header holds more than %u values", MAX_VALUES);
    if (status == TUTTI_OK) {
        errno = 0;
        file->header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
        if (file->header)
            status = parse_header(file);
        else if (errno == ENOMEM) /* jansson may take that for the text's end */
            status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the header of %s", file->path);
        else
            status = malformed(file, "its header, at byte %d: %s", error.position, error.text);
    }
    free(block);
    return status;
}

tutti_status tutti__safetensors_open(tutti__safetensors **file_p, const char *path)
{
    tutti__safetensors *file = tutti__alloc(sizeof *file + strlen(path) + 1);
    tutti_status status;

    *file_p = NULL;
    if (!file)
        return TUTTI_ERR_MEMORY;
    strcpy(file->path, path);
    /* non-blocking: a FIFO must not block */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    status = file->fd < 0 ? tutti__fail_errno(errno, "cannot open %s", path) : read_header(file);
    if (status != TUTTI_OK) {
        tutti__safetensors_close(file);
        return status;
    }
    *file_p = file;
    return TUTTI_OK;
}

void tutti__safetensors_close(tutti__safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->header);
    free(file->entries);
    free(file);
}

uint64_t tutti__safetensors_header_digest(const tutti__safetensors *file)
{
    return file->header_digest;
}

tutti_status tutti__safetensors_header(const char *path, uint64_t *digest_p)
{
    tutti__safetensors *file;

    TUTTI_TRY(tutti__safetensors_open(&file, path));
    *digest_p = file->header_digest;
    tutti__safetensors_close(file);
    return TUTTI_OK;
}

size_t tutti__safetensors_count(const tutti__safetensors *file)
{
    return file->n;
}

const tutti__safetensors_entry *tutti__safetensors_at(const tutti__safetensors *file, size_t i)
{
    return i < file->n ? &file->entries[i] : NULL;
}

const tutti__safetensors_entry *tutti__safetensors_find(const tutti__safetensors *file,
                                                        const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->entries[i].name, name) == 0)
            return &file->entries[i];
    return NULL;
}

void tutti__safetensors_pass_over(tutti__safetensors *file, size_t i)
{
    file->n--;
    memmove(&file->entries[i], &file->entries[i + 1], (file->n - i) * sizeof *file->entries);
}

const char *tutti__safetensors_metadata(const tutti__safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

const char *tutti__safetensors_tied(const tutti__safetensors *file, size_t i, const char **to_p)
{
    const char *name;
    json_t *value;
    size_t n = 0;

    json_object_foreach(json_object_get(file->header, "__metadata__"), name, value)
    {
        const char *to = json_string_value(value);

        if (strncmp(name, TUTTI__SAFETENSORS_DIGEST, sizeof TUTTI__SAFETENSORS_DIGEST - 1) == 0 ||
            !tutti__safetensors_find(file, to) || tutti__safetensors_find(file, name) || n++ < i)
            continue;
        *to_p = to;
        return name;
    }
    return NULL;
}

static const char *digest_of(const tutti__safetensors *file, const char *name)
{
    const char *digest = NULL;
    char *key;

    if (asprintf(&key, TUTTI__SAFETENSORS_DIGEST "%s", name) < 0)
        return NULL;
    digest = tutti__safetensors_metadata(file, key);
    free(key);
    return digest;
}

bool tutti__safetensors_has_digest(const tutti__safetensors *file,
                                   const tutti__safetensors_entry *entry)
{
    return digest_of(file, entry->name) != NULL;
}

tutti_status tutti__safetensors_read(const tutti__safetensors *file,
                                     const tutti__safetensors_entry *entry, void *dst)
{
    const char *expected = digest_of(file, entry->name);
    char digest[24];

    TUTTI_TRY(tutti__read_at(file->fd, file->path, file->data_start + entry->offset, dst,
                             (size_t)entry->bytes));
    if (!expected)
        return TUTTI_OK;
    snprintf(digest, sizeof digest, "%016" PRIx64, tutti__hash64(dst, entry->bytes));
    if (strcmp(digest, expected) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is damaged: tensor \"%.100s\" has digest %s, and the file says %.40s",
                       file->path, entry->name, digest, expected);
}
