// group_memory.cpp -- memory that PyTorch allocates itself, such as DDP's buckets, from the group.   SPDX-License-Identifier: MIT
//
// PyTorch asks one allocator for all memory of CPU tensors. This one stands before it, and asks the group of the calling thread's
// scope, if it is in one, for what is large enough that a copy less is worth it.
#include "group_memory.hpp"

#include <utility>

#include <c10/core/CPUAllocator.h>

namespace tutti_torch
{

namespace
{

constexpr size_t kLeastBytes = 64 << 10; // less costs no time to copy

thread_local TuttiBackend *scope;

class GroupMemory final : public c10::Allocator
{
  public:
    explicit GroupMemory(c10::Allocator *usual) : usual_(usual)
    {
    }

#if TUTTI_TORCH_VERSION >= 203
    c10::DataPtr allocate(size_t bytes) override
#else
    c10::DataPtr allocate(size_t bytes) const override
#endif
    {
        TuttiBackend *const backend = scope;

        if (!backend || bytes < kLeastBytes)
            return usual_->allocate(bytes);
        scope = nullptr; // the group's memory may be full: then this is asked again
        const auto back = [backend](void *) { scope = backend; };
        const std::unique_ptr<void, decltype(back)> restore(backend, back);
        auto tensor = std::make_unique<at::Tensor>(backend->allocateTensor(
            static_cast<long>(bytes), at::TensorOptions().dtype(at::kByte)));
        void *const p = tensor->data_ptr();

        return {p, tensor.release(), &drop, c10::Device(c10::kCPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return usual_->raw_deleter();
    }

#if TUTTI_TORCH_VERSION >= 203
    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        default_copy_data(to, from, bytes);
    }
#endif

  private:
    static void drop(void *tensor)
    {
        delete static_cast<at::Tensor *>(tensor);
    }

    c10::Allocator *usual_;
};

} // namespace

TuttiBackend *set_group_memory(TuttiBackend *backend)
{
    static auto *const memory = new GroupMemory(c10::GetCPUAllocator());

    if (backend && c10::GetCPUAllocator() != memory)
        c10::SetCPUAllocator(memory, UINT8_MAX);
    return std::exchange(scope, backend);
}

} // namespace tutti_torch
