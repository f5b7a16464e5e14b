// collectives.cpp -- collectives on single tensors.   SPDX-License-Identifier: MIT
//
// A body runs in its place in the order of the group's calls; only there are its inputs read, since they may be results
// of calls before it.
#include "backend.hpp"

namespace tutti_torch
{

namespace
{

using c10d::OpType;

// For a call whose one side has `size` pieces of the other side's size.
void check_pieces(const char *call, const at::Tensor &whole, const at::Tensor &piece, int size)
{
    check_tensor(call, whole);
    check_tensor(call, piece);
    check_same_type(call, whole, piece);
    TORCH_CHECK(whole.numel() == piece.numel() * size, "tutti: ", call, ": ", whole.numel(),
                " elements on the side of all ranks and ", piece.numel(),
                " on the side of each; "
                "expected ",
                piece.numel() * size, " for ", size, " ranks");
}

} // namespace

WorkPtr TuttiBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, opts);
    const at::Tensor tensor = only_tensor("all_reduce", tensors);
    const Reduction r = reduction_of("all_reduce", tensor.scalar_type(), opts.reduceOp);

    check_written("all_reduce", tensor);
    return run(
        OpType::ALLREDUCE, "tutti:all_reduce", opts, tensors, tensors, [=](tutti_group *group) {
            const at::Tensor flat = in_order(tensor);
            const tutti_call call = call_of(TUTTI_CALL_ALL_REDUCE, r, {}, buf_of(flat, r.wire));

            TUTTI_TRY(tutti_group_call(group, &call, nullptr));
            put_back(flat, tensor);
            return TUTTI_OK;
        });
}

WorkPtr TuttiBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    const at::Tensor tensor = only_tensor("broadcast", tensors);
    const int root = static_cast<int>(opts.rootRank), rank = rank_;

    check_root("broadcast", opts.rootRank);
    if (rank != root)
        check_written("broadcast", tensor);
    return run(OpType::BROADCAST, "tutti:broadcast", opts, tensors, tensors,
               [=](tutti_group *group) {
                   const at::Tensor flat = in_order(tensor);

                   TUTTI_TRY(tutti_broadcast(group, buf_of(flat, wire_of(flat.scalar_type())), root,
                                             nullptr));
                   if (rank != root)
                       put_back(flat, tensor);
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    const at::Tensor tensor = only_tensor("reduce", tensors);
    const int root = static_cast<int>(opts.rootRank), rank = rank_;
    const Reduction r = reduction_of("reduce", tensor.scalar_type(), opts.reduceOp);

    check_root("reduce", opts.rootRank);
    if (rank == root)
        check_written("reduce", tensor);
    return run(OpType::REDUCE, "tutti:reduce", opts, tensors, tensors, [=](tutti_group *group) {
        const at::Tensor flat = in_order(tensor);
        const tutti_call call = call_of(TUTTI_CALL_REDUCE, r, {}, buf_of(flat, r.wire), root);

        TUTTI_TRY(tutti_group_call(group, &call, nullptr));
        if (rank == root)
            put_back(flat, tensor);
        return TUTTI_OK;
    });
}

WorkPtr TuttiBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                      const c10d::AllgatherOptions &opts)
{
    check_pieces("all_gather_single", output, input, size_);
    check_written("all_gather_single", output);
    return run(
        OpType::_ALLGATHER_BASE, "tutti:all_gather_single", opts, input, {output},
        [to = output, from = input](tutti_group *group) {
            const at::Tensor src = in_order(from), dst = in_order(to);
            const Wire wire = wire_of(src.scalar_type());

            TUTTI_TRY(tutti_all_gather(group, const_buf_of(src, wire), buf_of(dst, wire), nullptr));
            put_back(dst, to);
            return TUTTI_OK;
        });
}

