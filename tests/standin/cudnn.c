/* cudnn.c -- a stand-in of cuDNN's graph API, for convolutions.   SPDX-License-Identifier: MIT
 *
 * It takes descriptors like cuDNN, rejects what cuDNN rejects or leaves undefined, and computes by the tensors' strides,
 * asynchronously in the order of the stream. Its engines have the notes of cuDNN's, and compute accordingly: one that rounds
 * its factors, or adds in another order each time, gives other results.
 *
 *     STANDIN_RECORD=FILE     a line for each graph, plan and execution
 *     STANDIN_CUDNN=WISHES    none: no engine is suggested; refuse: no plan can be made; workspace=BYTES: of each */
#include "cudnn_problem.h"

#include <cudnn.h>

#define WISHES "STANDIN_CUDNN"

enum {
    MAX_VALUES = 8,
    MAX_ATTRIBUTES = 12,
    ROOM = 16 /* returned for queries of counts: more than exist */
};

typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final;
    int n;
    struct {
        cudnnBackendAttributeName_t name;
        int64_t n;
        int64_t values[MAX_VALUES]; /* bytes, at the beginning */
    } of[MAX_ATTRIBUTES];
    problem problem; /* of an operation, and of descriptors made from it */
    const struct engine *engine;
} descriptor;

struct cudnnContext {
    cudaStream_t stream;
};

static _Thread_local char reason[256];
static _Atomic int64_t n_descriptors, n_handles;

static cudnnStatus_t no(cudnnStatus_t status, const char *why)
{
    snprintf(reason, sizeof reason, "%s", why);
    return status;
}

#define BAD(why) no(CUDNN_STATUS_BAD_PARAM, why)

/* ---- Valid attributes of each descriptor ------------------------------------------------------------------------- */

typedef struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int low, high; /* elements */
} rule;

#define OPERATION(o, kind, X, W, Y)                                                                \
    {o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},                  \
        {o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_BETA, CUDNN_TYPE_FLOAT, 1, 1},               \
        {o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, \
         1},                                                                                       \
        {o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},   \
        {o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},   \
    {                                                                                              \
        o, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1      \
    }

#define TENSOR      CUDNN_BACKEND_TENSOR_DESCRIPTOR
#define CONVOLUTION CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
#define FORWARD     CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define DATA        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define FILTER      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
#define GRAPH       CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
#define HEURISTIC   CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
#define CONFIG      CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
#define ENGINE      CUDNN_BACKEND_ENGINE_DESCRIPTOR
#define PLAN        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define PACK        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR

static const rule rules[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 2},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 2},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 2},
    {CONVOLUTION, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 2},
    OPERATION(FORWARD, FORWARD, X, W, Y),
    OPERATION(DATA, BWD_DATA, DX, W, DY),
    OPERATION(FILTER, BWD_FILTER, X, DW, DY),
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, MAX_VALUES},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, MAX_VALUES},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1},
};

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

static const rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].of == of && rules[i].name == name)
            return &rules[i];
    return NULL;
}

/* NULL: not set. */
static const void *value(const descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->of[i].name == name)
            return d->of[i].values;
    return NULL;
}

static int64_t count(const descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->of[i].name == name)
            return d->of[i].n;
    return 0;
}

static int number(const descriptor *d, cudnnBackendAttributeName_t name)
{
    int i;

    memcpy(&i, value(d, name), sizeof i);
    return i;
}

/* The value as a finalized descriptor; NULL if it is none. */
static const descriptor *referred(const descriptor *d, cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptorType_t type)
{
    const descriptor *to;

    memcpy(&to, value(d, name), sizeof to);
    return to && to->final && to->type == type ? to : NULL;
}

static bool complete(const descriptor *d)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].of == d->type && !value(d, rules[i].name))
            return false;
    return true;
}

/* ---- Engines ----------------------------------------------------------------------------------------------- */

static const struct engine {
    int id;
    bool fallback;
    uint32_t notes; /* bits */
    int64_t workspace;
    bool wide; /* channels in eights */
} engines[] = {
    {62, false, 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 512, true},
    {20, false,
     1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
         1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
     0, false},
    {33, false, 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 0, false},
    {25, false, 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 1000, false},
    {70, false, 0, 4096, false},
    {1, true, 0, 0, false},
};

