/* pytorch_zip_write.c -- writes a state_dict in torch.save's format.   SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"
#include "checkpoint/zip.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 128 };

/* NULL: PyTorch has no storage of this type. */
static const char *storage_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return "FloatStorage";
    case TUTTI_F64:
        return "DoubleStorage";
    case TUTTI_F16:
        return "HalfStorage";
    case TUTTI_BF16:
        return "BFloat16Storage";
    case TUTTI_I8:
        return "CharStorage";
    case TUTTI_U8:
        return "ByteStorage";
    case TUTTI_I32:
        return "IntStorage";
    case TUTTI_I64:
        return "LongStorage";
    case TUTTI_I16:
        return "ShortStorage";
    case TUTTI_U16:
    case TUTTI_U32:
    case TUTTI_U64:
        break;
    }
    return NULL;
}

/* ---- The pickle ---------------------------------------------------------------------------------------------- */

static void put_number(FILE *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(number >> (8 * i) & 0xff), out);
}

static void put_text(FILE *out, const char *text)
{
    putc('X', out);
    put_number(out, strlen(text), 4);
    fputs(text, out);
}

/* BININT1, BININT2, BININT or LONG1: the shortest that fits. */
static void put_integer(FILE *out, int64_t n)
{
    if (n >= 0 && n < 256) {
        putc('K', out);
        put_number(out, (uint64_t)n, 1);
    } else if (n >= 0 && n < 65536) {
        putc('M', out);
        put_number(out, (uint64_t)n, 2);
    } else if (n >= INT32_MIN && n <= INT32_MAX) {
        putc('J', out);
        put_number(out, (uint64_t)n, 4);
    } else {
        fputs("\x8a\x08", out);
        put_number(out, (uint64_t)n, 8);
    }
}

static void put_tuple(FILE *out, const int64_t *numbers, int n)
{
    putc('(', out);
    for (int i = 0; i < n; i++)
        put_integer(out, numbers[i]);
    putc('t', out);
}

/* _rebuild_tensor_v2(('storage', type, key, 'cpu', count), 0, size, stride, False, OrderedDict()) */
static void put_tensor(FILE *out, const tutti_array *array, size_t key)
{
    /* If one size is 0, the product of the others may overflow, and strides do not matter. */
    const bool empty = tutti_shape_count(array->shape) == 0;
    int64_t stride[TUTTI_MAX_DIMS];
    int64_t step = 1;
    char text[32];

    for (int i = array->shape.n; i-- > 0;) {
        stride[i] = step;
        step *= !empty && array->shape.d[i] > 1 ? array->shape.d[i] : 1;
    }
    snprintf(text, sizeof text, "%zu", key);
    fputs("ctorch._utils\n_rebuild_tensor_v2\n((", out);
    put_text(out, "storage");
    fprintf(out, "ctorch\n%s\n", storage_of(array->dtype));
    put_text(out, text);
    put_text(out, "cpu");
    put_integer(out, tutti_shape_count(array->shape));
    fputs("tQ", out);
    put_integer(out, 0);
    put_tuple(out, array->shape.d, array->shape.n);
    put_tuple(out, stride, array->shape.n);
    fputs("\x89"
          "ccollections\nOrderedDict\n)RtR",
          out);
}

/* *text_p: to be freed. */
static tutti_status make_pickle(const tutti__safetensors_source *sources, size_t n,
                                const tutti__safetensors_pair *tied, size_t n_tied, char **text_p,
                                size_t *bytes_p)
{
    FILE *out = open_memstream(text_p, bytes_p);
    bool failed = !out;

    if (out) {
        fputs("\x80\x02"
              "ccollections\nOrderedDict\n)R(",
              out);
        for (size_t i = 0; i < n; i++) {
            put_text(out, sources[i].name);
            put_tensor(out, &sources[i].array, i);
        }
        for (size_t i = 0; i < n_tied; i++) {
            size_t k = 0;

            while (strcmp(sources[k].name, tied[i].value) != 0)
                k++;
            put_text(out, tied[i].key);
            put_tensor(out, &sources[k].array, k);
        }
        fputs("u.", out);
        failed = ferror(out) != 0;
        failed = fclose(out) != 0 || failed;
    }
    return failed ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu names", n) : TUTTI_OK;
}

