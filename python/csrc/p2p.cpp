// p2p.cpp -- sends and receives, several calls as one, and the monitored barrier.   SPDX-License-Identifier: MIT
#include "backend.hpp"

namespace tutti_torch
{

using c10d::OpType;

WorkPtr TuttiBackend::send(Tensors &tensors, int to, int tag)
{
    const at::Tensor flat = in_order(only_tensor("send", tensors));
    const std::shared_ptr<Group> group = this->group();
    const Call call = {OpType::SEND, "tutti:send", sequence_++, c10d::kUnsetTimeout};
    tutti_work *handle = nullptr;

    check(tutti_send(group->get(), const_buf_of(flat, wire_of(flat.scalar_type())), to, tag,
                     &handle));
    return begun(c10::make_intrusive<MessageWork>(rank_, call, group, handle, flat, at::Tensor()));
}

WorkPtr TuttiBackend::receive(Tensors &tensors, int from, int tag, const Call &call)
{
    const at::Tensor target = only_tensor(call.name(), tensors), flat = in_order(target);

    check_written(call.name(), target);
    const std::shared_ptr<Group> group = this->group();
    tutti_work *handle = nullptr;

    check(tutti_recv(group->get(), buf_of(flat, wire_of(flat.scalar_type())), from, tag, &handle));
    return begun(c10::make_intrusive<MessageWork>(rank_, call, group, handle, flat, target));
}

// A small message is on its way by now, and one that was here before its receive has been taken: their wait() has nothing to do.
WorkPtr TuttiBackend::begun(c10::intrusive_ptr<MessageWork> work)
{
    work->isCompleted();
    return noted(std::move(work));
}

WorkPtr TuttiBackend::recv(Tensors &tensors, int from, int tag)
{
    return receive(tensors, from, tag,
                   {OpType::RECV, "tutti:recv", sequence_++, c10d::kUnsetTimeout});
}

WorkPtr TuttiBackend::recvAnysource(Tensors &tensors, int tag)
{
    return receive(
        tensors, TUTTI_ANY_RANK, tag,
        {OpType::RECVANYSOURCE, "tutti:recvAnySource", sequence_++, c10d::kUnsetTimeout});
}

// Each call is begun when it is made: none of them waits for another, so nothing can hang. An exception of the program may have
// ended an earlier list of the thread without endCoalescing; that one is forgotten.
void TuttiBackend::startCoalescing()
{
    std::vector<WorkPtr> forgotten;
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);

    forgotten.swap(coalesced_[std::this_thread::get_id()]);
    coalescing_ = coalesced_.size();
}

WorkPtr TuttiBackend::endCoalescing()
{
    std::vector<WorkPtr> works;
    Tensors outputs;
    {
        const std::lock_guard<std::mutex> lock(coalescing_mutex_);
        const auto found = coalesced_.find(std::this_thread::get_id());

        TORCH_CHECK(found != coalesced_.end(), "tutti: endCoalescing without startCoalescing");
        works = std::move(found->second);
        coalesced_.erase(found);
        coalescing_ = coalesced_.size();
    }
    for (const WorkPtr &work : works) {
        const Tensors &some = static_cast<const TuttiWork &>(*work).outputs();

        outputs.insert(outputs.end(), some.begin(), some.end());
    }
    return c10::make_intrusive<WorkList>(
        rank_, Call{op_type::COALESCED, "tutti:coalesced", sequence_.load(), c10d::kUnsetTimeout},
        outputs, std::move(works));
}

WorkPtr TuttiBackend::noted(WorkPtr work)
{
    if (coalescing_ == 0)
        return work;
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    const auto found = coalesced_.find(std::this_thread::get_id());

    if (found != coalesced_.end())
        found->second.push_back(work);
    return work;
}

void TuttiBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    const std::shared_ptr<Group> group = this->group();
    // no time at all is a limit here, and -1 none
    const int ms = limit_of(opts.timeout.count() >= 0 ? opts.timeout : timeout_.load());
    const WithoutPython unlocked;

    check(tutti_monitored_barrier(group->get(), ms, wait_all_ranks));
}

} // namespace tutti_torch
