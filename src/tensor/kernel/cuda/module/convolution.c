/* convolution.c -- convolutions by cuDNN's graph API: a graph of one operation, and the plan of an engine for it.
 * SPDX-License-Identifier: MIT
 *
 * Weight gradients are in the dtype of x and dy: cuDNN sums in F32, but has no engine that also stores F32 from 16-bit inputs. */
#include "tensor/kernel/cuda/module/handle.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    X = 1, /* ids of the tensors in a graph */
    W,
    Y,
    MEASURED = 8,    /* how many of the engines that cuDNN suggests are measured */
    REPETITIONS = 3, /* and how often */
    MAX_CONFIGS = 128
};

/* Engines that copy their operands need workspaces of a few times this; larger ones are used only if there is no other. */
#define MAX_WORKSPACE ((int64_t)1 << 30)

typedef struct convolution_plan {
    tutti__cuda_plan base;
    cudnnBackendDescriptor_t plan, config;
    int64_t workspace; /* bytes */
} convolution_plan;

typedef struct graph {
    cudnnBackendDescriptor_t x, w, y, convolution, operation, graph;
} graph;

/* The usable engines, in cuDNN's order. */
typedef struct candidates {
    convolution_plan of[MEASURED];
    int n, wanted;
    int refused;           /* of the library's suggestions */
    cudnnStatus_t refusal; /* the last */
    char text[160];        /* its reason */
} candidates;

typedef struct arguments {
    void *x, *w, *y;
} arguments;

/* ---- Statuses ---------------------------------------------------------------------------------------------- */

static void last_text(char *to, size_t size)
{
    char text[512] = "";

    cudnnGetLastErrorString(text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    snprintf(to, size, "%.*s", (int)size - 1, text);
}

static tutti_status checked(cudnnStatus_t status, const char *call)
{
    char text[160];
    tutti_status ours = TUTTI_ERR_DEVICE;

    if (status == CUDNN_STATUS_SUCCESS)
        return TUTTI_OK;
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        ours = TUTTI_ERR_UNSUPPORTED;
    else if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
             status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        ours = TUTTI_ERR_MEMORY;
    last_text(text, sizeof text);
    return tutti__cuda_fail(ours, "%s: %s%s%s", call, cudnnGetErrorString(status),
                            text[0] ? ": " : "", text);
}

#define TRY(expression)                                                                            \
    do {                                                                                           \
        tutti_status status_ = (expression);                                                       \
        if (status_ != TUTTI_OK)                                                                   \
            return status_;                                                                        \
    } while (0)

/* ---- Descriptors ------------------------------------------------------------------------------------------- */

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *values;
} attribute;

static void drop(cudnnBackendDescriptor_t *d)
{
    if (*d)
        (void)cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* A descriptor with these attributes, finalized. */
static cudnnStatus_t make(cudnnBackendDescriptor_t *d, cudnnBackendDescriptorType_t type,
                          const attribute *attributes, size_t n)
{
    cudnnStatus_t status = cudnnBackendCreateDescriptor(type, d);

    if (status != CUDNN_STATUS_SUCCESS) {
        *d = NULL;
        return status;
    }
    for (size_t i = 0; i < n && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnnBackendSetAttribute(*d, attributes[i].name, attributes[i].type,
                                          attributes[i].n, attributes[i].values);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(*d);
    if (status != CUDNN_STATUS_SUCCESS)
        drop(d);
    return status;
}

#define MAKE(d, type, ...)                                                                         \
    make(d, type, (const attribute[]){__VA_ARGS__},                                                \
         sizeof((const attribute[]){__VA_ARGS__}) / sizeof(attribute))

static cudnnDataType_t type_of(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == TUTTI_F16 ? CUDNN_DATA_HALF
                                : CUDNN_DATA_FLOAT;
}

/* d: the sizes of [N,C,H,W], stored as [N,H,W,C]. */
static tutti_status tensor_make(cudnnBackendDescriptor_t *tensor, int64_t name, tutti_dtype dtype,
                                const int64_t d[4], int64_t alignment)
{
    const cudnnDataType_t type = type_of(dtype);
    const int64_t strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};

    return checked(MAKE(tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name},
                        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
                        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
                        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d},
                        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides}),
                   "describing a tensor");
}