WorkPtr TuttiBackend::gather_into_tensor(at::Tensor &output, at::Tensor &input,
                                         const c10d::GatherOptions &opts)
{
    const int root = static_cast<int>(opts.rootRank), rank = rank_;

    check_root("gather_single", opts.rootRank);
    if (rank == root) {
        check_pieces("gather_single", output, input, size_);
        check_written("gather_single", output);
    }
    check_tensor("gather_single", input);
    return run(OpType::GATHER, "tutti:gather_single", opts, input, {output},
               [=, to = output, from = input](tutti_group *group) {
                   const at::Tensor src = in_order(from);
                   const at::Tensor dst = rank == root ? in_order(to) : at::Tensor();
                   const Wire wire = wire_of(src.scalar_type());

                   TUTTI_TRY(tutti_gather(group, const_buf_of(src, wire),
                                          rank == root ? buf_of(dst, wire) : tutti_buf{}, root,
                                          nullptr));
                   if (rank == root)
                       put_back(dst, to);
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                           const c10d::ReduceScatterOptions &opts)
{
    const Reduction r = reduction_of("reduce_scatter_single", input.scalar_type(), opts.reduceOp);

    check_pieces("reduce_scatter_single", input, output, size_);
    check_written("reduce_scatter_single", output);
    return run(OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_single", opts, input, {output},
               [=, to = output, from = input](tutti_group *group) {
                   const at::Tensor src = in_order(from), dst = in_order(to);
                   const tutti_call call = call_of(TUTTI_CALL_REDUCE_SCATTER, r,
                                                   const_buf_of(src, r.wire), buf_of(dst, r.wire));

                   TUTTI_TRY(tutti_group_call(group, &call, nullptr));
                   put_back(dst, to);
                   return TUTTI_OK;
               });
}

namespace
{

// Elements for each rank, from numbers of rows; no numbers: equal parts.
std::vector<size_t> counts_of(const char *side, const at::Tensor &tensor,
                              const std::vector<int64_t> &rows, int size, size_t per_element)
{
    TORCH_CHECK(tensor.dim() > 0, "tutti: all_to_all_single: ", side,
                " has no dimensions, expected one or more: its rows are divided among the ranks");
    const int64_t all = tensor.size(0);
    const int64_t row = all ? tensor.numel() / all : 0;
    std::vector<size_t> counts(static_cast<size_t>(size));
    int64_t sum = 0;

    TORCH_CHECK(!rows.empty() || all % size == 0, "tutti: all_to_all_single: ", all, " rows of ",
                side, " are not divisible by ", size, " ranks; give the rows of each");
    TORCH_CHECK(rows.empty() || rows.size() == counts.size(),
                "tutti: all_to_all_single: split sizes of ", side, ": ", at::IntArrayRef(rows),
                ", expected ", size, " numbers of rows, one for each rank");
    for (size_t r = 0; r < counts.size(); r++) {
        const int64_t n = rows.empty() ? all / size : rows[r];

        TORCH_CHECK(n >= 0 && n <= all, "tutti: all_to_all_single: ", n, " rows of ", side,
                    " for rank ", r, "; expected 0 to the ", all, " that there are");
        sum += n;
        counts[r] = static_cast<size_t>(n * row) * per_element;
    }
    TORCH_CHECK(sum == all, "tutti: all_to_all_single: split sizes of ", side, ": ",
                at::IntArrayRef(rows), ", which are ", sum, " rows, expected the ", all,
                " of the tensor");
    return counts;
}

} // namespace

WorkPtr TuttiBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                    std::vector<int64_t> &output_rows,
                                    std::vector<int64_t> &input_rows,
                                    const c10d::AllToAllOptions &opts)
{
    check_tensor("all_to_all_single", output);
    check_tensor("all_to_all_single", input);
    check_same_type("all_to_all_single", output, input);
    check_written("all_to_all_single", output);
    const Wire wire = wire_of(input.scalar_type());
    const auto sent = counts_of("input", input, input_rows, size_, wire.per_element);
    const auto received = counts_of("output", output, output_rows, size_, wire.per_element);

    return run(OpType::ALLTOALL_BASE, "tutti:all_to_all_single", opts, input, {output},
               [=, to = output, from = input](tutti_group *group) {
                   const at::Tensor src = in_order(from), dst = in_order(to);

                   TUTTI_TRY(tutti_all_to_all_v(group, const_buf_of(src, wire), sent.data(),
                                                buf_of(dst, wire), received.data(), nullptr));
                   put_back(dst, to);
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::barrier(const c10d::BarrierOptions &opts)
{
    return run(OpType::BARRIER, "tutti:barrier", opts, {}, {},
               [](tutti_group *group) { return tutti_barrier(group, nullptr); });
}

} // namespace tutti_torch
