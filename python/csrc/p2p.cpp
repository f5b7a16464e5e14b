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
    return noted(c10::make_intrusive<MessageWork>(rank_, call, group, handle, flat, at::Tensor()));
}

WorkPtr TuttiBackend::receive(Tensors &tensors, int from, int tag, const Call &call)
{
    const at::Tensor target = only_tensor(call.name(), tensors), flat = in_order(target);
    const std::shared_ptr<Group> group = this->group();
    tutti_work *handle = nullptr;

    check(tutti_recv(group->get(), buf_of(flat, wire_of(flat.scalar_type())), from, tag, &handle));
    return noted(c10::make_intrusive<MessageWork>(rank_, call, group, handle, flat, target));
}

WorkPtr TuttiBackend::recv(Tensors &tensors, int from, int tag)
{
    return receive(tensors, from, tag,
                   {OpType::RECV, "tutti:recv", sequence_++, c10d::kUnsetTimeout});
}

WorkPtr TuttiBackend::recvAnysource(Tensors &tensors, int tag)
{
    return receive(tensors, TUTTI_ANY_RANK, tag,
                   {OpType::RECVANYSOURCE, "tutti:recv", sequence_++, c10d::kUnsetTimeout});
}

// Each call is begun when it is made: none of them waits for another, so nothing can hang.
void TuttiBackend::startCoalescing()
{
    TORCH_CHECK(!coalescing_, "tutti: startCoalescing twice");
    coalesced_.clear();
    coalescing_ = true;
}

WorkPtr TuttiBackend::endCoalescing()
{
    Tensors outputs;

    TORCH_CHECK(coalescing_, "tutti: endCoalescing without startCoalescing");
    coalescing_ = false;
    return c10::make_intrusive<WorkList>(
        rank_, Call{op_type::COALESCED, "tutti:coalesced", sequence_.load(), c10d::kUnsetTimeout},
        outputs, std::move(coalesced_));
}

void TuttiBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    const std::shared_ptr<Group> group = this->group();
    const int ms = opts.timeout.count() > 0 ? limit_of(opts.timeout) : 0;
    const WithoutPython unlocked;

    check(tutti_monitored_barrier(group->get(), ms, wait_all_ranks));
}

} // namespace tutti_torch
