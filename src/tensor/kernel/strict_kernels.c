/* strict_kernels.c -- the reference kernels on the strict device: its memory is accessible only while one of them runs.
 * SPDX-License-Identifier: MIT */
#include "device/strict/strict_device.h"
#include "tensor/kernel.h"

/* X(name, parameters, arguments): kernels that 16-bit tables have too, and those of F32 only. */
#define OF_BOTH(X)                                                                                 \
    X(reorder, (tutti_tensor * dst, tutti_tensor * src), (dst, src))                               \
    X(cast, (tutti_tensor * dst, tutti_tensor * src), (dst, src))                                  \
    X(move, (tutti_ctx * cx, const tutti__move *c), (cx, c))                                       \
    X(fill, (tutti_tensor * t, float value), (t, value))                                           \
    X(conv2d_forward,                                                                              \
      (tutti_tensor * y, tutti_tensor * x, tutti_tensor * w, tutti_tensor * b,                     \
       const tutti__conv2d *a),                                                                    \
      (y, x, w, b, a))                                                                             \
    X(conv2d_backward_data,                                                                        \
      (tutti_tensor * dx, tutti_tensor * dy, tutti_tensor * w, tutti_tensor * b,                   \
       const tutti__conv2d *a),                                                                    \
      (dx, dy, w, b, a))                                                                           \
    X(conv2d_backward_weights,                                                                     \
      (tutti_tensor * dw, tutti_tensor * db, tutti_tensor * dy, tutti_tensor * x,                  \
       const tutti__conv2d *a),                                                                    \
      (dw, db, dy, x, a))                                                                          \
    X(linear_forward, (tutti_tensor * y, tutti_tensor * x, tutti_tensor * w, tutti_tensor * b),    \
      (y, x, w, b))                                                                                \
    X(linear_backward_data, (tutti_tensor * dx, tutti_tensor * dy, tutti_tensor * w), (dx, dy, w)) \
    X(linear_backward_weights,                                                                     \
      (tutti_tensor * dw, tutti_tensor * db, tutti_tensor * dy, tutti_tensor * x),                 \
      (dw, db, dy, x))                                                                             \
    X(matmul, (tutti_tensor * c, tutti_tensor * a, tutti_tensor * b, const tutti__matmul *m),      \
      (c, a, b, m))                                                                                \
    X(batch_norm_forward,                                                                          \
      (tutti_tensor * y, tutti_tensor * x, tutti_tensor * w, tutti_tensor * b,                     \
       tutti_tensor * residual, tutti_tensor * running_mean, tutti_tensor * running_var,           \
       const tutti__batch_norm *a, tutti__batch_norm_saved *saved),                                \
      (y, x, w, b, residual, running_mean, running_var, a, saved))                                 \
    X(batch_norm_backward,                                                                         \
      (tutti_tensor * dx, tutti_tensor * dw, tutti_tensor * db, tutti_tensor * dresidual,          \
       tutti_tensor * dy, tutti_tensor * y, tutti_tensor * x, tutti_tensor * w,                    \
       const tutti__batch_norm *a, const tutti__batch_norm_saved *saved),                          \
      (dx, dw, db, dresidual, dy, y, x, w, a, saved))                                              \
    X(add_forward, (tutti_tensor * y, tutti_tensor * a, tutti_tensor * b), (y, a, b))              \
    X(add_to, (tutti_tensor * dst, tutti_tensor * src), (dst, src))                                \
    X(max_pool_forward, (tutti_tensor * y, tutti_tensor * x, const tutti__pool *a, void **saved),  \
      (y, x, a, saved))                                                                            \
    X(max_pool_backward,                                                                           \
      (tutti_tensor * dx, tutti_tensor * dy, tutti_tensor * x, const tutti__pool *a, void *saved), \
      (dx, dy, x, a, saved))                                                                       \
    X(avg_pool_forward, (tutti_tensor * y, tutti_tensor * x, const tutti__pool *a), (y, x, a))     \
    X(avg_pool_backward, (tutti_tensor * dx, tutti_tensor * dy, const tutti__pool *a),             \
      (dx, dy, a))                                                                                 \
    X(global_avg_pool_forward, (tutti_tensor * y, tutti_tensor * x), (y, x))                       \
    X(global_avg_pool_backward, (tutti_tensor * dx, tutti_tensor * dy), (dx, dy))

#define OF_F32(X)                                                                                  \
    X(embedding_forward, (tutti_tensor * y, tutti_tensor * w, tutti_tensor * indices),             \
      (y, w, indices))                                                                             \
    X(embedding_backward, (tutti_tensor * dw, tutti_tensor * dy, tutti_tensor * indices),          \
      (dw, dy, indices))

#define OPENED(function, parameters, call)                                                         \
    static tutti_status function parameters                                                        \
    {                                                                                              \
        tutti_status status;                                                                       \
                                                                                                   \
        tutti__strict_open();                                                                      \
        status = call;                                                                             \
        tutti__strict_close();                                                                     \
        return status;                                                                             \
    }
#define F32(name, parameters, arguments)                                                           \
    OPENED(f32_##name, parameters, tutti__kernels_reference.name arguments)
#define HALF(name, parameters, arguments)                                                          \
    OPENED(half_##name, parameters, tutti__kernels_emulated.name arguments)

OF_BOTH(F32)
OF_F32(F32)
OF_BOTH(HALF)

static bool can_half(tutti_ctx *cx, tutti_dtype dtype)
{
    (void)cx;
    (void)dtype;
    return true;
}

#define F32_ROW(name, parameters, arguments)  .name = f32_##name,
#define HALF_ROW(name, parameters, arguments) .name = half_##name,

static const tutti__kernels half = {.name = "strict", OF_BOTH(HALF_ROW)};

const tutti__kernels tutti__kernels_strict = {
    .name = "strict", .can_half = can_half, .half = &half, OF_BOTH(F32_ROW) OF_F32(F32_ROW)};
