/* mpi_memory.c -- memory of tutti_group_alloc: mapped twice, for the program and for the engine.   SPDX-License-Identifier: MIT
 *
 * Both mappings show the same pages. MPI requests may name the engine's: when they are abandoned, the program gets private
 * pages instead, and the engine's mapping stays for good. If the system cannot map pages twice, there is only the
 * program's mapping. */
#include "comm/backend/mpi/mpi_engine.h"

#include <stdlib.h>
#include <sys/mman.h>

struct tutti__mpi_view {
    tutti__mpi_view *next;
    char *program, *engine;
    size_t bytes;
};

/* Removes one from the list; p NULL: any. */
static tutti__mpi_view *take(tutti__mpi_engine *e, const void *p)
{
    tutti__mpi_view **place, *view;

    pthread_mutex_lock(&e->views_lock);
    for (place = &e->views; *place && p && (*place)->program != p;)
        place = &(*place)->next;
    view = *place;
    if (view)
        *place = view->next;
    pthread_mutex_unlock(&e->views_lock);
    return view;
}

static void drop(const tutti__mpi_engine *e, tutti__mpi_view *view)
{
    if (view && !tutti__comm_failed(e->base.comm))
        munmap(view->engine, view->bytes);
    free(view);
}

/* Replaces plain memory by shared pages, and maps them a second time. */
tutti_status tutti__mpi_alloc(tutti__mpi_engine *e)
{
    size_t bytes = e->op->signature.count ? (size_t)e->op->signature.count : 1;
    tutti__mpi_view *view;
    void *p, *again = MAP_FAILED;

    TUTTI_TRY(tutti__plain_alloc(&e->memory, e->op));
    p = mmap(*(void **)e->op->dst, bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    view = malloc(sizeof *view);
    if (view)
        /* with an old size of 0 it copies the mapping */
        again = mremap(p, 0, bytes, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) {
        free(view);
        return TUTTI_OK;
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    madvise(again, bytes, MADV_HUGEPAGE);
    pthread_mutex_lock(&e->views_lock);
    *view = (tutti__mpi_view){e->views, p, again, bytes};
    e->views = view;
    pthread_mutex_unlock(&e->views_lock);
    return TUTTI_OK;
}

void tutti__mpi_release(tutti__mpi_engine *e, void *p)
{
    drop(e, take(e, p));
    tutti__plain_release(&e->memory, e->base.comm, p);
}

void tutti__mpi_release_all(tutti__mpi_engine *e)
{
    while (e->views)
        drop(e, take(e, NULL));
    tutti__plain_destroy(&e->memory);
    pthread_mutex_destroy(&e->views_lock);
}

char *tutti__mpi_view_of(tutti__mpi_engine *e, const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    tutti__mpi_view *view;

    pthread_mutex_lock(&e->views_lock);
    for (view = e->views; view; view = view->next)
        if (at >= (uintptr_t)view->program && at + bytes <= (uintptr_t)view->program + view->bytes)
            break;
    pthread_mutex_unlock(&e->views_lock);
    return view ? view->engine + (at - (uintptr_t)view->program) : NULL;
}
