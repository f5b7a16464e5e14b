// lists.cpp -- collectives on lists of tensors, and sparse ones.   SPDX-License-Identifier: MIT
#include "backend.hpp"

#include <cstring>

namespace tutti_torch
{

namespace
{

using c10d::OpType;

// The tensors of a list as one piece of memory, one after the other: itself if they lie so (chunks of one tensor), else a copy.
class Packed
{
  public:
    explicit Packed(const Tensors &tensors) : tensors_(tensors)
    {
        for (const at::Tensor &tensor : tensors_)
            bytes_ += bytes_of(tensor);
        if (!tensors_.empty() && are_adjacent()) {
            p_ = static_cast<char *>(tensors_[0].data_ptr());
            return;
        }
        copy_ = at::empty({static_cast<int64_t>(bytes_)}, at::kByte);
        p_ = static_cast<char *>(copy_.data_ptr());
    }

    void pack()
    {
        for (size_t i = 0, at = 0; copy_.defined() && i < tensors_.size(); i++) {
            const at::Tensor flat = in_order(tensors_[i]);
            const size_t n = bytes_of(flat);

            if (n)
                std::memcpy(p_ + at, flat.data_ptr(), n);
            at += n;
        }
    }

    // Writes to the tensors what a call has written to the memory.
    void unpack() const
    {
        for (size_t i = 0, at = 0; copy_.defined() && i < tensors_.size(); i++) {
            const at::Tensor &to = tensors_[i];
            const size_t n = bytes_of(to);

            if (n && is_in_order(to))
                std::memcpy(to.data_ptr(), p_ + at, n);
            else if (n)
                put_back(at::from_blob(p_ + at, to.sizes(), to.options()), to);
            at += n;
        }
    }

    tutti_buf buf(const Wire &wire) const
    {
        return TUTTI_BUF(p_, bytes_ / tutti_dtype_size(wire.dtype), wire.dtype);
    }
    tutti_const_buf const_buf(const Wire &wire) const
    {
        return tutti_buf_const(buf(wire));
    }
    char *p() const
    {
        return p_;
    }

  private:
    bool are_adjacent() const
    {
        const char *next = static_cast<const char *>(tensors_[0].data_ptr());

        for (const at::Tensor &tensor : tensors_) {
            if (tensor.numel() && (!is_in_order(tensor) || tensor.data_ptr() != next))
                return false;
            next += bytes_of(tensor);
        }
        return next != nullptr;
    }

