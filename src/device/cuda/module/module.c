/* module.c -- libtutti_cuda's only exported name, and its error messages.   SPDX-License-Identifier: MIT */
#include "device/cuda/module/shared.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[512];

const char *tutti__cuda_error(void)
{
    return error_text;
}

tutti_status tutti__cuda_fail(tutti_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error_text, sizeof error_text, format, args);
    va_end(args);
    return status;
}

/* CUDA keeps the last error of a thread until it is read, so an unrelated call might read it. */
tutti_status tutti__cuda_result(int code, const char *what)
{
    const cudaError_t error = (cudaError_t)code;

    if (error == cudaSuccess)
        return TUTTI_OK;
    (void)cudaGetLastError();
    return tutti__cuda_fail(
        error == cudaErrorMemoryAllocation ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE, "%.*s: %s (%s)",
        (int)strcspn(what, "("), what, cudaGetErrorString(error), cudaGetErrorName(error));
}

tutti_status tutti__cuda_use(int device)
{
    return TUTTI__CALL(cudaSetDevice(device));
}

static const char *describe(void)
{
    static _Thread_local char text[96];
    const size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    int cuda = 0;

    (void)cudaRuntimeGetVersion(&cuda);
    snprintf(text, sizeof text, "CUDA %d.%d, cuDNN %zu.%zu, cuBLAS %zu.%zu", cuda / 1000,
             cuda % 1000 / 10, dnn / 10000, dnn % 10000 / 100, blas / 10000, blas % 10000 / 100);
    return text;
}

extern const tutti__cuda tutti_cuda_table;
TUTTI_API const tutti__cuda tutti_cuda_table = {
    .table = TUTTI__CUDA_TABLE,
    .version = TUTTI_VERSION,
    .describe = describe,
    .error = tutti__cuda_error,
    .runtime = &tutti__cuda_runtime_table,
    .flat = &tutti__cuda_flat_table,
    .own = &tutti__cuda_own_table,
    .products = &tutti__cuda_products_table,
};
