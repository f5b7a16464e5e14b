/* cublasLt.c -- a stand-in of cuBLASLt, for matrix products.   SPDX-License-Identifier: MIT
 *
 * It rejects what cuBLASLt rejects: wrong sizes of attributes, matrices that do not match, pairs of dtypes that it does not
 * have, an algorithm chosen for another product, pointers less aligned than declared when it was chosen. If an epilogue's
 * vector is not aligned to 16 bytes, which its kernels may rely on, it fails. It computes asynchronously, in the order of the
 * stream.
 *
 *     STANDIN_RECORD=FILE      a line for each heuristic request, and for each product
 *     STANDIN_CUBLASLT=WISHES  none: there is no algorithm; no_epilogue: only for products without one, and
 *                                    wrong_epilogue: reports others as errors, or
 *                                    late_epilogue: only when they are computed;
 *                                    workspace=BYTES: of each */
#include "elements.h"

#include <cublasLt.h>

#define WISHES "STANDIN_CUBLASLT"

typedef struct operation {
    int32_t compute, scale, transposed[2];
    uint32_t epilogue;
    void *vector;
} operation;

typedef struct layout {
    element type;
    int64_t rows, columns, step;
    int32_t batch;
    int64_t stride;
} layout;

typedef struct preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
} preference;