    const Tensors tensors_;
    size_t bytes_ = 0;
    at::Tensor copy_;
    char *p_;
};

const Wire BYTES = {TUTTI_U8, 1};

bool same_sizes(const Tensors &tensors)
{
    for (const at::Tensor &tensor : tensors)
        if (tensor.numel() != tensors[0].numel())
            return false;
    return true;
}

std::vector<size_t> counts_of(const Tensors &tensors, const Wire &wire)
{
    std::vector<size_t> counts;

    for (const at::Tensor &tensor : tensors)
        counts.push_back(static_cast<size_t>(tensor.numel()) * wire.per_element);
    return counts;
}

// The one list of tensors, one for each rank.
const Tensors &only_list(const char *call, const TensorLists &lists, int size,
                         const at::Tensor &like)
{
    TORCH_CHECK(lists.size() == 1, "tutti: ", call, ": ", lists.size(),
                " lists of tensors, expected one");
    TORCH_CHECK(lists[0].size() == static_cast<size_t>(size), "tutti: ", call, ": a list of ",
                lists[0].size(), " tensors for ", size, " ranks");
    check_tensors(call, lists[0]);
    for (const at::Tensor &tensor : lists[0])
        check_same_type(call, tensor, like);
    return lists[0];
}

void check_equal(const char *call, const Tensors &list, const at::Tensor &own)
{
    for (size_t r = 0; r < list.size(); r++)
        TORCH_CHECK(list[r].numel() == own.numel(), "tutti: ", call, ": ", list[r].numel(),
                    " elements for rank ", r, ", ", own.numel(),
                    " for this one; expected the same for all");
}

// `one` is written.
void check_pairs(const char *call, const Tensors &one, const Tensors &other)
{
    TORCH_CHECK(one.size() == other.size(), "tutti: ", call, ": ", one.size(), " outputs and ",
                other.size(), " inputs");
    check_tensors(call, one);
    check_tensors(call, other);
    check_written(call, one);
}

tutti_status reduce_together(tutti_group *group, const Tensors &tensors,
                             const std::vector<Reduction> &reductions)
{
    tutti_status status = tutti_coalesce_begin(group), ended;

    for (size_t i = 0; i < tensors.size() && status == TUTTI_OK; i++) {
        const tutti_call call = call_of(TUTTI_CALL_ALL_REDUCE, reductions[i], {},
                                        buf_of(tensors[i], reductions[i].wire));

        status = tutti_group_call(group, &call, nullptr);
    }
    ended = tutti_coalesce_end(group, nullptr);
    return status == TUTTI_OK ? ended : status;
}

} // namespace

WorkPtr TuttiBackend::allreduce_coalesced(Tensors &tensors,
                                          const c10d::AllreduceCoalescedOptions &opts)
{
    const c10d::ReduceOp op = opts.reduceOp;

    check_tensors("all_reduce_coalesced", tensors);
    check_written("all_reduce_coalesced", tensors);
    std::vector<Reduction> reductions; /* of truth values: others */
    for (const at::Tensor &tensor : tensors)
        reductions.push_back(reduction_of("all_reduce_coalesced", tensor.scalar_type(), op));
    return run(OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced", opts, tensors, tensors,
               [=, list = tensors](tutti_group *group) {
                   Tensors flat;

                   for (const at::Tensor &tensor : list)
                       flat.push_back(in_order(tensor));
                   TUTTI_TRY(reduce_together(group, flat, reductions));
                   for (size_t i = 0; i < list.size(); i++)
                       put_back(flat[i], list[i]);
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts)
{
    const at::Tensor input = only_tensor("all_gather", inputs);
    const Tensors list = only_list("all_gather", outputs, size_, input);
    const Wire wire = wire_of(input.scalar_type());

    check_written("all_gather", list);
    TORCH_CHECK(list[rank_].numel() == input.numel(), "tutti: all_gather: ", input.numel(),
                " elements given, ", list[rank_].numel(), " expected of rank ", rank_);
    return run(OpType::ALLGATHER, "tutti:all_gather", opts, input, list, [=](tutti_group *group) {
        const at::Tensor src = in_order(input);
        Packed dst(list);

        if (same_sizes(list))
            TUTTI_TRY(tutti_all_gather(group, const_buf_of(src, wire), dst.buf(wire), nullptr));
        else
            TUTTI_TRY(tutti_all_gather_v(group, const_buf_of(src, wire), dst.buf(wire),
                                         counts_of(list, wire).data(), nullptr));
        dst.unpack();
        return TUTTI_OK;
    });
}

// Rank r's inputs, one after the other, are what goes to outputs[r]: one call for all of them.
WorkPtr TuttiBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &opts)
{
    Tensors all;

    TORCH_CHECK(outputs.size() == static_cast<size_t>(size_),
                "tutti: all_gather_coalesced: ", outputs.size(), " lists of outputs for ", size_,
                " ranks");
    for (const Tensors &list : outputs) {
        check_pairs("all_gather_coalesced", list, inputs);
        for (size_t i = 0; i < list.size(); i++) {
            check_same_type("all_gather_coalesced", list[i], inputs[i]);
            TORCH_CHECK(list[i].numel() == inputs[i].numel(),
                        "tutti: all_gather_coalesced: ", inputs[i].numel(), " elements given, ",
                        list[i].numel(), " expected");
        }
        all.insert(all.end(), list.begin(), list.end());
    }
    return run(OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", opts, inputs, all,
               [=, from = inputs](tutti_group *group) {
                   Packed src(from), dst(all);

                   src.pack();
                   TUTTI_TRY(
                       tutti_all_gather(group, src.const_buf(BYTES), dst.buf(BYTES), nullptr));
                   dst.unpack();
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                      const c10d::AllgatherOptions &opts)
{
    const char *call = "all_gather_single_coalesced";

    check_pairs(call, outputs, inputs);
    for (size_t i = 0; i < inputs.size(); i++) {
        check_same_type(call, outputs[i], inputs[i]);
        TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_, "tutti: ", call, ": output ",
                    i, " has ", outputs[i].numel(), " elements, expected ",
                    inputs[i].numel() * size_);
    }
    return run(op_type::ALLGATHER_INTO_TENSOR_COALESCED, "tutti:all_gather_single_coalesced", opts,
               inputs, outputs, [to = outputs, from = inputs](tutti_group *group) {
                   for (size_t i = 0; i < from.size(); i++) {
                       const at::Tensor src = in_order(from[i]), dst = in_order(to[i]);
                       const Wire wire = wire_of(src.scalar_type());

                       TUTTI_TRY(tutti_all_gather(group, const_buf_of(src, wire), buf_of(dst, wire),
                                                  nullptr));
                       put_back(dst, to[i]);
                   }
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
    const at::Tensor input = only_tensor("gather", inputs);
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = rank_ == root;
    const Wire wire = wire_of(input.scalar_type());
    Tensors list;

    check_root("gather", opts.rootRank);
    if (is_root) {
        list = only_list("gather", outputs, size_, input);
        check_equal("gather", list, input);
        check_written("gather", list);
    } else {
        TORCH_CHECK(outputs.empty() || outputs[0].empty(),
                    "tutti: gather: outputs on a rank that is not the root");
    }
    return run(OpType::GATHER, "tutti:gather", opts, input, list, [=](tutti_group *group) {
        const at::Tensor src = in_order(input);
        Packed dst(list);

        TUTTI_TRY(tutti_gather(group, const_buf_of(src, wire),
                               is_root ? dst.buf(wire) : tutti_buf{}, root, nullptr));
        dst.unpack();
        return TUTTI_OK;
    });
}

WorkPtr TuttiBackend::scatter(Tensors &outputs, TensorLists &inputs,
                              const c10d::ScatterOptions &opts)
{
    const at::Tensor output = only_tensor("scatter", outputs);
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = rank_ == root;
    const Wire wire = wire_of(output.scalar_type());
    Tensors list;

    check_root("scatter", opts.rootRank);
    check_written("scatter", output);
    if (is_root) {
        list = only_list("scatter", inputs, size_, output);
        check_equal("scatter", list, output);
    } else {
        TORCH_CHECK(inputs.empty() || inputs[0].empty(),
                    "tutti: scatter: inputs on a rank that is not the root");
    }
    return run(OpType::SCATTER, "tutti:scatter", opts, list, {output}, [=](tutti_group *group) {
        const at::Tensor dst = in_order(output);
        Packed src(list);

        src.pack();
        TUTTI_TRY(tutti_scatter(group, is_root ? src.const_buf(wire) : tutti_const_buf{},
                                buf_of(dst, wire), root, nullptr));
        put_back(dst, output);
        return TUTTI_OK;
    });
}

namespace
{

// Parts of different sizes: a reduction to each rank.
tutti_status reduce_each(tutti_group *group, const Packed &src, const Tensors &list,
                         const at::Tensor &dst, const Reduction &r, int rank)
{
    size_t at = 0;

    for (size_t to = 0; to < list.size(); to++) {
        const size_t count = static_cast<size_t>(list[to].numel()) * r.wire.per_element;
        const tutti_const_buf part = TUTTI_CONST_BUF(src.p() + at, count, r.wire.dtype);
        const bool own = static_cast<int>(to) == rank;

        const tutti_call call =
            call_of(TUTTI_CALL_REDUCE, r, part, own ? buf_of(dst, r.wire) : tutti_buf{},
                    static_cast<int>(to));

        TUTTI_TRY(tutti_group_call(group, &call, nullptr));
        at += bytes_of(list[to]);
    }
    return TUTTI_OK;
}

} // namespace

WorkPtr TuttiBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                     const c10d::ReduceScatterOptions &opts)
{
    const at::Tensor output = only_tensor("reduce_scatter", outputs);
    const Tensors list = only_list("reduce_scatter", inputs, size_, output);
    const Reduction r = reduction_of("reduce_scatter", output.scalar_type(), opts.reduceOp);
    const int rank = rank_;

    check_written("reduce_scatter", output);
    TORCH_CHECK(list[rank].numel() == output.numel(), "tutti: reduce_scatter: ", list[rank].numel(),
                " elements for this rank and an output of ", output.numel());
    return run(OpType::REDUCE_SCATTER, "tutti:reduce_scatter", opts, list, {output},
               [=](tutti_group *group) {
                   const at::Tensor dst = in_order(output);
                   Packed src(list);
                   const tutti_call call = call_of(TUTTI_CALL_REDUCE_SCATTER, r,
                                                   src.const_buf(r.wire), buf_of(dst, r.wire));

                   src.pack();
                   if (same_sizes(list))
                       TUTTI_TRY(tutti_group_call(group, &call, nullptr));
                   else
                       TUTTI_TRY(reduce_each(group, src, list, dst, r, rank));
                   put_back(dst, output);
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                      const c10d::ReduceScatterOptions &opts)
{
    const char *call = "reduce_scatter_single_coalesced";
    const c10d::ReduceOp op = opts.reduceOp;

    check_pairs(call, outputs, inputs);
    for (size_t i = 0; i < inputs.size(); i++) {
        check_same_type(call, outputs[i], inputs[i]);
        reduction_of(call, inputs[i].scalar_type(), op);
        TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_, "tutti: ", call, ": input ", i,
                    " has ", inputs[i].numel(), " elements, expected ", outputs[i].numel() * size_);
    }
    return run(op_type::REDUCE_SCATTER_TENSOR_COALESCED, "tutti:reduce_scatter_single_coalesced",
               opts, inputs, outputs, [=, to = outputs, from = inputs](tutti_group *group) {
                   for (size_t i = 0; i < from.size(); i++) {
                       const Reduction r = reduction_of(call, from[i].scalar_type(), op);
                       const at::Tensor src = in_order(from[i]), dst = in_order(to[i]);
                       const tutti_call reduce =
                           call_of(TUTTI_CALL_REDUCE_SCATTER, r, const_buf_of(src, r.wire),
                                   buf_of(dst, r.wire));

                       TUTTI_TRY(tutti_group_call(group, &reduce, nullptr));
                       put_back(dst, to[i]);
                   }
                   return TUTTI_OK;
               });
}

WorkPtr TuttiBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
    const char *call = "all_to_all";

    check_pairs(call, outputs, inputs);
    TORCH_CHECK(inputs.size() == static_cast<size_t>(size_), "tutti: all_to_all: lists of ",
                inputs.size(), " tensors for ", size_, " ranks");
    for (size_t r = 0; r < inputs.size(); r++) {
        check_same_type(call, inputs[r], inputs[0]);
        check_same_type(call, outputs[r], inputs[0]);
    }
    return run(OpType::ALLTOALL, "tutti:all_to_all", opts, inputs, outputs,
               [to = outputs, from = inputs](tutti_group *group) {
                   const Wire wire = wire_of(from[0].scalar_type());
                   Packed src(from), dst(to);

                   src.pack();
                   TUTTI_TRY(tutti_all_to_all_v(group, src.const_buf(wire),
                                                counts_of(from, wire).data(), dst.buf(wire),
                                                counts_of(to, wire).data(), nullptr));
                   dst.unpack();
                   return TUTTI_OK;
               });
}

namespace
{

// The indices and values of all ranks, one after the other.
tutti_status gather_sparse(tutti_group *group, const at::Tensor &own, int64_t n_all,
                           const std::vector<int64_t> &n, bool along_first, at::Tensor *all_p)
{
    /* rank by rank, entries must be adjacent: indices have them in columns */
    const at::Tensor src = (along_first ? own : own.t()).contiguous();
    const Wire wire = wire_of(src.scalar_type());
    std::vector<int64_t> shape = src.sizes().vec();
    std::vector<size_t> counts;
    size_t row = wire.per_element;

    for (size_t i = 1; i < shape.size(); i++)
        row *= static_cast<size_t>(shape[i]);
    for (const int64_t entries : n)
        counts.push_back(static_cast<size_t>(entries) * row);
    shape[0] = n_all;
    *all_p = at::empty(shape, src.options());
    TUTTI_TRY(tutti_all_gather_v(group, const_buf_of(src, wire), buf_of(*all_p, wire),
                                 counts.data(), nullptr));
    if (!along_first)
        *all_p = all_p->t();
    return TUTTI_OK;
}

// Of a sparse tensor, what all ranks learn of each other.
struct SparseHead {
    int64_t entries, length; // of its shape below
    int64_t hash;            // FNV's, of that
};

// How many of its dimensions are sparse, and their sizes.
std::vector<int64_t> shape_of(const at::Tensor &sparse)
{
    std::vector<int64_t> shape = sparse.sizes().vec();

    shape.insert(shape.begin(), sparse.sparse_dim());
    return shape;
}

int64_t hash_of(const std::vector<int64_t> &numbers)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (const int64_t number : numbers)
        hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
    return static_cast<int64_t>(hash);
}

std::string text_of_shape(const std::vector<int64_t> &shape)
{
    return c10::str(at::IntArrayRef(shape).slice(1), " (", shape[0], " sparse)");
}

// Throws on all ranks: the shapes of `heads` differ.
tutti_status refuse_shapes(tutti_group *group, const std::vector<int64_t> &shape,
                           const std::vector<SparseHead> &heads)
{
    std::vector<size_t> lengths;
    size_t all = 0, at = 0;

    for (const SparseHead &head : heads) {
        lengths.push_back(static_cast<size_t>(head.length));
        all += lengths.back();
    }
    std::vector<int64_t> shapes(all);
    TUTTI_TRY(tutti_all_gather_v(group, TUTTI_CONST_BUF(shape.data(), shape.size(), TUTTI_I64),
                                 TUTTI_BUF(shapes.data(), all, TUTTI_I64), lengths.data(),
                                 nullptr));
    const std::vector<int64_t> first(shapes.begin(), shapes.begin() + heads[0].length);
    for (size_t r = 0; r < heads.size(); at += lengths[r++]) {
        const std::vector<int64_t> other(&shapes[at], &shapes[at] + lengths[r]);

        TORCH_CHECK(other == first, "sparse tensors of different shapes: ", text_of_shape(first),
                    " on rank 0, ", text_of_shape(other), " on rank ", r);
    }
    return TUTTI_OK;
}

tutti_status sum_sparse(tutti_group *group, const at::Tensor &tensor)
{
    at::NoGradGuard no_grad;
    const at::Tensor own = tensor.coalesce();
    const std::vector<int64_t> shape = shape_of(own);
    const SparseHead head = {own._nnz(), static_cast<int64_t>(shape.size()), hash_of(shape)};
    std::vector<SparseHead> heads(static_cast<size_t>(tutti_group_size(group)));
    std::vector<int64_t> n;
    at::Tensor indices, values;
    bool same = true;
    int64_t all = 0;

    TUTTI_TRY(tutti_all_gather(group, TUTTI_CONST_BUF(&head, 3, TUTTI_I64),
                               TUTTI_BUF(heads.data(), 3 * heads.size(), TUTTI_I64), nullptr));
    for (const SparseHead &one : heads) {
        same = same && one.length == heads[0].length && one.hash == heads[0].hash;
        n.push_back(one.entries);
        all += one.entries;
    }
    if (!same)
        TUTTI_TRY(refuse_shapes(group, shape, heads));
    TUTTI_TRY(gather_sparse(group, own._indices(), all, n, false, &indices));
    TUTTI_TRY(gather_sparse(group, own._values(), all, n, true, &values));
    put_back(at::sparse_coo_tensor(indices, values, tensor.sizes()).coalesce(), tensor);
    return TUTTI_OK;
}

} // namespace

WorkPtr TuttiBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    TORCH_CHECK(tensors.size() == 1, "tutti: all_reduce: a list of ", tensors.size(),
                " sparse tensors, expected one");
    const at::Tensor tensor = tensors[0];

    TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                "tutti: all_reduce: a tensor of layout ", tensor.layout(), " on ", tensor.device(),
                "; expected a sparse one on the CPU");
    TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
                "tutti: all_reduce: sparse tensors have only ReduceOp.SUM");
    return run(op_type::_ALLREDUCE_SPARSE, "tutti:all_reduce_sparse", opts, tensors, tensors,
               [=](tutti_group *group) { return sum_sparse(group, tensor); });
}

} // namespace tutti_torch
