/* safetensors_write.c -- writes a safetensors file atomically.   SPDX-License-Identifier: MIT
 *
 * The header is padded to 8 bytes, and arrays are sorted by descending alignment of their types, then by name, so that each is
 * naturally aligned in a mapped file; equal contents give equal bytes. The header has the digests of arrays, so that of arrays which come into
 * memory one by one it is written twice: the digests, of a fixed length, are 0 at first. */
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static int add_digests(json_t *pairs, const tutti__safetensors_source *const *sorted, size_t n,
                       const uint64_t *digests)
{
    int failed = 0;

    for (size_t i = 0; i < n; i++) {
        char *key = NULL, digest[24];

        snprintf(digest, sizeof digest, "%016" PRIx64, digests[i]);
        if (asprintf(&key, TUTTI__SAFETENSORS_DIGEST "%s", sorted[i]->name) < 0)
            return -1;
        failed |= json_object_set_new(pairs, key, json_string(digest));
        free(key);
    }
    return failed;
}

/* NULL: out of memory. With fewer members than arrays and one, where two have the same name. */
static json_t *header_json(const tutti__safetensors_source *const *sorted, size_t n,
                           const uint64_t *digests, const tutti__safetensors_pair *metadata,
                           size_t n_metadata)
{
    json_t *root = json_object(), *pairs = json_object();
    size_t offset = 0;
    int failed = 0;

    for (size_t i = 0; i < n_metadata; i++)
        failed |= json_object_set_new(pairs, metadata[i].key, json_string(metadata[i].value));
    failed |= add_digests(pairs, sorted, n, digests);
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

/* Length, JSON and padding as one block. */
typedef struct header {
    char *block; /* free() */
    size_t bytes;
} header;

static tutti_status make_header(header *h, const tutti__safetensors_source *const *sorted, size_t n,
                                const uint64_t *digests, const tutti__safetensors_pair *metadata,
                                size_t n_metadata)
{
    const bool valid = are_utf8(sorted, n, metadata, n_metadata);
    json_t *root = valid ? header_json(sorted, n, digests, metadata, n_metadata) : NULL;
    char *text = tutti__json_text(root, JSON_COMPACT);
    const bool distinct = !root || json_object_size(root) == n + 1;
    const size_t length = text ? strlen(text) : 0;
    const size_t padded = (length + 7) / 8 * 8;
    tutti_status status = TUTTI_OK;
    uint64_t le = htole64((uint64_t)padded);

    free(h->block);
    *h = (header){NULL, 8 + padded};
    if (!valid || !distinct)
        status = tutti__fail(TUTTI_ERR_ARG, "names of tensors must be different UTF-8 texts");
    else if (!text)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the header of %zu tensors", n);
    else {
        h->block = tutti__alloc(8 + padded);
        status = h->block ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    if (status == TUTTI_OK) {
        memcpy(h->block, &le, 8);
        memset(h->block + 8, ' ', padded);
        memcpy(h->block + 8, text, length);
    }
    free(text);
    json_decref(root);
    return status;
}

int tutti__by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sources in the order of the file, and room for their digests, behind them; NULL: no memory. */
static const tutti__safetensors_source **sort(const tutti__safetensors_source *sources, size_t n,
                                              uint64_t **digests_p)
{
    const tutti__safetensors_source **sorted =
        tutti__alloc((n + 1) * (sizeof *sorted + sizeof **digests_p));

    if (!sorted)
        return NULL;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &sources[i];
    qsort(sorted, n, sizeof *sorted, by_alignment_then_name);
    *digests_p = (uint64_t *)(void *)(sorted + n + 1);
    return sorted;
}

tutti_status tutti__safetensors_put(tutti__put *put, void *user,
                                    const tutti__safetensors_source *sources, size_t n,
                                    const tutti__safetensors_pair *metadata, size_t n_metadata)
{
    uint64_t *digests;
    const tutti__safetensors_source **sorted = sort(sources, n, &digests);
    header h = {NULL, 0};
    tutti_status status;

    if (!sorted)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        digests[i] = tutti__hash64(sorted[i]->array.p, array_bytes(&sorted[i]->array));
    status = make_header(&h, sorted, n, digests, metadata, n_metadata);
    if (status == TUTTI_OK)
        status = put(user, h.block, h.bytes);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        status = put(user, sorted[i]->array.p, array_bytes(&sorted[i]->array));
    free(h.block);
    free(sorted);
    return status;
}

static tutti_status put_in_file(void *user, const void *p, size_t bytes)
{
    const tutti__replacement *file = user;

    return tutti__write_all(file->fd, file->temporary, p, bytes);
}

tutti_status tutti__fetch_array(const tutti__fetch *fetch, const tutti__safetensors_source *sources,
                                size_t n, size_t i, void **room_p, const void **elements_p)
{
    size_t largest = 0;

    *elements_p = sources[i].array.p;
    if (!fetch)
        return TUTTI_OK;
    for (size_t k = 0; k < n && !*room_p; k++)
        if (array_bytes(&sources[k].array) > largest)
            largest = array_bytes(&sources[k].array);
    if (!*room_p && !(*room_p = tutti__alloc_unset(largest + 1)))
        return TUTTI_ERR_MEMORY;
    *elements_p = *room_p;
    return fetch->get(fetch->arg, i, *room_p);
}

/* The arrays one by one, behind a header without their digests, and the header again. */
static tutti_status put_each(tutti__replacement *file, const tutti__safetensors_source *sources,
                             size_t n, const tutti__safetensors_pair *metadata, size_t n_metadata,
                             const tutti__fetch *fetch)
{
    uint64_t *digests;
    const tutti__safetensors_source **sorted = sort(sources, n, &digests);
    header h = {NULL, 0};
    void *room = NULL;
    const void *p;
    tutti_status status;

    if (!sorted)
        return TUTTI_ERR_MEMORY;
    status = make_header(&h, sorted, n, digests, metadata, n_metadata);
    if (status == TUTTI_OK)
        status = put_in_file(file, h.block, h.bytes);
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        const size_t bytes = array_bytes(&sorted[i]->array);

        status = tutti__fetch_array(fetch, sources, n, (size_t)(sorted[i] - sources), &room, &p);
        if (status == TUTTI_OK)
            status = put_in_file(file, p, bytes);
        if (status == TUTTI_OK)
            digests[i] = tutti__hash64(p, bytes);
    }
    if (status == TUTTI_OK)
        status = make_header(&h, sorted, n, digests, metadata, n_metadata);
    if (status == TUTTI_OK && lseek(file->fd, 0, SEEK_SET) != 0)
        status = tutti__fail_errno(errno, "cannot write %s", file->temporary);
    if (status == TUTTI_OK)
        status = put_in_file(file, h.block, h.bytes);
    free(room);
    free(h.block);
    free(sorted);
    return status;
}

tutti_status tutti__safetensors_write_each(const char *path,
                                           const tutti__safetensors_source *sources, size_t n,
                                           const tutti__safetensors_pair *metadata,
                                           size_t n_metadata, const tutti__fetch *fetch)
{
    tutti__replacement file;

    TUTTI_TRY(tutti__replace_begin(&file, path));
    return tutti__replace_end(
        &file,
        fetch ? put_each(&file, sources, n, metadata, n_metadata, fetch)
              : tutti__safetensors_put(put_in_file, &file, sources, n, metadata, n_metadata),
        true);
}

tutti_status tutti__safetensors_write(const char *path, const tutti__safetensors_source *sources,
                                      size_t n, const tutti__safetensors_pair *metadata,
                                      size_t n_metadata)
{
    return tutti__safetensors_write_each(path, sources, n, metadata, n_metadata, NULL);
}