static tutti_status convolution_make(cudnnBackendDescriptor_t *convolution,
                                     const tutti__cuda_convolution *c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dimensions = 2;

    return checked(MAKE(convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
                        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
                        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions},
                        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation},
                        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride},
                        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding},
                        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding}),
                   "describing a convolution");
}

static tutti_status operation_make(graph *g, tutti__cuda_direction direction)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
    } names[] = {
        [TUTTI__CUDA_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        [TUTTI__CUDA_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        [TUTTI__CUDA_BACKWARD_WEIGHTS] =
            {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
    };
    const float one = 1, zero = 0;

    return checked(
        MAKE(&g->operation, names[direction].type,
             {names[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one},
             {names[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero},
             {names[direction].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->convolution},
             {names[direction].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->x},
             {names[direction].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->w},
             {names[direction].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->y}),
        "describing an operation");
}

static void graph_drop(graph *g)
{
    drop(&g->graph);
    drop(&g->operation);
    drop(&g->convolution);
    drop(&g->x);
    drop(&g->w);
    drop(&g->y);
}

static tutti_status graph_make(graph *g, const tutti__cuda_handle *h,
                               const tutti__cuda_convolution *c, int64_t alignment)
{
    TRY(tensor_make(&g->x, X, c->dtype, c->x, alignment));
    TRY(tensor_make(&g->w, W, c->dtype, c->w, alignment));
    TRY(tensor_make(&g->y, Y, c->dtype, c->y, alignment));
    TRY(convolution_make(&g->convolution, c));
    TRY(operation_make(g, c->direction));
    return checked(
        MAKE(&g->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
             {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h->cudnn},
             {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->operation}),
        "describing a graph");
}

/* ---- Engines ----------------------------------------------------------------------------------------------- */

/* Whether the numerics of this configuration's engine are allowed by the handle. */
static cudnnStatus_t allowed(const tutti__cuda_handle *h, cudnnBackendDescriptor_t config,
                             tutti_dtype dtype, bool *allowed_p)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t n = 0;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);

    *allowed_p = false;
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                          CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes);
    (void)cudnnBackendDestroyDescriptor(engine);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    for (int64_t i = 0; i < n; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            return status;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && h->o.deterministic)
            return status;
        /* Tensor cores have no F32, only TF32. */
        if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && dtype == TUTTI_F32 && !h->o.tf32)
            return status;
    }
    *allowed_p = true;
    return status;
}

/* Makes the plan of a configuration, of which it takes ownership, a candidate if cuDNN supports it. */
static void consider(const tutti__cuda_handle *h, candidates *all, cudnnBackendDescriptor_t config,
                     tutti_dtype dtype, int64_t limit)
{
    convolution_plan *p = &all->of[all->n];
    bool fine = false;
    int64_t n = 0;
    cudnnStatus_t status = allowed(h, config, dtype, &fine);

    *p = (convolution_plan){.config = config};
    if (status == CUDNN_STATUS_SUCCESS && fine)
        status = MAKE(&p->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                      {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h->cudnn},
                      {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &p->config});
    if (p->plan)
        status = cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &p->workspace);
    if (p->plan && status == CUDNN_STATUS_SUCCESS && p->workspace <= limit) {
        all->n++;
        return;
    }
    all->refused++;
    if (status != CUDNN_STATUS_SUCCESS) {
        all->refusal = status;
        last_text(all->text, sizeof all->text);
    }
    drop(&p->plan);
    drop(&p->config);
}