/* ---- The zip ------------------------------------------------------------------------------------------------- */

/* The file's name without its extension, as PyTorch's. */
static void make_prefix(const char *path, char prefix[PREFIX_BYTES])
{
    char copy[4096], *name, *dot;

    snprintf(copy, sizeof copy, "%s", path);
    name = basename(copy);
    dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    snprintf(prefix, PREFIX_BYTES, "%s", strlen(name) < 100 && *name != '/' ? name : "archive");
}

static tutti_status add(tutti__zip_writer *zip, const char *prefix, const char *name, const void *p,
                        size_t bytes)
{
    char path[PREFIX_BYTES + 64];

    snprintf(path, sizeof path, "%s/%s", prefix, name);
    return tutti__zip_add(zip, path, p, bytes);
}

static tutti_status add_text(tutti__zip_writer *zip, const char *prefix, const char *name,
                             const char *text)
{
    return add(zip, prefix, name, text, strlen(text));
}

typedef struct contents {
    const tutti__safetensors_source *sources;
    size_t n;
    const tutti__fetch *fetch;
    void *room;
    char *pickle;
    size_t pickle_bytes;
} contents;

/* The entries in PyTorch's order. */
static tutti_status add_all(tutti__zip_writer *zip, const char *prefix, contents *c)
{
    char name[64], id[48];
    const void *p;

    TUTTI_TRY(add(zip, prefix, "data.pkl", c->pickle, c->pickle_bytes));

    TUTTI_TRY(add_text(zip, prefix, ".format_version", "1"));
    TUTTI_TRY(add_text(zip, prefix, ".storage_alignment", "64"));
    TUTTI_TRY(add_text(zip, prefix, "byteorder", "little"));
    for (size_t i = 0; i < c->n; i++) {
        const tutti_array *array = &c->sources[i].array;

        snprintf(name, sizeof name, "data/%zu", i);
        TUTTI_TRY(tutti__fetch_array(c->fetch, c->sources, c->n, i, &c->room, &p));
        TUTTI_TRY(add(zip, prefix, name, p,
                      (size_t)tutti_shape_count(array->shape) * tutti_dtype_size(array->dtype)));
    }
    TUTTI_TRY(add_text(zip, prefix, "version", "3\n"));
    /* A number of 40 digits that identifies the contents; equal contents give equal files. */
    snprintf(id, sizeof id, "%020llu%020llu",
             (unsigned long long)tutti__hash64(c->pickle, c->pickle_bytes),
             (unsigned long long)c->n);
    TUTTI_TRY(add_text(zip, prefix, ".data/serialization_id", id));
    return tutti__zip_finish(zip);
}

static tutti_status check_types(const char *path, const tutti__safetensors_source *sources,
                                size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!storage_of(sources[i].array.dtype))
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "%s: tensor \"%.100s\" is %s, for which a .pt file has no type; "
                               "write a .safetensors file",
                               path, sources[i].name, tutti_dtype_name(sources[i].array.dtype));
    return TUTTI_OK;
}

tutti_status tutti__pytorch_write(const char *path, const tutti__safetensors_source *sources,
                                  size_t n, const tutti__safetensors_pair *tied, size_t n_tied,
                                  const tutti__fetch *fetch)
{
    contents c = {.sources = sources, .n = n, .fetch = fetch};
    char prefix[PREFIX_BYTES];
    tutti__zip_writer *zip = NULL;
    tutti__replacement file;
    tutti_status status;

    make_prefix(path, prefix);
    status = check_types(path, sources, n);
    if (status == TUTTI_OK)
        status = make_pickle(sources, n, tied, n_tied, &c.pickle, &c.pickle_bytes);
    if (status == TUTTI_OK)
        status = tutti__replace_begin(&file, path);
    if (status == TUTTI_OK) {
        status = tutti__zip_writer_new(&zip, file.fd, file.temporary, 0);
        if (status == TUTTI_OK)
            status = add_all(zip, prefix, &c);
        status = tutti__replace_end(&file, status, true);
    }
    tutti__zip_writer_free(zip);
    free(c.room);
    free(c.pickle);
    return status;
}
