/* primitive.c -- cached primitives; running them, in parts on our own threads.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

#include "base/thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- One thread ------------------------------------------------------------------------------- */

/* Functions of the OpenMP runtime that oneDNN has loaded; NULL if none. */
static struct {
    pthread_once_t once;
    int (*get_threads)(void);
    void (*set_threads)(int);
} openmp = {.once = PTHREAD_ONCE_INIT};

/* Converts through unions: ISO C has no cast from an object pointer to a function pointer. */
static void find_openmp(void)
{
    union {
        void *p;
        int (*get)(void);
    } get = {dlsym(RTLD_DEFAULT, "omp_get_max_threads")};
    union {
        void *p;
        void (*set)(int);
    } set = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};

    if (get.p && set.p) {
        openmp.get_threads = get.get;
        openmp.set_threads = set.set;
    }
}

int tutti__onednn_alone_begin(void)
{
    int kept;

    pthread_once(&openmp.once, find_openmp);
    kept = openmp.get_threads ? openmp.get_threads() : 1;
    if (kept > 1)
        openmp.set_threads(1);
    return kept;
}

void tutti__onednn_alone_end(int kept)
{
    if (kept > 1)
        openmp.set_threads(kept);
}

tutti_status tutti__onednn_check_runtime(void)
{
    const dnnl_version_t *version = dnnl_version();
    const unsigned runtime = version->cpu_runtime;

    if (runtime == DNNL_RUNTIME_SEQ || runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_TBB)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "oneDNN %d.%d.%d was built for %s on the CPU, expected OMP, TBB or SEQ "
                       "(its option ONEDNN_CPU_RUNTIME): build tutti with another oneDNN, or "
                       "choose kernels reference (TUTTI_KERNELS=reference)",
                       version->major, version->minor, version->patch,
                       runtime == DNNL_RUNTIME_THREADPOOL ? "a thread pool of the program's"
                       : runtime == DNNL_RUNTIME_NONE     ? "nothing"
                                                          : "SYCL");
}

int tutti__onednn_foreign_threads(void)
{
    cpu_set_t set;

    if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_TBB)
        return 0;
    return sched_getaffinity(getpid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* ---- Making ------------------------------------------------------------------------------------------------- */

tutti__onednn_primitive *tutti__onednn_find(tutti_ctx *cx, const tutti__onednn_key *key)
{
    const tutti__onednn *od = cx->kernel_state;
    tutti__onednn_primitive *p = od->primitives;

    while (p && memcmp(&p->key, key, sizeof *key) != 0)
        p = p->next;
    return p;
}

static void primitive_end(tutti__onednn_primitive *p)
{
    for (int i = 0; i <= p->n_args; i++)
        if (p->exec[i].memory)
            dnnl_memory_destroy(p->exec[i].memory);
    if (p->primitive && !p->lent)
        dnnl_primitive_destroy(p->primitive);
    if (p->pd && !p->lent)
        dnnl_primitive_desc_destroy(p->pd);
}

static void forget_parts(tutti__onednn_primitive *p)
{
    for (int i = 0; i < p->n_parts && p->parts; i++)
        primitive_end(&p->parts[i]);
    free(p->parts);
    p->parts = NULL;
    p->n_parts = 1;
}

void tutti__onednn_primitives_free(tutti__onednn *od)
{
    while (od->primitives) {
        tutti__onednn_primitive *next = od->primitives->next;

        forget_parts(od->primitives);
        primitive_end(od->primitives);
        free(od->primitives);
        od->primitives = next;
    }
    od->n_primitives = 0;
}

static tutti__const_md md_of(const tutti__onednn_primitive *p, int i)
{
    return dnnl_primitive_desc_query_md(p->pd, p->args[i].query, p->args[i].index);
}

/* Before oneDNN 3.12, F32 matrix products with long sums point the stack pointer into their workspace, with or without AVX-512,
 * and a signal handler's frame would overwrite the heap before it. Primitives made of them have "gemm" in their name. */
static bool holds_signals(dnnl_primitive_desc_t pd)
{
    const char *name = "";
    const dnnl_version_t *version = dnnl_version();

    if (version->major > 3 || (version->major == 3 && version->minor >= 12))
        return false;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) !=
               dnnl_success ||
           strstr(name, "gemm") != NULL;
}