/* Adds the suggestions of this heuristic of cuDNN. */
static tutti_status suggest(const tutti__cuda_handle *h, candidates *all, const graph *g,
                            cudnnBackendHeurMode_t mode, tutti_dtype dtype, int64_t limit)
{
    cudnnBackendDescriptor_t heuristic, configs[MAX_CONFIGS] = {NULL};
    int64_t room = 0, n = 0;
    cudnnStatus_t status =
        MAKE(&heuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
             {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph},
             {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode});

    if (status == CUDNN_STATUS_SUCCESS) /* at most `wanted`; there may be fewer */
        status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &room, NULL);
    room = room < MAX_CONFIGS ? room : MAX_CONFIGS;
    for (int64_t i = 0; i < room && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (status == CUDNN_STATUS_SUCCESS && room > 0)
        status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &n, configs);
    for (int64_t i = 0; i < n && status == CUDNN_STATUS_SUCCESS && all->n < all->wanted; i++) {
        consider(h, all, configs[i], dtype, limit);
        configs[i] = NULL;
    }
    for (int64_t i = 0; i < room; i++)
        drop(&configs[i]);
    drop(&heuristic);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
        all->refusal = status;
        last_text(all->text, sizeof all->text);
        return TUTTI_OK; /* nothing to suggest */
    }
    return checked(status, "asking for engines");
}

static tutti_status execute(const tutti__cuda_handle *h, const convolution_plan *p,
                            const arguments *a)
{
    const int64_t names[] = {X, W, Y};
    void *const data[] = {a->x, a->w, a->y};
    cudnnBackendDescriptor_t pack;
    void *workspace;
    cudnnStatus_t status;

    TRY(tutti__cuda_workspace(h, (size_t)p->workspace, &workspace));
    status = MAKE(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                  {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, names},
                  {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data},
                  {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace});
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(h->cudnn, p->plan, pack);
    drop(&pack);
    return checked(status, "cudnnBackendExecute");
}

/* ---- Choosing ---------------------------------------------------------------------------------------------- */

static tutti_status repeat(const tutti__cuda_handle *h, const convolution_plan *p,
                           const arguments *a, cudaEvent_t begin, cudaEvent_t end)
{
    TRY(execute(h, p, a)); /* the first call does more work */
    TRY(TUTTI__CALL(cudaEventRecord(begin, h->stream)));
    for (int i = 0; i < REPETITIONS; i++)
        TRY(execute(h, p, a));
    TRY(TUTTI__CALL(cudaEventRecord(end, h->stream)));
    return TUTTI__CALL(cudaEventSynchronize(end));
}

/* *best_p: the candidate that is fastest on the device, writing to the destination itself. */
static tutti_status measure(const tutti__cuda_handle *h, const candidates *all, const arguments *a,
                            int *best_p)
{
    cudaEvent_t begin = NULL, end = NULL;
    float best = 0, ms = 0;
    tutti_status status = TUTTI__CALL(cudaEventCreate(&begin));

    if (status == TUTTI_OK)
        status = TUTTI__CALL(cudaEventCreate(&end));
    for (int i = 0; i < all->n && status == TUTTI_OK; i++) {
        /* One that cannot run is not chosen; a broken device is reported by the next call. */
        if (repeat(h, &all->of[i], a, begin, end) != TUTTI_OK ||
            TUTTI__CALL(cudaEventElapsedTime(&ms, begin, end)) != TUTTI_OK)
            continue;
        if (best == 0 || ms < best) {
            best = ms;
            *best_p = i;
        }
    }
    if (begin)
        (void)cudaEventDestroy(begin);
    if (end)
        (void)cudaEventDestroy(end);
    return status;
}

static tutti_status none_will_do(const candidates *all)
{
    const size_t version = cudnnGetVersion();

    return tutti__cuda_fail(
        TUTTI_ERR_UNSUPPORTED, "cuDNN %zu.%zu.%zu has no engine for it (%d considered)%s%s%s%s",
        version / 10000, version % 10000 / 100, version % 100, all->refused,
        all->refusal ? ": " : "", all->refusal ? cudnnGetErrorString(all->refusal) : "",
        all->text[0] ? ": " : "", all->text);
}

