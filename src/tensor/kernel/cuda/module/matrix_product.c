/* matrix_product.c -- matrix products by cuBLASLt.   SPDX-License-Identifier: MIT
 *
 * cuBLASLt's matrices are column-major: a row-major one is its transpose there. So c = op(a) op(b) is computed as c' =
 * op(b)' op(a)': its A is our b, its B our a, its rows our columns. */
#include "tensor/kernel/cuda/module/handle.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { SUGGESTIONS = 8, PRODUCT = 100 /* a key's first number; convolution.c's are smaller */ };

/* The workspace of cuBLASLt's fastest kernels on Hopper. */
#define MAX_WORKSPACE ((size_t)32 << 20)

typedef struct product_plan {
    tutti__cuda_plan base;
    bool none; /* cuBLASLt has none */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's A and B */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} product_plan;

#define TRY(expression)                                                                            \
    do {                                                                                           \
        tutti_status status_ = (expression);                                                       \
        if (status_ != TUTTI_OK)                                                                   \
            return status_;                                                                        \
    } while (0)

static tutti_status checked(cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return TUTTI_OK;
    return tutti__cuda_fail(status == CUBLAS_STATUS_ALLOC_FAILED    ? TUTTI_ERR_MEMORY
                            : status == CUBLAS_STATUS_NOT_SUPPORTED ? TUTTI_ERR_UNSUPPORTED
                                                                    : TUTTI_ERR_DEVICE,
                            "%.*s: %s", (int)strcspn(call, "("), call,
                            cublasLtGetStatusName(status));
}

#define BLAS(call) checked(call, #call)

static tutti_status none_will_do(void)
{
    const size_t version = cublasLtGetVersion();

    return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "cuBLASLt %zu.%zu.%zu has no algorithm for it",
                            version / 10000, version % 10000 / 100, version % 100);
}

static cudaDataType_t type_of(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 ? CUDA_R_16BF : dtype == TUTTI_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(const tutti__cuda_product *p)
{
    return p->bias     ? CUBLASLT_EPILOGUE_BIAS
           : p->a_sums ? CUBLASLT_EPILOGUE_BGRADB
                       : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Whether cuBLASLt may do it without its epilogue: for some unsupported ones it returns INVALID_VALUE. */
static bool refuses(cublasStatus_t status, const tutti__cuda_product *p)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ||
           (status == CUBLAS_STATUS_INVALID_VALUE && epilogue_of(p) != CUBLASLT_EPILOGUE_DEFAULT);
}

/* cuBLASLt's alignment preferences cover only the matrices, but its epilogues may access 16 bytes of their vector at a time. */
static bool vector_is_aligned(const tutti__cuda_product *p)
{
    return tutti__cuda_alignment(p->bias, p->a_sums, NULL) == 16;
}

/* Sets the bias, or the destination of sums: they change from call to call, and cuBLASLt needs them before choosing. */
static tutti_status set_vector(const product_plan *plan, const tutti__cuda_product *p)
{
    const void *vector = p->bias ? p->bias : p->a_sums;

    if (!vector)
        return TUTTI_OK;
    return BLAS(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &vector, sizeof vector));
}

static tutti_status repeat(cublasLtMatrixLayout_t layout, int64_t batch, int64_t stride)
{
    const int32_t count = (int32_t)batch;

    if (batch < 2)
        return TUTTI_OK;
    TRY(BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count)));
    return BLAS(cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

static tutti_status describe(const tutti__cuda_handle *h, const tutti__cuda_product *p,
                             product_plan *plan)
{
    const cudaDataType_t type = type_of(p->dtype), result = type_of(p->result);
    const cublasOperation_t a = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = epilogue_of(p);
    const uint64_t m = (uint64_t)p->columns, n = (uint64_t)p->rows, k = (uint64_t)p->inner;

    TRY(BLAS(cublasLtMatmulDescCreate(
        &plan->operation,
        p->dtype == TUTTI_F32 && h->o.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F)));
    TRY(BLAS(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a,
                                            sizeof a)));
    TRY(BLAS(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b,
                                            sizeof b)));
    TRY(BLAS(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                            &epilogue, sizeof epilogue)));
    TRY(set_vector(plan, p));
    TRY(BLAS(p->b_transposed ? cublasLtMatrixLayoutCreate(&plan->a, type, k, m, p->inner)
                             : cublasLtMatrixLayoutCreate(&plan->a, type, m, k, p->columns)));
    TRY(BLAS(p->a_transposed ? cublasLtMatrixLayoutCreate(&plan->b, type, n, k, p->rows)
                             : cublasLtMatrixLayoutCreate(&plan->b, type, k, n, p->inner)));
    TRY(BLAS(cublasLtMatrixLayoutCreate(&plan->c, result, m, n, p->columns)));
    TRY(repeat(plan->a, p->batch, p->b_stride));
    TRY(repeat(plan->b, p->batch, p->a_stride));
    return repeat(plan->c, p->batch, p->c_stride);
}