static bool suggested(const struct engine *e, const descriptor *heuristic)
{
    const bool fallback =
        number(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) == (int)CUDNN_HEUR_MODE_FALLBACK;

    return e->fallback == fallback && !wish(WISHES, "none") && heuristic->problem.one_type;
}

static int64_t workspace_of(const struct engine *e)
{
    const int64_t wished = wish(WISHES, "workspace");

    return wished ? wished : e->workspace;
}

/* ---- Finalizing -------------------------------------------------------------------------------------------- */

static element element_of(int type)
{
    return type == CUDNN_DATA_FLOAT      ? ELEMENT_F32
           : type == CUDNN_DATA_BFLOAT16 ? ELEMENT_BF16
           : type == CUDNN_DATA_HALF     ? ELEMENT_F16
                                         : ELEMENT_NONE;
}

static tensor tensor_of(const descriptor *d)
{
    tensor t;

    memcpy(&t.name, value(d, CUDNN_ATTR_TENSOR_UNIQUE_ID), sizeof t.name);
    memcpy(&t.alignment, value(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT), sizeof t.alignment);
    memcpy(t.d, value(d, CUDNN_ATTR_TENSOR_DIMENSIONS), sizeof t.d);
    memcpy(t.strides, value(d, CUDNN_ATTR_TENSOR_STRIDES), sizeof t.strides);
    t.type = element_of(number(d, CUDNN_ATTR_TENSOR_DATA_TYPE));
    return t;
}

static cudnnStatus_t finalize_tensor(const descriptor *d)
{
    const tensor t = tensor_of(d);
    int64_t n = 1, last = 0;

    if (t.type == ELEMENT_NONE)
        return BAD("data type: none that convolutions know");
    if (t.alignment < element_bytes(t.type) || (t.alignment & (t.alignment - 1)) != 0)
        return BAD("alignment: not a power of two that holds an element");
    for (int i = 0; i < 4; i++) {
        if (t.d[i] < 1 || t.strides[i] < 1)
            return BAD("a dimension or stride is less than 1");
        n *= t.d[i];
        last += (t.d[i] - 1) * t.strides[i];
    }
    return last + 1 == n ? CUDNN_STATUS_SUCCESS : BAD("strides: with gaps, or overlapping");
}

