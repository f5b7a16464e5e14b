/* resume_hook.c -- the state of the communication hook, of which each rank has its own.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/safetensors.h"
#include "reducer/reducer.h"
#include "train/save/resume.h"

#include <stdlib.h>
#include <string.h>

enum { HOOK_TAG = 1 };

/* Reads one rank's hook state into memory that the caller frees. */
static tutti_status read_hook(const char *folder, int rank, void **p_p, size_t *bytes_p)
{
    char path[TUTTI__CHECKPOINT_PATH + 64];
    const tutti__safetensors_entry *e;
    tutti__safetensors *file;
    tutti_status status;

    *p_p = NULL;
    snprintf(path, sizeof path, "%s/hook-rank-%05d.safetensors", folder, rank);
    TUTTI_TRY(tutti__safetensors_open(&file, path));
    e = tutti__safetensors_find(file, "powersgd");
    status = e && tutti__safetensors_has_digest(file, e)
                 ? TUTTI_OK
                 : tutti__fail(TUTTI_ERR_FORMAT, "%s: powersgd or its digest is missing", path);
    if (status == TUTTI_OK) {
        *bytes_p = (size_t)e->bytes;
        *p_p = tutti__alloc(*bytes_p);
        status = *p_p ? tutti__safetensors_read(file, e, *p_p) : TUTTI_ERR_MEMORY;
    }
    tutti__safetensors_close(file);
    return status;
}

static bool has_hook_state(const tutti__resume *r)
{
    return strcmp(r->session->config->comm_hook, "powersgd") == 0;
}

tutti_status tutti__resume_check_hook(const tutti__resume *r, const char *folder)
{
    for (int k = 0; k < tutti__resume_ranks_then(r) && has_hook_state(r); k++) {
        size_t bytes;
        void *p;
        tutti_status status = read_hook(folder, k, &p, &bytes);

        free(p);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

/* The module changes only when all has been read. */
/* The initial state of a rank when the number of ranks has changed: the mean of the old ranks' errors, so that their
 * contribution to the next mean gradient stays the same. */
static tutti_status mean_hook(const tutti__resume *r, void **mean_p, size_t *bytes_p)
{
    TUTTI_TRY(read_hook(r->path, 0, mean_p, bytes_p));
    for (int k = 1; k < tutti__resume_ranks_then(r); k++) {
        size_t bytes = 0;
        void *p;
        tutti_status status = read_hook(r->path, k, &p, &bytes);

        if (status == TUTTI_OK && bytes != *bytes_p)
            status = tutti__fail(TUTTI_ERR_FORMAT, "%s: ranks 0 and %d hold %zu and %zu bytes",
                                 r->path, k, *bytes_p, bytes);
        if (status == TUTTI_OK)
            status = tutti__powersgd_mean(*mean_p, p, bytes, (size_t)k + 1);
        free(p);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static tutti_status send_hook(tutti__resume *r, int rank, const void *p, size_t bytes)
{
    int64_t n = (int64_t)bytes;

    if (rank == 0)
        return tutti__powersgd_restore(&r->session->hook, p, bytes);
    TUTTI_TRY(
        tutti_send(r->session->group, TUTTI_CONST_BUF(&n, 1, TUTTI_I64), rank, HOOK_TAG, NULL));
    return tutti_send(r->session->group, TUTTI_CONST_BUF(p, bytes, TUTTI_U8), rank, HOOK_TAG, NULL);
}

/* Rank 0 reads each rank's state in turn, and sends it: its size, then its bytes. */
static tutti_status send_hooks(tutti__resume *r)
{
    const bool alike = tutti__resume_ranks_then(r) == r->session->size;
    tutti_status status = TUTTI_OK;
    size_t bytes = 0;
    void *p = NULL;

    if (!alike)
        status = mean_hook(r, &p, &bytes);
    for (int k = r->session->size - 1; k >= 0 && status == TUTTI_OK; k--) {
        if (alike) {
            free(p);
            status = read_hook(r->path, k, &p, &bytes);
        }
        if (status == TUTTI_OK)
            status = send_hook(r, k, p, bytes);
    }
    free(p);
    return status;
}

tutti_status tutti__resume_apply_hook(tutti__resume *r)
{
    int64_t n = 0;
    tutti_status status;
    void *p;

    if (!has_hook_state(r))
        return TUTTI_OK;
    if (r->session->rank == 0)
        return send_hooks(r);
    TUTTI_TRY(tutti_recv(r->session->group, TUTTI_BUF(&n, 1, TUTTI_I64), 0, HOOK_TAG, NULL));
    p = tutti__alloc((size_t)n);
    if (!p)
        return TUTTI_ERR_MEMORY;
    status = tutti_recv(r->session->group, TUTTI_BUF(p, (size_t)n, TUTTI_U8), 0, HOOK_TAG, NULL);
    if (status == TUTTI_OK)
        status = tutti__powersgd_restore(&r->session->hook, p, (size_t)n);
    free(p);
    return status;
}