static tutti_status prefer(cublasLtMatmulPreference_t preference, const tutti__cuda_product *p)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *pointer;
    } of[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->b},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->a},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->c},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->c}};
    const uint64_t workspace = MAX_WORKSPACE;
    /* Partial sums are added in F32, and always in the same order. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

    TRY(BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)));
    TRY(BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions)));
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const uint32_t bytes = (uint32_t)tutti__cuda_alignment(of[i].pointer, NULL, NULL);

        TRY(BLAS(
            cublasLtMatmulPreferenceSetAttribute(preference, of[i].name, &bytes, sizeof bytes)));
    }
    return TUTTI_OK;
}

static tutti_status choose(tutti__cuda_handle *h, const tutti__cuda_product *p, product_plan *plan)
{
    cublasLtMatmulHeuristicResult_t results[SUGGESTIONS];
    cublasStatus_t status;
    int n = 0;

    TRY(prefer(h->preference, p));
    status = cublasLtMatmulAlgoGetHeuristic(h->blas, plan->operation, plan->a, plan->b, plan->c,
                                            plan->c, h->preference, SUGGESTIONS, results, &n);
    plan->none = refuses(status, p);
    if (plan->none)
        return TUTTI_OK;
    TRY(checked(status, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < n; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            plan->algorithm = results[i].algo;
            plan->workspace = results[i].workspaceSize;
            return TUTTI_OK;
        }
    }
    plan->none = true;
    return TUTTI_OK;
}

static void product_plan_free(tutti__cuda_plan *base)
{
    product_plan *plan = (product_plan *)base;

    if (plan->operation)
        (void)cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a)
        (void)cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        (void)cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c)
        (void)cublasLtMatrixLayoutDestroy(plan->c);
    free(plan);
}

static void key_of(int64_t *key, const tutti__cuda_product *p)
{
    const int64_t values[TUTTI__CUDA_KEY] = {PRODUCT,
                                             p->rows,
                                             p->columns,
                                             p->inner,
                                             p->a_transposed,
                                             p->b_transposed,
                                             p->dtype,
                                             p->result,
                                             (int64_t)epilogue_of(p),
                                             tutti__cuda_alignment(p->a, NULL, NULL),
                                             tutti__cuda_alignment(p->b, NULL, NULL),
                                             tutti__cuda_alignment(p->c, NULL, NULL),
                                             p->batch,
                                             p->a_stride,
                                             p->b_stride,
                                             p->c_stride};

    memcpy(key, values, sizeof values);
}

static tutti_status library_open(tutti__cuda_handle *h)
{
    cublasLtMatmulPreference_t preference;

    if (!h->blas)
        TRY(BLAS(cublasLtCreate(&h->blas)));
    if (!h->preference) {
        TRY(BLAS(cublasLtMatmulPreferenceCreate(&preference)));
        h->preference = preference;
    }
    return TUTTI_OK;
}

void tutti__cuda_product_close(tutti__cuda_handle *h)
{
    if (h->preference)
        (void)cublasLtMatmulPreferenceDestroy(h->preference);
    if (h->blas)
        (void)cublasLtDestroy(h->blas);
    h->preference = NULL;
    h->blas = NULL;
}

static tutti_status plan_of(tutti__cuda_handle *h, const tutti__cuda_product *p,
                            product_plan **plan_p)
{
    int64_t key[TUTTI__CUDA_KEY];
    product_plan *plan;
    tutti_status status;

    key_of(key, p);
    *plan_p = (product_plan *)tutti__cuda_plan_find(h, key);
    if (*plan_p)
        return TUTTI_OK;
    plan = tutti__cuda_host_memory(sizeof *plan);
    if (!plan)
        return TUTTI_ERR_MEMORY;
    status = describe(h, p, plan);
    if (status == TUTTI_OK)
        status = choose(h, p, plan);
    if (status != TUTTI_OK) {
        product_plan_free(&plan->base);
        return status;
    }
    plan->base.free = product_plan_free;
    memcpy(plan->base.key, key, sizeof key);
    tutti__cuda_plan_add(h, &plan->base);
    *plan_p = plan;
    return TUTTI_OK;
}

tutti_status tutti__cuda_multiply(void *handle, const tutti__cuda_product *p)
{
    tutti__cuda_handle *h = handle;
    const float alpha = 1, beta = p->accumulate ? 1 : 0;
    cublasStatus_t status;
    product_plan *plan;
    void *workspace;

    if (!vector_is_aligned(p))
        return none_will_do();
    TRY(tutti__cuda_use(h->o.device));
    TRY(library_open(h));
    TRY(plan_of(h, p, &plan));
    if (plan->none)
        return none_will_do();
    TRY(set_vector(plan, p));
    TRY(tutti__cuda_workspace(h, plan->workspace, &workspace));
    status = cublasLtMatmul(h->blas, plan->operation, &alpha, p->b, plan->a, p->a, plan->b, &beta,
                            p->c, plan->c, p->c, plan->c, &plan->algorithm, workspace,
                            plan->workspace, h->stream);
    plan->none = refuses(status, p);
    return plan->none ? none_will_do() : checked(status, "cublasLtMatmul");
}