static cudnnStatus_t finalize_convolution(const descriptor *d)
{
    const int64_t *strides = value(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilations = value(d, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    const int64_t *before = value(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *after = value(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);

    if (*(const int64_t *)value(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2)
        return BAD("not two dimensions");
    if (number(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        return BAD("sums other than in float");
    if (number(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
        return BAD("not a cross-correlation");
    for (int i = 0; i < 2; i++)
        if (strides[i] < 1 || dilations[i] < 1 || before[i] < 0 || after[i] < 0)
            return BAD("stride, dilation or padding");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_operation(descriptor *d)
{
    const rule *first =
        d->type == FORWARD ? rule_of(FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA)
        : d->type == DATA  ? rule_of(DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA)
                           : rule_of(FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
    const descriptor *convolution = referred(d, first[2].name, CONVOLUTION);
    const descriptor *x = referred(d, first[3].name, TENSOR);
    const descriptor *w = referred(d, first[4].name, TENSOR);
    const descriptor *y = referred(d, first[5].name, TENSOR);
    problem *p = &d->problem;

    if (!convolution || !x || !w || !y)
        return BAD("a descriptor is of another kind, or not finalized");
    p->direction = d->type == FORWARD ? 0 : d->type == DATA ? 1 : 2;
    memcpy(&p->alpha, value(d, first[0].name), sizeof p->alpha);
    memcpy(&p->beta, value(d, first[1].name), sizeof p->beta);
    p->x = tensor_of(x);
    p->w = tensor_of(w);
    p->y = tensor_of(y);
    memcpy(p->stride, value(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), sizeof p->stride);
    memcpy(p->before, value(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), sizeof p->before);
    memcpy(p->after, value(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), sizeof p->after);
    memcpy(p->dilation, value(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS), sizeof p->dilation);
    p->one_type = p->x.type == p->y.type && p->w.type == p->y.type;
    if (p->x.name == p->w.name || p->x.name == p->y.name || p->w.name == p->y.name)
        return BAD("two tensors of one name");
    return problem_fits(p) ? CUDNN_STATUS_SUCCESS
                           : no(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "shapes do not fit");
}

static bool is_handle(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct cudnnContext *handle;

    memcpy(&handle, value(d, name), sizeof handle);
    return handle != NULL;
}

/* Copies the problem from the descriptor that this one is made from. */
static cudnnStatus_t inherit(descriptor *d, const descriptor *from)
{
    if (!from)
        return no(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
    d->problem = from->problem;
    d->engine = from->engine;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_graph(descriptor *d)
{
    const descriptor *operation;
    cudnnStatus_t status;

    memcpy(&operation, value(d, CUDNN_ATTR_OPERATIONGRAPH_OPS), sizeof operation);
    if (!is_handle(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) || !operation || !operation->final)
        return no(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation is not finalized");
    status = inherit(d, operation);
    if (status == CUDNN_STATUS_SUCCESS)
        problem_record("graph", &d->problem, "");
    return status;
}

static cudnnStatus_t finalize_plan(descriptor *d)
{
    const descriptor *config = referred(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CONFIG);
    cudnnStatus_t status = inherit(d, config);
    bool fine;

    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    fine = !wish(WISHES, "refuse") &&
           (!d->engine->wide || (d->problem.x.d[1] % 8 == 0 && d->problem.w.d[0] % 8 == 0));
    record("cudnn plan engine=%d %s", d->engine->id, fine ? "made" : "refused");
    return fine ? CUDNN_STATUS_SUCCESS
                : no(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "this engine wants channels in eights");
}

static cudnnStatus_t finalize_pack(const descriptor *d)
{
    const int64_t *names = value(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const int64_t n = count(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);

    if (n != count(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
        return no(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "names and pointers: not as many");
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            if (names[i] == names[j])
                return no(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a name twice");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle)
{
    descriptor *d = handle;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    if (!d)
        return no(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (d->final)
        return BAD("finalized already");
    if (!complete(d))
        return BAD("an attribute is not set");
    switch (d->type) {
    case TENSOR:
        status = finalize_tensor(d);
        break;
    case CONVOLUTION:
        status = finalize_convolution(d);
        break;
    case FORWARD:
    case DATA:
    case FILTER:
        status = finalize_operation(d);
        break;
    case GRAPH:
        status = finalize_graph(d);
        break;
    case HEURISTIC:
        status = inherit(d, referred(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, GRAPH));
        break;
    case PLAN:
        status = finalize_plan(d);
        break;
    case PACK:
        status = finalize_pack(d);
        break;
    default:
        status = BAD("a kind that only queries fill");
    }
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- Attributes -------------------------------------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *d)
{
    bool known = type == CONFIG || type == ENGINE;

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        known = known || rules[i].of == type;
    if (!d || !known)
        return BAD("a kind of descriptor that this stand-in lacks");
    *d = calloc(1, sizeof(descriptor));
    if (!*d)
        return no(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    ((descriptor *)*d)->type = type;
    n_descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    if (!d)
        return no(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    n_descriptors--;
    memset(d, 0xee, sizeof(descriptor));
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    descriptor *d = handle;
    const rule *r = d ? rule_of(d->type, name) : NULL;

    if (!d || !values)
        return no(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no values");
    if (d->final)
        return BAD("finalized already");
    if (!r)
        return BAD("this kind of descriptor has no such attribute");
    if (r->type != type)
        return no(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute is of another type");
    if (n < r->low || n > r->high)
        return BAD("too few elements, or too many");
    if (value(d, name))
        return BAD("set already");
    d->of[d->n].name = name;
    d->of[d->n].n = n;
    memcpy(d->of[d->n++].values, values, (size_t)n * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_results(const descriptor *heuristic, int64_t room, int64_t *n_p,
                                 cudnnBackendDescriptor_t *configs)
{
    int64_t n = 0;

    if (room == 0) {
        *n_p = ROOM;
        return CUDNN_STATUS_SUCCESS;
    }
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && n < room; i++) {
        descriptor *config;

        if (!suggested(&engines[i], heuristic))
            continue;
        config = configs[n++];
        if (!config || config->type != CONFIG || config->final)
            return BAD("results go into configurations that are not yet finalized");
        config->problem = heuristic->problem;
        config->engine = &engines[i];
        config->final = true;
    }
    *n_p = n;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_notes(const struct engine *e, int64_t room, int64_t *n_p,
                               cudnnBackendNumericalNote_t *notes)
{
    *n_p = 0;
    for (int i = 0; i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && *n_p < room; i++)
        if (e->notes & 1u << i)
            notes[(*n_p)++] = (cudnnBackendNumericalNote_t)i;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n_p,
                                       void *values)
{
    const descriptor *d = handle;

    if (!d || !n_p)
        return no(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no count");
    if (!d->final)
        return no(CUDNN_STATUS_NOT_INITIALIZED, "not finalized");
    if (d->type == HEURISTIC && name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_results(d, room, n_p, values);
    if (d->type == CONFIG && name == CUDNN_ATTR_ENGINECFG_ENGINE &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR && room == 1) {
        descriptor *engine = *(descriptor **)values;

        if (!engine || engine->type != ENGINE || engine->final)
            return BAD("the engine goes into a descriptor that is not yet finalized");
        engine->final = true;
        *n_p = 1;
        return inherit(engine, d);
    }
    if (d->type == ENGINE && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return get_notes(d->engine, room, n_p, values);
    if (d->type == PLAN && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
        type == CUDNN_TYPE_INT64 && room == 1) {
        *(int64_t *)values = workspace_of(d->engine);
        *n_p = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    return BAD("no such attribute to ask for");
}

/* ---- Executing --------------------------------------------------------------------------------------------- */

static void run(void *arg)
{
    execution *e = arg;

    if (e->workspace_bytes)
        memset(e->workspace, 0xa5, (size_t)e->workspace_bytes);
    problem_compute(e);
    free(e);
}

/* The variant pack's pointer for the tensor's id, if it is aligned as the tensor requires. */
static bool pointer(const descriptor *pack, const tensor *t, void **p)
{
    const int64_t *names = value(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = value(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    *p = NULL;
    for (int64_t i = 0; i < count(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); i++)
        if (names[i] == t->name)
            *p = pointers[i];
    return *p && (uintptr_t)*p % (uintptr_t)t->alignment == 0;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle)
{
    static _Atomic uint32_t executions;
    const descriptor *plan = plan_handle, *pack = pack_handle;
    const struct engine *engine;
    char text[96];
    execution *e;

    if (!handle || !plan || !pack)
        return no(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    if (plan->type != PLAN || !plan->final || pack->type != PACK || !pack->final)
        return no(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or pack is not finalized");
    e = calloc(1, sizeof *e);
    if (!e)
        return no(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    engine = plan->engine;
    e->problem = plan->problem;
    e->workspace_bytes = workspace_of(engine);
    memcpy(&e->workspace, value(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), sizeof e->workspace);
    if (!pointer(pack, &e->problem.x, &e->x) || !pointer(pack, &e->problem.w, &e->w) ||
        !pointer(pack, &e->problem.y, &e->y) ||
        (e->workspace_bytes && (!e->workspace || (uintptr_t)e->workspace % 256 != 0))) {
        free(e);
        return no(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a pointer is missing or misaligned");
    }
    if (engine->notes & 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
        e->rounding = ROUND_TF32;
    if (engine->notes & 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        e->rounding = ROUND_F16;
    e->reduced = engine->notes & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    e->varies = engine->notes & 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    e->turn = executions++;
    snprintf(text, sizeof text, " engine=%d workspace=%lld", engine->id,
             (long long)e->workspace_bytes);
    problem_record("execute", &e->problem, text);
    if (tutti_standin_enqueue(handle->stream, run, e) != 0) {
        free(e);
        return no(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream takes no more");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- The library ------------------------------------------------------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s", reason);
    reason[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    if (!*handle)
        return no(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    n_handles++;
    record("cudnn create");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    if (--n_handles == 0)
        record("cudnn destroy, descriptors left: %lld", (long long)n_descriptors);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
