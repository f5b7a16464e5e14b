/* verify.c -- what a checkpoint says of itself, and whether that is on the disk.   SPDX-License-Identifier: MIT */
#include "checkpoint/verify.h"

#include "checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hexadecimal(uint64_t digest, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)digest);
}

json_t *tutti__tensor_digests(const tutti__safetensors_source *sources, size_t n)
{
    json_t *digests = json_object();
    int failed = !digests;

    for (size_t i = 0; i < n && !failed; i++) {
        const tutti_array *a = &sources[i].array;
        char text[17];

        hexadecimal(
            tutti__hash64(a->p, (size_t)tutti_shape_count(a->shape) * tutti_dtype_size(a->dtype)),
            text);
        failed = json_object_set_new(digests, sources[i].name, json_string(text));
    }
    if (!failed)
        return digests;
    json_decref(digests);
    tutti__fail(TUTTI_ERR_MEMORY, "no memory for the digests of a checkpoint");
    return NULL;
}

tutti_status tutti__state_digest(const json_t *state, char text[33])
{
    json_t *rest = json_copy((json_t *)(uintptr_t)state);
    char *dump = NULL;

    if (rest && (json_object_del(rest, "digest"), true))
        dump = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(rest);
    if (!dump)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    snprintf(text, 33, "%016llx", (unsigned long long)tutti__hash64(dump, strlen(dump)));
    free(dump);
    return TUTTI_OK;
}

/* What the kernel still has of it in memory says nothing about the disk. */
static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static tutti_status verify_tensor(const tutti__safetensors *file, const char *path,
                                  const tutti__safetensors_entry *e, const char *expected,
                                  void *room)
{
    char found[17];

    TUTTI_TRY(tutti__safetensors_read(file, e, room));
    hexadecimal(tutti__hash64(room, (size_t)e->bytes), found);
    if (!expected || strcmp(found, expected) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s: %.200s has digest %s, and state.json says %.40s: damaged", path,
                       e->name, found, expected);
}

static tutti_status verify_tensors(const tutti__safetensors *file, const char *path,
                                   const json_t *digests)
{
    size_t n = tutti__safetensors_count(file), largest = 0;
    tutti_status status = TUTTI_OK;
    void *room;

    if (digests && json_object_size(digests) != n)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s holds %zu tensors, and state.json says %zu", path,
                           n, json_object_size(digests));
    for (size_t i = 0; i < n; i++)
        if (tutti__safetensors_at(file, i)->bytes > largest)
            largest = (size_t)tutti__safetensors_at(file, i)->bytes;
    room = tutti__alloc(largest);
    if (!room)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        const tutti__safetensors_entry *e = tutti__safetensors_at(file, i);
        const char *expected = json_string_value(json_object_get(digests, e->name));

        if (digests && !expected)
            status =
                tutti__fail(TUTTI_ERR_FORMAT, "%s: state.json does not know %.200s", path, e->name);
        else
            status = verify_tensor(file, path, e, expected, room);
    }
    free(room);
    return status;
}

static tutti_status verify_file(const char *folder, const char *name, const json_t *digests)
{
    char path[TUTTI__CHECKPOINT_PATH];
    tutti__safetensors *file;
    tutti_status status;

    if (strchr(name, '/') || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: state.json names a file %.60s", folder, name);
    forget(path);
    TUTTI_TRY(tutti__safetensors_open(&file, path));
    status = verify_tensors(file, path, digests);
    tutti__safetensors_close(file);
    return status;
}

static tutti_status verify_state(const json_t *state, const char *path)
{
    const char *said = json_string_value(json_object_get(state, "digest"));
    char digest[33];

    TUTTI_TRY(tutti__state_digest(state, digest));
    if (!said || strcmp(said, digest) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is damaged: its contents have digest %s, and it says %.40s", path,
                       digest, said);
}

tutti_status tutti__checkpoint_verify(const char *folder)
{
    char path[TUTTI__CHECKPOINT_PATH];
    json_error_t error;
    json_t *state, *tensors, *digests;
    const char *name;
    tutti_status status;

    if (snprintf(path, sizeof path, "%s/state.json", folder) >= (int)sizeof path)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoint %.60s...: the path is too long", folder);
    forget(path);
    state = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!state)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s cannot be read: %s", path, error.text);
    status = verify_state(state, path);
    tensors = json_object_get(state, "tensors");
    if (status == TUTTI_OK && !tensors) {
        status = verify_file(folder, "model.safetensors", NULL);
        if (status == TUTTI_OK)
            status = verify_file(folder, "optimizer.safetensors", NULL);
    }
    json_object_foreach(tensors, name, digests)
    {
        if (status == TUTTI_OK)
            status = verify_file(folder, name, digests);
    }
    json_decref(state);
    return status;
}