/* Reads p->pd; p->args are set. */
static tutti_status primitive_init(tutti_ctx *cx, tutti__onednn_primitive *p)
{
    tutti__const_md md;

    p->n_parts = 1;
    p->holds_signals = holds_signals(p->pd);
    for (int i = 0; i < p->n_args; i++) {
        md = md_of(p, i);
        p->bytes[i] = dnnl_memory_desc_get_size(md);
        if (p->args[i].query != dnnl_query_workspace_md)
            TUTTI_TRY(tutti__onednn_layout(cx, md, &p->layouts[i]));
    }
    md = dnnl_primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    return TUTTI_OK;
}

/* Makes the primitive before its first run. */
static tutti_status primitive_ready(tutti_ctx *cx, tutti__onednn_primitive *p)
{
    tutti__onednn *od = cx->kernel_state;
    dnnl_status_t status = dnnl_success;

    if (p->exec[0].memory)
        return TUTTI_OK;
    if (!p->primitive) {
        TUTTI_TRY(tutti__onednn_room_for_code());
        status = dnnl_primitive_create(&p->primitive, p->pd);
    }
    TUTTI_TRY(tutti__onednn_check(status, "making a primitive"));
    for (int i = p->scratch_bytes ? p->n_args : p->n_args - 1; i >= 0; i--) {
        const bool own = i < p->n_args;
        const tutti__const_md md =
            own ? md_of(p, i) : dnnl_primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0);

        p->exec[i].arg = own ? p->args[i].arg : DNNL_ARG_SCRATCHPAD;
        if (!p->exec[i].memory)
            status = dnnl_memory_create(&p->exec[i].memory, md, od->engine, DNNL_MEMORY_NONE);
        TUTTI_TRY(tutti__onednn_check(status, "making a memory object"));
    }
    cx->kernel_allocations++;
    return TUTTI_OK;
}

tutti_status tutti__onednn_add(tutti_ctx *cx, const tutti__onednn_key *key,
                               dnnl_primitive_desc_t pd, const tutti__onednn_arg *args, int n_args,
                               tutti__onednn_primitive **primitive_p)
{
    tutti__onednn *od = cx->kernel_state;
    tutti__onednn_primitive *p = tutti__alloc(sizeof *p);
    tutti_status status = p ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (!p) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    p->key = *key;
    p->pd = pd;
    p->n_args = n_args;
    memcpy(p->args, args, (size_t)n_args * sizeof *args);
    status = primitive_init(cx, p);
    if (status != TUTTI_OK) {
        primitive_end(p);
        free(p);
        return status;
    }
    p->next = od->primitives;
    od->primitives = p;
    od->n_primitives++;
    cx->kernel_allocations++;
    *primitive_p = p;
    return TUTTI_OK;
}

/* ---- Parts -------------------------------------------------------------------------------------------------- */

int tutti__onednn_parts_of(int64_t times)
{
    return times < 1 ? 1 : times < TUTTI__ONEDNN_MAX_PARTS ? (int)times : TUTTI__ONEDNN_MAX_PARTS;
}

dnnl_status_t tutti__onednn_md_images(tutti__md *md_p, const tutti__onednn_primitive *p, int i,
                                      int64_t images)
{
    return tutti__md_images(md_p, md_of(p, i), images);
}

