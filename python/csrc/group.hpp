// group.hpp -- a group of the library, and who keeps it alive.   SPDX-License-Identifier: MIT
//
// The backend, tensors in the group's memory, and sends and receives in progress share it. The group is left when the last
// of them is gone; calls that wait never do so with Python's lock.
#pragma once

#include "hooks.hpp"

#include <tutti/call.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace tutti_torch
{

// Gives Python's lock back while this thread waits in the library, if it holds it.
class WithoutPython
{
  public:
    WithoutPython();
    ~WithoutPython();
    WithoutPython(const WithoutPython &) = delete;
    WithoutPython &operator=(const WithoutPython &) = delete;

  private:
    void *state_; // NULL: this thread did not hold it
};

// Throws what `status` says with the thread's message: DistBackendError (from 2.1 on) if the group is lost, else RuntimeError.
[[noreturn]] void throw_status(tutti_status status);
[[noreturn]] void throw_status(tutti_status status, const std::string &text);

inline void check(tutti_status status)
{
    if (__builtin_expect(status != TUTTI_OK, 0))
        throw_status(status);
}

// Milliseconds as the library takes them.
int limit_of(std::chrono::milliseconds timeout);
// The same, for comparing with times of clocks, whose finer units a longer one would overflow.
inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout)
{
    return std::chrono::milliseconds(limit_of(timeout));
}

// One that nobody waits for.
struct Message {
    tutti_work *handle;
    at::Tensor buffer, target;
};

class Group
{
  public:
    // Where its ranks, or those of the group that it was made from, first met.
    enum class Origin { store, reconfigure };

    Group(tutti_group *group, std::shared_ptr<Hooks> hooks, Origin from)
        : origin(from), hooks_(std::move(hooks)), group_(group)
    {
    }
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    tutti_group *get() const
    {
        return group_;
    }
    const Origin origin;
    std::mutex splitting; // the library makes one group from this one at a time
    // Tells all ranks why this one gives up. The first failure that is known here, of any kind, runs the hooks.
    void abort(const std::string &why);
    bool is_aborted() const
    {
        return aborted_;
    }
    void note(tutti_status status) const;
    // Collectives that are not yet done; a work's own reference, since the group may end in its last steps.
    const std::shared_ptr<std::atomic<int>> queued = std::make_shared<std::atomic<int>>(0);
    bool is_busy();

    // Keeps the buffer of a message that nobody waits for, until it is done; then what `buffer` received goes to `target`, if that
    // is defined. Takes over `handle`.
    void adopt(tutti_work *handle, at::Tensor buffer, at::Tensor target);
    // Ends such messages that are done.
    void tidy();

    // Marks this thread as the one on which a queued call of this group runs.
    class Inside
    {
      public:
        explicit Inside(const Group *group);
        ~Inside();

      private:
        const Group *outer_;
    };
    // True in a callback of a future of this group, or in whatever else a queued call of it runs.
    bool is_inside() const;

  private:
    void run_hooks_once() const;

    const std::shared_ptr<Hooks> hooks_;
    mutable std::atomic<bool> has_run_hooks_{false};
    std::atomic<bool> aborted_{false};
    tutti_group *group_;
    std::mutex mutex_; // of adopted_
    std::vector<Message> adopted_;
    std::atomic<bool> has_adopted_{false}; // any, so far
};

// Memory that peers read directly, of which tensors take pieces without asking the other ranks. All ranks reserve it when the
// first of them is needed.
class Pool : public std::enable_shared_from_this<Pool>
{
  public:
    // Collective over the group.
    explicit Pool(std::shared_ptr<Group> group);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // A tensor of one dimension; not defined if there is no room for it.
    at::Tensor take(size_t bytes, int64_t count, const at::TensorOptions &options);

  private:
    std::shared_ptr<Group> group_;
    tutti_pool *pool_ = nullptr;
};

} // namespace tutti_torch
