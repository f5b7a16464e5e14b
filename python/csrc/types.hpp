// types.hpp -- PyTorch's element types and reductions in the library's terms.
// SPDX-License-Identifier: MIT
#pragma once

#include "compatibility.hpp"

#include <tutti/call.h>

namespace tutti_torch
{

// One element of a tensor is `per_element` elements of `dtype`: a complex number is a pair.
struct Wire {
    tutti_dtype dtype;
    size_t per_element;
};

// For calls that only move elements: the same type where the library has it, so that a mismatch is named by it; else bytes.
Wire wire_of(at::ScalarType type);

struct Reduction {
    Wire wire;
    tutti_redop op;
    double scale; // of tutti_call: PREMUL_SUM's factor; 0: none
};

// For calls that reduce. Throws for what has no meaning, such as the maximum of complex numbers; `call` is for that message.
Reduction reduction_of(const char *call, at::ScalarType type, const c10d::ReduceOp &op);

// Throws unless it is a dense tensor in the CPU's memory.
void check_tensor(const char *call, const at::Tensor &tensor);
void check_tensors(const char *call, const std::vector<at::Tensor> &tensors);
// Throws if several of its elements lie at one place: a call could not write to it.
void check_written(const char *call, const at::Tensor &tensor);
void check_written(const char *call, const std::vector<at::Tensor> &tensors);
// Throws unless the list has one tensor, and it is of that kind; returns it.
at::Tensor only_tensor(const char *call, const std::vector<at::Tensor> &tensors);
void check_same_type(const char *call, const at::Tensor &one, const at::Tensor &other);

// Whether its elements lie one after the other in order.
bool is_in_order(const at::Tensor &tensor);
// The tensor itself if that is true of it; else a copy of which it is. The
// library moves memory, and ranks may have different strides: in this order they mean the same.
at::Tensor in_order(const at::Tensor &tensor);
// What in_order returned for `to`, after a call has written to it.
void put_back(const at::Tensor &from, const at::Tensor &to);

inline size_t bytes_of(const at::Tensor &tensor)
{
    return static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

// Of tensors that in_order returned.
inline tutti_buf buf_of(const at::Tensor &tensor, const Wire &wire)
{
    return TUTTI_BUF(tensor.data_ptr(), static_cast<size_t>(tensor.numel()) * wire.per_element,
                     wire.dtype);
}

inline tutti_const_buf const_buf_of(const at::Tensor &tensor, const Wire &wire)
{
    return tutti_buf_const(buf_of(tensor, wire));
}

// With `src` {} in place.
inline tutti_call call_of(tutti_call_kind kind, const Reduction &r, const tutti_const_buf &src,
                          const tutti_buf &dst, int root = 0)
{
    tutti_call call = {};

    call.kind = kind;
    call.op = r.op;
    call.rank = root;
    call.src = src;
    call.dst = dst;
    call.scale = r.scale;
    return call;
}

} // namespace tutti_torch
