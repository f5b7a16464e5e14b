/* families.cuh -- the functions of own.h's table, by the files they are in.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_FAMILIES_CUH
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_FAMILIES_CUH

#include "tensor/kernel/cuda/own.h"

/* Declares the function of an entry of the table, with the entry's type. */
template <class F>
struct Function;
template <class R, class... A>
struct Function<R (*)(A...)> {
    typedef R type(A...);
};
#define ENTRY(name) extern "C" Function<decltype(tutti__cuda_own::name)>::type tutti__own_##name

ENTRY(cast); /* reorder.cu */
ENTRY(transpose);
ENTRY(move);
ENTRY(fill);
ENTRY(relu); /* elementwise.cu */
ENTRY(relu_backward);
ENTRY(add);
ENTRY(add_bias);
ENTRY(dropout);
ENTRY(formula); /* formula.cu */
ENTRY(formula_backward);
ENTRY(job);          /* jobs.cu */
ENTRY(fold_scratch); /* fold.cu */
ENTRY(fold);
ENTRY(batch_norm_scratch); /* batch_norm.cu */
ENTRY(batch_norm_moments);
ENTRY(batch_norm_statistics);
ENTRY(batch_norm_apply);
ENTRY(batch_norm_sums);
ENTRY(batch_norm_gradient);
ENTRY(sum_rows);
ENTRY(max_pool); /* pool.cu */
ENTRY(max_pool_backward);
ENTRY(avg_pool);
ENTRY(avg_pool_backward);
ENTRY(global_avg_pool);
ENTRY(global_avg_pool_backward);
ENTRY(softmax); /* rows.cu */
ENTRY(softmax_backward);
ENTRY(norm); /* norm.cu */
ENTRY(norm_backward);
ENTRY(norm_products);
ENTRY(cross_entropy); /* rows.cu */
ENTRY(cross_entropy_backward);
ENTRY(label_rows);
ENTRY(label_sums);
ENTRY(mse_scratch);
ENTRY(mse);
ENTRY(mse_backward);
ENTRY(attention); /* attention.cu */
ENTRY(attention_backward);
ENTRY(embedding); /* embedding.cu */
ENTRY(embedding_backward);

#undef ENTRY

#endif