/* The product for which an algorithm was chosen; stored in cublasLtMatmulAlgo_t. */
typedef struct choice {
    uint64_t problem; /* a digest */
    uint16_t alignment[4];
    uint64_t workspace;
} choice;
_Static_assert(sizeof(choice) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm holds its choice");
_Static_assert(sizeof(operation) <= sizeof(cublasLtMatmulDescOpaque_t) &&
                   sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
                   sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
               "ours are no larger than the library's");

struct cublasLtContext {
    int unused;
};

static _Atomic int64_t n_descriptors;

/* ---- Descriptors ------------------------------------------------------------------------------------------- */

static void *descriptor_new(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (p)
        n_descriptors++;
    return p;
}

static cublasStatus_t descriptor_free(void *p, size_t bytes)
{
    if (p) {
        n_descriptors--;
        memset(p, 0xee, bytes);
        free(p);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    operation *o = descriptor_new(sizeof(cublasLtMatmulDescOpaque_t));

    *d = (cublasLtMatmulDesc_t)o;
    if (!o)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *o = (operation){.compute = (int32_t)compute,
                     .scale = (int32_t)scale,
                     .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return descriptor_free(d, sizeof *d);
}

static cublasStatus_t set(void *to, size_t size, const void *from, size_t bytes)
{
    if (!from || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t name, const void *from,
                                              size_t bytes)
{
    operation *o = (operation *)d;

    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&o->transposed[0], sizeof o->transposed[0], from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&o->transposed[1], sizeof o->transposed[1], from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&o->epilogue, sizeof o->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&o->vector, sizeof o->vector, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

static element element_of(cudaDataType_t type)
{
    return type == CUDA_R_32F    ? ELEMENT_F32
           : type == CUDA_R_16BF ? ELEMENT_BF16
           : type == CUDA_R_16F  ? ELEMENT_F16
                                 : ELEMENT_NONE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *d, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t step)
{
    layout *l = descriptor_new(sizeof(cublasLtMatrixLayoutOpaque_t));

    *d = (cublasLtMatrixLayout_t)l;
    if (!l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (layout){element_of(type), (int64_t)rows, (int64_t)columns, step, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t d,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *from, size_t bytes)
{
    layout *l = (layout *)d;

    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&l->batch, sizeof l->batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&l->stride, sizeof l->stride, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t d)
{
    return descriptor_free(d, sizeof *d);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *d)
{
    preference *p = descriptor_new(sizeof(cublasLtMatmulPreferenceOpaque_t));

    *d = (cublasLtMatmulPreference_t)p;
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                      .alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t d)
{
    return descriptor_free(d, sizeof *d);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t d,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *from, size_t bytes)
{
    preference *p = (preference *)d;

    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, sizeof p->workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reductions, sizeof p->reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                   sizeof p->alignment[0], from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- Choosing ---------------------------------------------------------------------------------------------- */

typedef struct product {
    operation o;
    layout a, b, d;
} product;

/* Column-major, C as D. */
static bool fits(const product *p)
{
    const layout *l[] = {&p->a, &p->b, &p->d};
    const bool ta = p->o.transposed[0] == CUBLAS_OP_T, tb = p->o.transposed[1] == CUBLAS_OP_T;
    const int64_t k = ta ? p->a.rows : p->a.columns;

    for (int i = 0; i < 3; i++)
        if (l[i]->rows < 1 || l[i]->columns < 1 || l[i]->step < l[i]->rows || l[i]->batch < 1 ||
            l[i]->batch != p->d.batch)
            return false;
    if (p->d.batch > 1 && p->d.stride < p->d.step * p->d.columns)
        return false;
    return (ta ? p->a.columns : p->a.rows) == p->d.rows &&
           (tb ? p->b.rows : p->b.columns) == p->d.columns && (tb ? p->b.columns : p->b.rows) == k;
}

static bool supported(const product *p)
{
    const bool half = p->a.type != ELEMENT_F32;

    if (p->a.type == ELEMENT_NONE || p->a.type != p->b.type || p->o.scale != CUDA_R_32F)
        return false;
    if (p->d.type != p->a.type && p->d.type != ELEMENT_F32)
        return false;
    if (p->o.compute != CUBLAS_COMPUTE_32F &&
        (half || p->o.compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        return false;
    if (p->o.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return true;
    return p->d.batch == 1 &&
           (p->o.epilogue == CUBLASLT_EPILOGUE_BIAS || p->o.epilogue == CUBLASLT_EPILOGUE_BGRADB) &&
           p->o.vector && !wish(WISHES, "no_epilogue");
}

static uint64_t digest(const product *p)
{
    const int64_t all[] = {p->o.compute, p->o.transposed[0], p->o.transposed[1], p->o.epilogue,
                           p->a.type,    p->a.rows,          p->a.columns,       p->a.step,
                           p->b.type,    p->b.rows,          p->b.columns,       p->b.step,
                           p->d.type,    p->d.rows,          p->d.columns,       p->d.step,
                           p->d.batch,   p->a.stride,        p->b.stride,        p->d.stride};
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        hash = (hash ^ (uint64_t)all[i]) * 0x100000001b3u;
    return hash;
}

static product product_of(cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d)
{
    return (product){*(const operation *)o, *(const layout *)a, *(const layout *)b,
                     *(const layout *)d};
}

static const char *epilogue_name(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS     ? "bias"
           : epilogue == CUBLASLT_EPILOGUE_BGRADB ? "bgradb"
                                                  : "none";
}

static void record_product(const char *what, const product *p, const char *more)
{
    char batch[32] = "";

    if (p->d.batch > 1)
        snprintf(batch, sizeof batch, " batch=%d", (int)p->d.batch);
    record("cublaslt %s a=%s[%lld,%lld]%lld%s b=%s[%lld,%lld]%lld%s d=%s[%lld,%lld]%lld compute=%s "
           "epilogue=%s%s%s",
           what, element_name(p->a.type), (long long)p->a.rows, (long long)p->a.columns,
           (long long)p->a.step, p->o.transposed[0] ? "T" : "", element_name(p->b.type),
           (long long)p->b.rows, (long long)p->b.columns, (long long)p->b.step,
           p->o.transposed[1] ? "T" : "", element_name(p->d.type), (long long)p->d.rows,
           (long long)p->d.columns, (long long)p->d.step,
           p->o.compute == CUBLAS_COMPUTE_32F ? "f32" : "tf32", epilogue_name(p->o.epilogue), batch,
           more);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int room,
                                              cublasLtMatmulHeuristicResult_t *results, int *n_p)
{
    const preference *wanted = (const preference *)pref;
    const product p = product_of(o, a, b, d);
    const int64_t wished = wish(WISHES, "workspace");
    const uint64_t workspace = wished ? (uint64_t)wished : 1024;
    choice made = {.problem = digest(&p), .workspace = workspace};
    char more[96];

    *n_p = 0;
    if (!handle || room < 1 || !fits(&p) || memcmp(c, d, sizeof(layout)) != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    snprintf(more, sizeof more, " reductions=%u alignment=%u,%u,%u,%u", wanted->reductions,
             wanted->alignment[0], wanted->alignment[1], wanted->alignment[2],
             wanted->alignment[3]);
    record_product("choose", &p, more);
    if (p.o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && wish(WISHES, "wrong_epilogue"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(&p) || wish(WISHES, "none") || workspace > wanted->workspace)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++)
        made.alignment[i] = (uint16_t)wanted->alignment[i];
    /* The first of the list may not be usable. */
    results[(*n_p)++] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_NOT_SUPPORTED};
    if (room > 1) {
        cublasLtMatmulHeuristicResult_t *r = &results[(*n_p)++];

        *r = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS,
                                               .workspaceSize = workspace};
        memcpy(&r->algo, &made, sizeof made);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Computing --------------------------------------------------------------------------------------------- */

typedef struct job {
    product p;
    float alpha, beta;
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
} job;

/* op(m) as floats, row after row: [rows][columns] */
static float *read_matrix(const job *j, const layout *l, const void *from, int64_t number,
                          bool by_columns)
{
    const int64_t n = l->rows * l->columns;
    const bool tf32 = j->p.o.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    float *copy = malloc((size_t)n * sizeof *copy);

    if (!copy)
        abort();
    for (int64_t column = 0; column < l->columns; column++) {
        for (int64_t row = 0; row < l->rows; row++) {
            const float x =
                element_load(from, l->type, number * l->stride + column * l->step + row);

            copy[by_columns ? column * l->rows + row : row * l->columns + column] =
                tf32 ? element_tf32(x) : x;
        }
    }
    return copy;
}

static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum[8] = {0}, rest = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        rest += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

/* One product of the batch. */
static void multiply(const job *j, int64_t number)
{
    const product *p = &j->p;
    const bool ta = p->o.transposed[0] == CUBLAS_OP_T, tb = p->o.transposed[1] == CUBLAS_OP_T;
    const int64_t k = ta ? p->a.rows : p->a.columns;
    /* Rows of op(A) and columns of op(B), each k floats in a row. */
    float *a = read_matrix(j, &p->a, j->a, number, ta);
    float *b = read_matrix(j, &p->b, j->b, number, !tb);

    for (int64_t column = 0; column < p->d.columns; column++) {
        for (int64_t row = 0; row < p->d.rows; row++) {
            const int64_t at = number * p->d.stride + column * p->d.step + row;
            float x = j->alpha * dot(a + row * k, b + column * k, k);

            if (j->beta != 0)
                x += j->beta * element_load(j->c, p->d.type, at);
            if (p->o.epilogue == CUBLASLT_EPILOGUE_BIAS)
                x += element_load(p->o.vector, p->d.type, row);
            element_store(j->d, p->d.type, at, x);
        }
        if (p->o.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
            float sum = 0;

            for (int64_t i = 0; i < k; i++)
                sum += b[column * k + i];
            element_store(p->o.vector, p->d.type, column, sum);
        }
    }
    free(a);
    free(b);
}

static void run(void *arg)
{
    job *j = arg;

    memset(j->workspace, 0xa5, j->workspace_bytes);
    for (int64_t i = 0; i < j->p.d.batch; i++)
        multiply(j, i);
    free(j);
}

static bool aligned(const void *p, uint32_t bytes)
{
    return p && (bytes == 0 || (uintptr_t)p % bytes == 0);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const product p = product_of(o, a, b, d);
    choice made;
    char more[64];
    job *j;

    if (!handle || !alpha || !beta || !algorithm || memcmp(c, d, sizeof(layout)) != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&made, algorithm, sizeof made);
    if (made.problem != digest(&p) || workspace_bytes < made.workspace ||
        !aligned(A, made.alignment[0]) || !aligned(B, made.alignment[1]) ||
        !aligned(C, made.alignment[2]) || !aligned(D, made.alignment[3]) ||
        !aligned(workspace, 256) ||
        (p.o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && wish(WISHES, "late_epilogue")))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !aligned(p.o.vector, 16))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    j = calloc(1, sizeof *j);
    if (!j)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *j = (job){p,         *(const float *)alpha, *(const float *)beta, A, B, C, D,
               workspace, workspace_bytes};
    snprintf(more, sizeof more, " alpha=%g beta=%g", (double)j->alpha, (double)j->beta);
    record_product("multiply", &p, more);
    if (tutti_standin_enqueue(stream, run, j) != 0) {
        free(j);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- The library ------------------------------------------------------------------------------------------- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    record("cublaslt create");
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    record("cublaslt destroy, descriptors left: %lld", (long long)n_descriptors);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_ALLOC_FAILED  ? "CUBLAS_STATUS_ALLOC_FAILED"
                                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}