/* How many images are interleaved in memory; 0: other data are in between. */
static int64_t images_in_line(tutti__const_md md, int64_t images)
{
    tutti__md_strides s;
    int64_t together = 1;

    if (!tutti__md_query(md, &s) || s.n < 1 || s.dims[0] != images || s.padded_dims[0] != images)
        return 0;
    for (int i = 0; i < s.n_blocks; i++)
        if (s.block_dims[i] == 0)
            together *= s.blocks[i];
    for (int i = 1; i < s.n; i++)
        if (s.dims[i] > 1 && s.strides[i] > s.strides[0])
            return 0;
    return dnnl_memory_desc_get_size(md) % (size_t)images == 0 ? together : 0;
}

/* For all arguments; 0: p cannot be split. */
static int64_t images_together(const tutti__onednn_primitive *p, int64_t images)
{
    int64_t together = 1;

    for (int i = 0; i < p->n_args; i++)
        if (p->args[i].share == TUTTI__ONEDNN_IMAGES) {
            const int64_t in_line = images_in_line(md_of(p, i), images);

            if (in_line == 0 || together % in_line != 0)
                together *= in_line;
        }
    return together;
}

static tutti_status part_init(tutti_ctx *cx, const tutti__onednn_primitive *p,
                              const tutti__onednn_parts *how, int number)
{
    tutti__onednn_primitive *part = &p->parts[number];
    const int64_t first = number * p->most;
    const int64_t images = p->images - first < p->most ? p->images - first : p->most;
    dnnl_status_t status;
    int kept;

    part->n_args = p->n_args;
    part->images = images;
    memcpy(part->args, p->args, sizeof p->args);
    if (number > 0 && images == part[-1].images) {
        part->pd = part[-1].pd;
        part->lent = true;
    } else {
        kept = tutti__onednn_alone_begin();
        status = how->make(cx, how->self, p, images, &part->pd);
        tutti__onednn_alone_end(kept);
        TUTTI_TRY(tutti__onednn_check(status, "a primitive of some of the images"));
    }
    return primitive_init(cx, part);
}

static tutti_status cut_into(tutti_ctx *cx, tutti__onednn_primitive *p,
                             const tutti__onednn_parts *how, int64_t n, int64_t together)
{
    tutti_status status = TUTTI_OK;

    p->most = ((p->images + n - 1) / n + together - 1) / together * together;
    p->parts = tutti__alloc((size_t)n * sizeof *p->parts);
    if (!p->parts)
        return TUTTI_ERR_MEMORY;
    p->n_parts = (int)((p->images + p->most - 1) / p->most);
    for (int i = 0; i < p->n_parts && status == TUTTI_OK; i++)
        status = part_init(cx, p, how, i);
    if (status != TUTTI_OK)
        forget_parts(p);
    return status;
}

static bool parts_are_fast(const tutti__onednn_primitive *p)
{
    for (int i = 0; i < p->n_parts; i++)
        if (!tutti__onednn_is_fast(p->parts[i].pd))
            return false;
    return true;
}

/* oneDNN may have fast code for the layouts of the whole, but none for fewer images in them (3.7, bf16 with AMX: the parts ran
 * in its reference code, 100 times slower): then the parts are fewer, or the whole is not cut. */
tutti_status tutti__onednn_cut(tutti_ctx *cx, tutti__onednn_primitive *p,
                               const tutti__onednn_parts *how)
{
    const bool fast = tutti__onednn_is_fast(p->pd);
    int64_t n = how->n < how->images ? how->n : how->images;
    const int64_t together = n > 1 ? images_together(p, how->images) : 0;

    p->images = how->images;
    for (; together > 0 && n > 1; n /= 2) {
        TUTTI_TRY(cut_into(cx, p, how, n, together));
        if (!fast || parts_are_fast(p))
            return TUTTI_OK;
        forget_parts(p);
    }
    p->most = p->images;
    return TUTTI_OK;
}

/* ---- Running ------------------------------------------------------------------------------------------------ */