static tutti_status choose(const tutti__cuda_handle *h, candidates *all, const graph *g,
                           tutti_dtype dtype, const arguments *a, int *best_p)
{
    *best_p = 0;
    all->wanted = h->o.deterministic ? 1 : MEASURED;
    TRY(suggest(h, all, g, CUDNN_HEUR_MODE_A, dtype, MAX_WORKSPACE));
    if (all->n == 0)
        TRY(suggest(h, all, g, CUDNN_HEUR_MODE_FALLBACK, dtype, INT64_MAX));
    if (all->n == 0)
        return none_will_do(all);
    return all->n == 1 ? TUTTI_OK : measure(h, all, a, best_p);
}

static void convolution_plan_free(tutti__cuda_plan *plan)
{
    convolution_plan *p = (convolution_plan *)plan;

    drop(&p->plan);
    drop(&p->config);
    free(p);
}

static tutti_status plan_make(const tutti__cuda_handle *h, const tutti__cuda_convolution *c,
                              const arguments *a, convolution_plan *p)
{
    graph g = {.x = NULL};
    candidates all = {.n = 0};
    int best = 0;
    tutti_status status = graph_make(&g, h, c, tutti__cuda_alignment(a->x, a->w, a->y));

    if (status == TUTTI_OK)
        status = choose(h, &all, &g, c->dtype, a, &best);
    graph_drop(&g);
    for (int i = 0; i < all.n; i++) {
        if (status == TUTTI_OK && i == best) {
            p->plan = all.of[i].plan;
            p->config = all.of[i].config;
            p->workspace = all.of[i].workspace;
        } else {
            drop(&all.of[i].plan);
            drop(&all.of[i].config);
        }
    }
    return status;
}

static void key_of(int64_t *key, const tutti__cuda_convolution *c, const arguments *a)
{
    const int64_t values[TUTTI__CUDA_KEY] = {1 + (int64_t)c->direction,
                                             c->dtype,
                                             c->stride[0],
                                             c->stride[1],
                                             c->padding[0],
                                             c->padding[1],
                                             c->dilation[0],
                                             c->dilation[1],
                                             c->x[0],
                                             c->x[1],
                                             c->x[2],
                                             c->x[3],
                                             c->w[0],
                                             c->w[1],
                                             c->w[2],
                                             c->w[3],
                                             c->y[2],
                                             c->y[3],
                                             tutti__cuda_alignment(a->x, a->w, a->y)};

    memcpy(key, values, sizeof values);
}

static tutti_status library_open(tutti__cuda_handle *h)
{
    tutti_status status;

    if (h->cudnn)
        return TUTTI_OK;
    status = checked(cudnnCreate(&h->cudnn), "cudnnCreate");
    if (status == TUTTI_OK)
        status = checked(cudnnSetStream(h->cudnn, h->stream), "cudnnSetStream");
    if (status != TUTTI_OK)
        tutti__cuda_convolution_close(h);
    return status;
}

void tutti__cuda_convolution_close(tutti__cuda_handle *h)
{
    if (h->cudnn)
        (void)cudnnDestroy(h->cudnn);
    h->cudnn = NULL;
}

tutti_status tutti__cuda_convolve(void *handle, const tutti__cuda_convolution *c, void *x, void *w,
                                  void *y)
{
    tutti__cuda_handle *h = handle;
    const arguments a = {x, w, y};
    int64_t key[TUTTI__CUDA_KEY];
    convolution_plan *p;
    tutti_status status;

    TRY(tutti__cuda_use(h->o.device));
    TRY(library_open(h));
    key_of(key, c, &a);
    p = (convolution_plan *)tutti__cuda_plan_find(h, key);
    if (!p) {
        p = tutti__cuda_host_memory(sizeof *p);
        if (!p)
            return TUTTI_ERR_MEMORY;
        status = plan_make(h, c, &a, p);
        if (status != TUTTI_OK) {
            free(p);
            return status;
        }
        p->base.free = convolution_plan_free;
        memcpy(p->base.key, key, sizeof key);
        tutti__cuda_plan_add(h, &p->base);
    }
    return execute(h, p, &a);
}
