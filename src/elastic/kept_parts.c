/* kept_parts.c -- the state that outlives groups.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status check(const tutti_elastic *e, const tutti_elastic_part *part)
{
    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(part));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_elastic_part, part));
    if (!part->name || !*part->name)
        return tutti__fail(TUTTI_ERR_ARG, "elastic_keep: a part without a name");
    if (e->group || e->stats.groups > 0)
        return tutti__fail(TUTTI_ERR_STATE,
                           "elastic_keep: \"%.60s\" comes after the first group was formed; keep "
                           "all parts of the state before the first tutti_elastic_begin or join",
                           part->name);
    return TUTTI_OK;
}

tutti_status tutti_elastic_keep(tutti_elastic *e, const tutti_elastic_part *part)
{
    tutti_status status = check(e, part);
    tutti__elastic_part *kept = status == TUTTI_OK ? tutti__alloc(sizeof *kept) : NULL;

    if (!kept) {
        if (part && part->free)
            part->free(part->self);
        return status == TUTTI_OK ? TUTTI_ERR_MEMORY : status;
    }
    kept->calls = *part;
    snprintf(kept->name, sizeof kept->name, "%s", part->name);
    kept->calls.name = kept->name;
    kept->previous = e->last;
    if (e->last)
        e->last->next = kept;
    else
        e->first = kept;
    e->last = kept;
    return TUTTI_OK;
}

void tutti__parts_free(tutti_elastic *e)
{
    while (e->last) {
        tutti__elastic_part *part = e->last;

        e->last = part->previous;
        if (part->calls.free)
            part->calls.free(part->calls.self);
        free(part);
    }
    e->first = NULL;
}

/* ---- Bytes ---- */

typedef struct bytes {
    void *p;
    size_t n;
} bytes;

static tutti_status move_bytes(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                               void *arg)
{
    const bytes *kept = self;

    return move(arg, TUTTI_BUF(kept->p, kept->n, TUTTI_U8));
}

tutti_status tutti_elastic_keep_bytes(tutti_elastic *e, const char *name, void *p, size_t n)
{
    bytes *kept;

    TUTTI_TRY(TUTTI__NOT_NULL(e));
    if (!p && n > 0)
        return tutti__fail(TUTTI_ERR_ARG, "elastic_keep_bytes: \"%.60s\" is NULL with %zu bytes",
                           name ? name : "", n);
    kept = tutti__alloc(sizeof *kept);
    if (!kept)
        return TUTTI_ERR_MEMORY;
    *kept = (bytes){p, n};
    return tutti_elastic_keep(
        e, &(tutti_elastic_part){.name = name, .state = move_bytes, .free = free, .self = kept});
}