typedef struct run {
    tutti__onednn *od;
    tutti__onednn_primitive *p;
    void *const *data;
    char *scratch;
    size_t scratch_bytes; /* per thread */
    dnnl_status_t status[TUTTI__ONEDNN_MAX_PARTS];
} run;

/* The address of the part's share of argument i. */
static void *share_of(const run *r, int64_t part, int i)
{
    const tutti__onednn_primitive *p = r->p;

    switch (p->args[i].share) {
    case TUTTI__ONEDNN_IMAGES:
        return (char *)r->data[i] + (size_t)(part * p->most) * (p->bytes[i] / (size_t)p->images);
    case TUTTI__ONEDNN_EACH:
        return (char *)r->data[i] + (size_t)part * p->bytes[i];
    case TUTTI__ONEDNN_WHOLE:
        break;
    }
    return r->data[i];
}

static dnnl_status_t execute(const run *r, tutti__onednn_primitive *p, int64_t part, void *scratch)
{
    int n = p->n_args;
    dnnl_status_t status = dnnl_success;

    for (int i = 0; i < n && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(p->exec[i].memory,
                                             part ? share_of(r, part, i) : r->data[i]);
    if (r->p->clears_scratch && p->scratch_bytes)
        memset(scratch, 0, p->scratch_bytes);
    if (p->scratch_bytes && status == dnnl_success)
        status = dnnl_memory_set_data_handle(p->exec[n++].memory, scratch);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(p->primitive, r->od->stream, n, p->exec);
    return status == dnnl_success ? dnnl_stream_wait(r->od->stream) : status;
}

static void run_part(void *arg, int64_t i, int member)
{
    run *r = arg;
    tutti__onednn_primitive *p = r->p->parts ? &r->p->parts[i] : r->p;
    const int kept = tutti__onednn_alone_begin();

    r->status[i] = execute(r, p, i, r->scratch + (size_t)member * r->scratch_bytes);
    tutti__onednn_alone_end(kept);
}

static tutti_status all_ready(tutti_ctx *cx, tutti__onednn_primitive *p)
{
    const int kept = tutti__onednn_alone_begin();
    tutti_status status = TUTTI_OK;

    if (!p->parts)
        status = primitive_ready(cx, p);
    for (int i = 0; p->parts && i < p->n_parts && status == TUTTI_OK; i++) {
        tutti__onednn_primitive *part = &p->parts[i];

        if (part->lent)
            part->primitive = part[-1].primitive;
        status = primitive_ready(cx, part);
    }
    tutti__onednn_alone_end(kept);
    return status;
}

tutti_status tutti__onednn_run(tutti_ctx *cx, tutti__onednn_primitive *p, void *const *data)
{
    run r = {.od = cx->kernel_state, .p = p, .data = data};
    const tutti__onednn_primitive *first = p->parts ? p->parts : p;
    size_t bytes = first->scratch_bytes;
    void *scratch = NULL;
    sigset_t kept;

    if (!(p->parts ? &p->parts[p->n_parts - 1] : p)->exec[0].memory)
        TUTTI_TRY(all_ready(cx, p));
    if (first != p && p->parts[p->n_parts - 1].scratch_bytes > bytes)
        bytes = p->parts[p->n_parts - 1].scratch_bytes;
    r.scratch_bytes = (bytes + 4095) / 4096 * 4096;
    TUTTI_TRY(tutti__onednn_scratch(cx, (size_t)(p->parts ? cx->threads : 1) * r.scratch_bytes,
                                    &scratch));
    r.scratch = scratch;
    if (first->holds_signals)
        tutti__hold_signals(&kept);
    tutti__parallel(cx, run_part, &r, p->n_parts);
    if (first->holds_signals)
        pthread_sigmask(SIG_SETMASK, &kept, NULL);
    for (int i = 0; i < p->n_parts; i++)
        TUTTI_TRY(tutti__onednn_check(r.status[i], "running a primitive"));
    return TUTTI_OK;
}
