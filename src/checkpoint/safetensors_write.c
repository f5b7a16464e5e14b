/* safetensors_write.c -- writes a safetensors file atomically.   SPDX-License-Identifier: MIT
 *
 * The header is padded to 8 bytes, and arrays are sorted by descending alignment of their types, then by name, so that each is
 * naturally aligned in a mapped file; equal contents give equal bytes. */
#include "checkpoint/json_text.h"
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
    int failed = 0;

    for (int i = 0; i < array->shape.n; i++)
        failed |= json_array_append_new(shape, json_integer(array->shape.d[i]));
    if (failed) {
        json_decref(shape);
        return NULL;
    }
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

/* NULL: out of memory. With fewer members than arrays and one, where two have the same name. */
static json_t *header_json(const tutti__safetensors_source *const *sorted, size_t n,
                           const tutti__safetensors_pair *metadata, size_t n_metadata)
{
    json_t *root = json_object(), *pairs = json_object();
    size_t offset = 0;
    int failed = 0;

    for (size_t i = 0; i < n_metadata; i++)
        failed |= json_object_set_new(pairs, metadata[i].key, json_string(metadata[i].value));
    failed |= add_digests(pairs, sorted, n);
    failed |= json_object_set_new(root, "__metadata__", pairs);
    for (size_t i = 0; i < n; i++) {
        failed |= json_object_set_new(root, sorted[i]->name, entry_json(&sorted[i]->array, offset));
        offset += array_bytes(&sorted[i]->array);
    }
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static bool are_utf8(const tutti__safetensors_source *const *sorted, size_t n,
                     const tutti__safetensors_pair *metadata, size_t n_metadata)
{
    for (size_t i = 0; i < n; i++)
        if (!tutti__is_utf8(sorted[i]->name))
            return false;
    for (size_t i = 0; i < n_metadata; i++)
        if (!tutti__is_utf8(metadata[i].key) || !tutti__is_utf8(metadata[i].value))
            return false;
    return true;
}

/* Length, JSON and padding as one block, which the caller frees. */
static tutti_status make_header(const tutti__safetensors_source *const *sorted, size_t n,
                                const tutti__safetensors_pair *metadata, size_t n_metadata,
                                char **block_p, size_t *bytes_p)
{
    const bool valid = are_utf8(sorted, n, metadata, n_metadata);
    json_t *root = valid ? header_json(sorted, n, metadata, n_metadata) : NULL;
    char *text = tutti__json_text(root, JSON_COMPACT);
    const bool distinct = !root || json_object_size(root) == n + 1;
    const size_t length = text ? strlen(text) : 0;
    const size_t padded = (length + 7) / 8 * 8;
    tutti_status status = TUTTI_OK;
    uint64_t le = htole64((uint64_t)padded);

    if (!valid || !distinct)
        status = tutti__fail(TUTTI_ERR_ARG, "names of tensors must be different UTF-8 texts");
    else if (!text)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the header of %zu tensors", n);
    else {
        *block_p = tutti__alloc(8 + padded);
        status = *block_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    if (status == TUTTI_OK) {
        memcpy(*block_p, &le, 8);
        memset(*block_p + 8, ' ', padded);
        memcpy(*block_p + 8, text, length);
        *bytes_p = 8 + padded;
    }
    free(text);
    json_decref(root);
    return status;
}

int tutti__by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

tutti_status tutti__safetensors_put(tutti__put *put, void *user,
                                    const tutti__safetensors_source *sources, size_t n,
                                    const tutti__safetensors_pair *metadata, size_t n_metadata)
{
    const tutti__safetensors_source **sorted = tutti__alloc((n + 1) * sizeof *sorted);
    size_t header_bytes = 0;
    char *header = NULL;
    tutti_status status;

    if (!sorted)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &sources[i];
    qsort(sorted, n, sizeof *sorted, by_alignment_then_name);
    status = make_header(sorted, n, metadata, n_metadata, &header, &header_bytes);
    if (status == TUTTI_OK)
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
