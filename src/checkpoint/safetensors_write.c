/* safetensors_write.c -- writes a safetensors file atomically.   SPDX-License-Identifier: MIT
 *
 * The header is padded to 8 bytes, and arrays are sorted by descending alignment of their types, then by name, so that each is
 * naturally aligned in a mapped file; equal contents give equal bytes. */
#include "checkpoint/safetensors.h"

#include <endian.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_alignment_then_name(const void *a, const void *b)
{
    const tutti__safetensors_source *x = *(const tutti__safetensors_source *const *)a;
    const tutti__safetensors_source *y = *(const tutti__safetensors_source *const *)b;
    size_t i = tutti_dtype_size(x->array.dtype), j = tutti_dtype_size(y->array.dtype);

    if (i != j)
        return i > j ? -1 : 1;
    return strcmp(x->name, y->name);
}

static size_t array_bytes(const tutti_array *array)
{
    return (size_t)tutti_shape_count(array->shape) * tutti_dtype_size(array->dtype);
}

static json_t *entry_json(const tutti_array *array, size_t offset)
{
    json_t *shape = json_array();

    for (int i = 0; i < array->shape.n; i++)
        json_array_append_new(shape, json_integer(array->shape.d[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tutti_dtype_name(array->dtype), "shape",
                     shape, "data_offsets", (json_int_t)offset,
                     (json_int_t)(offset + array_bytes(array)));
}

/* A digest of each array, by which a reader detects damage. */
static int add_digests(json_t *pairs, const tutti__safetensors_source *const *sorted, size_t n)
{
    int failed = 0;

    for (size_t i = 0; i < n; i++) {
        char *key = NULL, digest[24];

        snprintf(digest, sizeof digest, "%016" PRIx64,
                 tutti__hash64(sorted[i]->array.p, array_bytes(&sorted[i]->array)));
        if (asprintf(&key, TUTTI__SAFETENSORS_DIGEST "%s", sorted[i]->name) < 0)
            return -1;
        failed |= json_object_set_new(pairs, key, json_string(digest));
        free(key);
    }
    return failed;
}

/* Length, JSON and padding as one block; *bytes_p is its size. NULL: out of memory, or two arrays with one name (message set). */
static char *make_header(const tutti__safetensors_source *const *sorted, size_t n,
                         const tutti__safetensors_pair *metadata, size_t n_metadata,
                         size_t *bytes_p)
{
    json_t *root = json_object(), *pairs = json_object();
    size_t offset = 0, length, padded;
    char *text, *block = NULL;
    uint64_t le;
    int failed = 0;

    for (size_t i = 0; i < n_metadata; i++)
        failed |= json_object_set_new(pairs, metadata[i].key, json_string(metadata[i].value));
    failed |= add_digests(pairs, sorted, n);
    failed |= json_object_set_new(root, "__metadata__", pairs);
    for (size_t i = 0; i < n; i++) {
        failed |= json_object_set_new(root, sorted[i]->name, entry_json(&sorted[i]->array, offset));
        offset += array_bytes(&sorted[i]->array);
    }
    text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    if (json_object_size(root) != n + 1 || !text)
        tutti__fail(TUTTI_ERR_ARG, "names of tensors must be different UTF-8 texts");
    else {
        length = strlen(text);
        padded = (length + 7) / 8 * 8;
        block = tutti__alloc(8 + padded);
        if (block) {
            le = htole64((uint64_t)padded);
            memcpy(block, &le, 8);
            memset(block + 8, ' ', padded);
            memcpy(block + 8, text, length);
            *bytes_p = 8 + padded;
        }
    }
    free(text);
    json_decref(root);
    return block;
}

tutti_status tutti__safetensors_put(tutti__put *put, void *user,
                                    const tutti__safetensors_source *sources, size_t n,
                                    const tutti__safetensors_pair *metadata, size_t n_metadata)
{
    const tutti__safetensors_source **sorted = tutti__alloc((n + 1) * sizeof *sorted);
    size_t header_bytes = 0;
    char *header;
    tutti_status status = TUTTI_ERR_ARG;

    if (!sorted)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &sources[i];
    qsort(sorted, n, sizeof *sorted, by_alignment_then_name);
    header = make_header(sorted, n, metadata, n_metadata, &header_bytes);
    if (header)
        status = put(user, header, header_bytes);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        status = put(user, sorted[i]->array.p, array_bytes(&sorted[i]->array));
    free(header);
    free(sorted);
    return status;
}

static tutti_status put_in_file(void *user, const void *p, size_t bytes)
{
    const tutti__replacement *file = user;

    return tutti__write_all(file->fd, file->temporary, p, bytes);
}

tutti_status tutti__safetensors_write(const char *path, const tutti__safetensors_source *sources,
                                      size_t n, const tutti__safetensors_pair *metadata,
                                      size_t n_metadata)
{
    tutti__replacement file;

    TUTTI_TRY(tutti__replace_begin(&file, path));
    return tutti__replace_end(
        &file, tutti__safetensors_put(put_in_file, &file, sources, n, metadata, n_metadata), true);
}
