// types.cpp -- PyTorch's element types and reductions in the library's terms.
// SPDX-License-Identifier: MIT
#include "types.hpp"

#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>

namespace tutti_torch
{

namespace
{

// In an order in which the library knows them too; -1: it does not.
int dtype_of(at::ScalarType type)
{
    switch (type) {
    case at::kFloat:
        return TUTTI_F32;
    case at::kDouble:
        return TUTTI_F64;
    case at::kHalf:
        return TUTTI_F16;
    case at::kBFloat16:
        return TUTTI_BF16;
    case at::kChar:
        return TUTTI_I8;
    case at::kByte:
    case at::kBool:
        return TUTTI_U8;
    case at::kInt:
        return TUTTI_I32;
    case at::kLong:
        return TUTTI_I64;
    case at::kShort:
        return TUTTI_I16;
    default:
        return later_dtype_of(type);
    }
}

// Complex numbers as pairs of their parts; -1: not complex, or of halves, which the library would sum too.
int part_of(at::ScalarType type)
{
    switch (type) {
    case at::kComplexFloat:
        return TUTTI_F32;
    case at::kComplexDouble:
        return TUTTI_F64;
    case at::kComplexHalf:
        return TUTTI_F16;
    default:
        return -1;
    }
}

const char *name_of(c10d::ReduceOp::RedOpType op)
{
    static const char *const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                        "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

    return op <= c10d::ReduceOp::PREMUL_SUM ? names[op] : "UNUSED";
}

[[noreturn]] void refuse(const char *call, at::ScalarType type, c10d::ReduceOp::RedOpType op,
                         const char *why)
{
    TORCH_CHECK(false, "tutti: ", call, ": ReduceOp.", name_of(op), " of ", type, ": ", why);
    __builtin_unreachable();
}

// True and false are the bytes 1 and 0, so a sum that is not 0 is their maximum.
tutti_redop boolean_op(const char *call, c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return TUTTI_BOR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return TUTTI_BAND;
    case c10d::ReduceOp::BXOR:
        return TUTTI_BXOR;
    default:
        refuse(call, at::kBool, op, "a truth value has no such reduction");
    }
}

tutti_redop plain_op(const char *call, at::ScalarType type, c10d::ReduceOp::RedOpType op)
{
    const bool bitwise =
        op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
    const bool integer = at::isIntegralType(type, false);

    if (bitwise && !integer)
        refuse(call, type, op, "bitwise reductions are for integers");
    if ((op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM) && integer)
        refuse(call, type, op, "an integer cannot hold it; use SUM and divide");
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
        return TUTTI_SUM;
    case c10d::ReduceOp::AVG:
        return TUTTI_AVG;
    case c10d::ReduceOp::PRODUCT:
        return TUTTI_PRODUCT;
    case c10d::ReduceOp::MIN:
        return TUTTI_MIN;
    case c10d::ReduceOp::MAX:
        return TUTTI_MAX;
    case c10d::ReduceOp::BAND:
        return TUTTI_BAND;
    case c10d::ReduceOp::BOR:
        return TUTTI_BOR;
    case c10d::ReduceOp::BXOR:
        return TUTTI_BXOR;
    default:
        refuse(call, type, op, "unknown reduction");
    }
}

// Of PREMUL_SUM, as tutti_call.scale.
double scale_of(const char *call, const c10d::ReduceOp &op)
{
    const auto *supplement =
        dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());

    TORCH_CHECK(supplement, "tutti: ReduceOp.PREMUL_SUM without a factor");
    const at::Tensor factor = tensor_factor_of(*supplement, 0);
    TORCH_CHECK(!factor.defined() || (factor.numel() == 1 && !factor.is_complex()), "tutti: ", call,
                ": the factor of ReduceOp.PREMUL_SUM: expected one real number");
    const double value = factor.defined() ? factor.item().toDouble() : supplement->double_factor;
    return value == 0 ? static_cast<double>(TUTTI_ZERO) : value;
}

// PyTorch lets no operation write to a tensor made in inference mode outside of it; a call writes to any.
class MayWrite
{
  public:
    explicit MayWrite(const at::Tensor &tensor)
        : mode_(tensor.is_inference() || c10::InferenceMode::is_enabled())
    {
    }

  private:
    const c10::InferenceMode mode_;
    const at::NoGradGuard no_grad_;
};

} // namespace

Wire wire_of(at::ScalarType type)
{
    const int dtype = dtype_of(type), part = part_of(type);

    if (dtype >= 0)
        return {static_cast<tutti_dtype>(dtype), 1};
    if (part >= 0)
        return {static_cast<tutti_dtype>(part), 2};
    return {TUTTI_U8, c10::elementSize(type)};
}

Reduction reduction_of(const char *call, at::ScalarType type, const c10d::ReduceOp &reduce_op)
{
    const c10d::ReduceOp::RedOpType op = reduce_op;
    const bool scales = op == c10d::ReduceOp::PREMUL_SUM;
    const double scale = scales ? scale_of(call, reduce_op) : 0;

    if (type == at::kBool)
        return {wire_of(type), boolean_op(call, op), 0};
    if (part_of(type) >= 0) {
        if (op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG && !scales)
            refuse(call, type, op, "complex numbers have only SUM, AVG and PREMUL_SUM");
        return {wire_of(type), op == c10d::ReduceOp::AVG ? TUTTI_AVG : TUTTI_SUM, scale};
    }
    if (dtype_of(type) < 0)
        refuse(call, type, op, "this type can be moved, but not reduced; convert it before");
    return {wire_of(type), plain_op(call, type, op), scale};
}

void check_tensor(const char *call, const at::Tensor &tensor)
{
    TORCH_CHECK(tensor.defined(), "tutti: ", call, ": a tensor is not defined");
    TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: ", call, ": a tensor of layout ",
                tensor.layout(), "; expected a dense one");
    TORCH_CHECK(tensor.device().is_cpu(), "tutti: ", call, ": a tensor on ", tensor.device(),
                "; backend \"tutti\" is for CPU tensors (\"cpu:tutti,cuda:nccl\" serves both)");
}

void check_tensors(const char *call, const std::vector<at::Tensor> &tensors)
{
    for (const at::Tensor &tensor : tensors)
        check_tensor(call, tensor);
}

void check_written(const char *call, const at::Tensor &tensor)
{
    TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "tutti: ", call,
                ": several elements of a tensor that it writes to lie at one place (of expand()?); "
                "clone() it before");
}

void check_written(const char *call, const std::vector<at::Tensor> &tensors)
{
    for (const at::Tensor &tensor : tensors)
        check_written(call, tensor);
}

at::Tensor only_tensor(const char *call, const std::vector<at::Tensor> &tensors)
{
    TORCH_CHECK(tensors.size() == 1, "tutti: ", call, ": a list of ", tensors.size(),
                " tensors, expected one");
    check_tensor(call, tensors[0]);
    return tensors[0];
}

void check_same_type(const char *call, const at::Tensor &one, const at::Tensor &other)
{
    TORCH_CHECK(one.scalar_type() == other.scalar_type(), "tutti: ", call, ": tensors of type ",
                one.scalar_type(), " and ", other.scalar_type(), " in one call");
}

bool is_in_order(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor in_order(const at::Tensor &tensor)
{
    if (is_in_order(tensor))
        return tensor;
    at::NoGradGuard no_grad;
    return tensor.resolve_conj().resolve_neg().contiguous();
}

void put_back(const at::Tensor &from, const at::Tensor &to)
{
    if (from.is_same(to))
        return;
    const MayWrite guard(to);
    at::Tensor target = to;
    target.copy_(from);
}

} // namespace tutti_torch
