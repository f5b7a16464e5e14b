// backend.hpp -- the backend "tutti" of torch.distributed.   SPDX-License-Identifier: MIT
//
//     backend.cpp       making it, its end, and how a call is run
//     join.cpp          how the ranks of a group come together
//     collectives.cpp   calls on single tensors
//     lists.cpp         calls on lists of tensors, and sparse ones
//     reconfigure.cpp   other members for a backend that stays
//     p2p.cpp           sends, receives, what is between startCoalescing and endCoalescing, the monitored barrier
//     messages.cpp      how the latter are waited for; work.cpp: how collectives are
//
// A call that its caller waits for at once (asyncOp false) runs in the calling thread. Others run on the group's
// communication thread, in call order; callbacks of their futures run there too, and collectives that these call run at
// once. So all ranks keep the same order, whatever hooks do.
#pragma once

#include "compatibility.hpp"
#include "group.hpp"
#include "join.hpp"
#include "reconfigure.hpp"
#include "types.hpp"
#include "work.hpp"

#include <atomic>
#include <map>
#include <thread>

namespace tutti_torch
{

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using TensorLists = std::vector<Tensors>;

class TuttiBackend : public Backend
{
  public:
    struct Options : Backend::Options {
        explicit Options(std::chrono::milliseconds limit) : Backend::Options("tutti", limit)
        {
        }
        c10::intrusive_ptr<Backend::Options> clone() const
        {
            return c10::make_intrusive<Options>(*this);
        }
    };

    // `group`: NULL for one that only waits for reconfigure(). `hooks`: those that were given to the group.
    TuttiBackend(const StorePtr &store, const Place &place, std::shared_ptr<Group> group,
                 std::shared_ptr<Hooks> hooks);
    // Of a program's default group, until its shutdown: others are made from it. The last one if there are several.
    static void become_default(TuttiBackend *backend);
    // NULL: there is none. Throws if it has no members at the moment.
    static std::shared_ptr<Group> group_of_default();

    const std::string getBackendName() const override
    {
        return "tutti";
    }
    c10::intrusive_ptr<Backend::Options> getBackendOptions();
    bool supportsSplitting() const
    {
        return true;
    }
    c10::intrusive_ptr<Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                      const c10::intrusive_ptr<Backend::Options> &opts);
    c10::intrusive_ptr<Backend> merge(const StorePtr &store,
                                      const c10::intrusive_ptr<Backend::Options> &opts,
                                      const int &rank, const int &size);
    void setTimeout(std::chrono::milliseconds timeout);
    void setSequenceNumberForGroup() // all ranks begin with 0
    {
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }
    ErrorType getError();
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override
    {
        return true;
    }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    // Blocks until all members are there. A set of handles gets its ranks in sorted order, which is that of the ranks with which
    // the communicators were made.
    WorkPtr reconfigure(const c10d::ReconfigureOptions &opts) override;
#endif
    // Hooks that the program registers are always called. But PyTorch registers its flight recorder with every group whose
    // backend says that it has them, and that one writes a trace, for seconds, before the program learns of a failure.
    bool supportsAbortHooks() const
    {
        return wants_trace_of_failures();
    }
    void registerAbortHook(int64_t id, std::function<void()> hook)
    {
        hooks_->add(id, std::move(hook));
    }
    void unregisterAbortHook(int64_t id)
    {
        hooks_->remove(id);
    }
    void abort();
    void abort_with(const std::string &why);
    void shutdown();
    // At the end of the process: leaves all groups that are still there, or tells their other ranks why this one failed.
    static void leave_all(const std::string &why);
    ~TuttiBackend() override;

    bool supportsTensorAlloc(c10::DeviceIndex)
    {
        return getSize() > 1;
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options = {});
    std::string transport();

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts);
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts);
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input,
                               const c10d::GatherOptions &opts);
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts);
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_rows,
                          std::vector<int64_t> &input_rows,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;

    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void startCoalescing();
    WorkPtr endCoalescing();
    void endCoalescing(std::vector<WorkPtr> &) // 1.13: the caller has the works, and waits for each
    {
        endCoalescing();
    }

  private:
    // Throws after shutdown(), and before the first reconfigure().
    std::shared_ptr<Group> group();
    // Reserved when it is first asked for, by all ranks.
    std::shared_ptr<Pool> pool();
    static bool wants_trace_of_failures();
    MeetingPlace &meeting_place() const;
    void refuse_inside() const;
    void leave_members(int64_t uuid);
    void check_root(const char *call, int64_t root) const;
    // `inputs` are for profiles alone.
    template <class Options>
    WorkPtr run(c10d::OpType type, const char *title, const Options &opts, at::TensorList inputs,
                Tensors outputs, Body body)
    {
        return run({type, title, sequence_++, opts.timeout}, is_async_of(opts, 0), inputs,
                   std::move(outputs), std::move(body));
    }
    WorkPtr run(const Call &call, bool is_async, at::TensorList inputs, Tensors outputs, Body body);
    WorkPtr run_here(const std::shared_ptr<Group> &group, const Call &call, at::TensorList inputs,
                     Tensors outputs, const Body &body);
    WorkPtr receive(Tensors &tensors, int from, int tag, const Call &call);
    WorkPtr begun(c10::intrusive_ptr<MessageWork> work);
    // Notes a call between startCoalescing and endCoalescing.
    WorkPtr noted(WorkPtr work);

    const StorePtr store_;
    const std::shared_ptr<Hooks> hooks_;
    std::string name_;
    mutable std::mutex mutex_; // of the members up to pool_
    std::shared_ptr<Group> group_;
    std::shared_ptr<Pool> pool_;
    std::atomic<std::chrono::milliseconds> timeout_;
    std::atomic<uint64_t> sequence_{0};
    std::string without_;                  // why there is no group
    ErrorType error_ = ErrorType::SUCCESS; // without a group
    mutable std::mutex meeting_mutex_;
    mutable std::unique_ptr<MeetingPlace> meeting_place_;
    std::mutex reserving_; // by the thread that makes pool_
    std::mutex coalescing_mutex_;
    std::atomic<size_t> coalescing_{0}; // threads of which there is a list
    std::map<std::thread::id, std::vector<WorkPtr>> coalesced_;
};

} // namespace tutti_torch
