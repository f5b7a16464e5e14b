// compatibility.hpp -- c10d of PyTorch 1.13 and later, as the other files use it.   SPDX-License-Identifier: MIT
//
// What a release lacks is looked up by name where the language allows it, so that it does not matter which release brought
// it. Methods of c10d's classes that came later are declared without `override`: in older releases nobody calls them.
#pragma once

#ifndef TUTTI_TORCH_VERSION // 100 * major + minor, given by setup.py
#define TUTTI_TORCH_VERSION 215
#endif

#include <tutti/group.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if TUTTI_TORCH_VERSION >= 200
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

// The class, in namespace c10, of errors after which a group is dead.
#if TUTTI_TORCH_VERSION >= 201
#define TUTTI_TORCH_GROUP_ERROR DistBackendError
#else
#define TUTTI_TORCH_GROUP_ERROR Error
#endif

namespace tutti_torch
{

// Until 1.13 a backend is a process group itself.
#if TUTTI_TORCH_VERSION >= 200
using Backend = c10d::Backend;
#else
using Backend = c10d::ProcessGroup;
#endif

// One type from 2.3 on, where the older name goes away later.
#if TUTTI_TORCH_VERSION >= 206
template <class T>
using optional = std::optional<T>;
#else
template <class T>
using optional = c10::optional<T>;
#endif

#if TUTTI_TORCH_VERSION >= 207
using ErrorType = c10d::ErrorType;
#else
enum class ErrorType { SUCCESS, TIMEOUT, COMM_ERROR, REMOTE_ERROR };
#endif

// The kind of call `name` as c10d names it in profiles, or `other` where it has no such name.
#define TUTTI_OP_TYPE(name, other)                                                                 \
    template <class Type>                                                                          \
    constexpr Type find_##name(decltype(Type::name) *)                                             \
    {                                                                                              \
        return Type::name;                                                                         \
    }                                                                                              \
    template <class Type>                                                                          \
    constexpr Type find_##name(...)                                                                \
    {                                                                                              \
        return Type::other;                                                                        \
    }                                                                                              \
    constexpr c10d::OpType name = find_##name<c10d::OpType>(nullptr);

namespace op_type
{
TUTTI_OP_TYPE(COALESCED, UNKNOWN)
TUTTI_OP_TYPE(_ALLREDUCE_SPARSE, ALLREDUCE)
TUTTI_OP_TYPE(ALLGATHER_INTO_TENSOR_COALESCED, ALLGATHER_COALESCED)
TUTTI_OP_TYPE(REDUCE_SCATTER_TENSOR_COALESCED, _REDUCE_SCATTER_BASE)
} // namespace op_type

#undef TUTTI_OP_TYPE

// Whether the caller goes on before the call is done; true where the options do not tell.
template <class Options>
auto is_async_of(const Options &opts, int) -> decltype(opts.asyncOp)
{
    return opts.asyncOp;
}
template <class Options>
bool is_async_of(const Options &, long)
{
    return true;
}

// The factor of PREMUL_SUM, if it is a tensor; else one that is not defined.
template <class Supplement>
auto tensor_factor_of(const Supplement &supplement, int) -> decltype(supplement.tensor_factor)
{
    return supplement.tensor_factor;
}
template <class Supplement>
at::Tensor tensor_factor_of(const Supplement &supplement, long)
{
    return supplement.tensor_factors.empty() ? at::Tensor() : supplement.tensor_factors[0];
}

// The library's type of element types that came after 1.13; -1: it has none.
inline int later_dtype_of(at::ScalarType type)
{
    switch (type) {
#if TUTTI_TORCH_VERSION >= 203
    case at::kUInt16:
        return TUTTI_U16;
    case at::kUInt32:
        return TUTTI_U32;
    case at::kUInt64:
        return TUTTI_U64;
#endif
    default:
        return -1;
    }
}

} // namespace tutti_torch
