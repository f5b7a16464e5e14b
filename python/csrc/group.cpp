// group.cpp -- a group of the library, who keeps it alive, and its memory.   SPDX-License-Identifier: MIT
#include <Python.h>

#include "group.hpp"

#include "compatibility.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

thread_local const Group *inside = nullptr;

size_t arena_bytes()
{
    const char *text = std::getenv("TUTTI_TORCH_ARENA_MB");
    const long long mb = text ? std::atoll(text) : 1024;

    TORCH_CHECK(mb > 0 && mb < (1 << 24), "TUTTI_TORCH_ARENA_MB=", text,
                ": expected a number of mebibytes of 1 or more");
    return static_cast<size_t>(mb) << 20;
}

} // namespace

WithoutPython::WithoutPython()
    : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr)
{
}

WithoutPython::~WithoutPython()
{
    if (state_)
        PyEval_RestoreThread(static_cast<PyThreadState *>(state_));
}

void throw_status(tutti_status status, const std::string &text)
{
    /* programs look for these words in Gloo's time-outs */
    const char *prefix = status == TUTTI_ERR_TIMEOUT ? "tutti: Timed out - " : "tutti: ";

    if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
        C10_THROW_ERROR(TUTTI_TORCH_GROUP_ERROR, prefix + text);
    TORCH_CHECK(false, "tutti: ", text);
    __builtin_unreachable();
}

void throw_status(tutti_status status)
{
    throw_status(status, tutti_last_error());
}

int limit_of(std::chrono::milliseconds timeout)
{
    return static_cast<int>(
        std::min<long long>(std::max<long long>(timeout.count(), 1), INT32_MAX));
}

bool Group::is_busy()
{
    const std::lock_guard<std::mutex> lock(mutex_);

    drop_done();
    return *queued > 0 || !adopted_.empty();
}

void Group::adopt(tutti_work *handle, at::Tensor buffer)
{
    const std::lock_guard<std::mutex> lock(mutex_);

    drop_done();
    adopted_.emplace_back(handle, std::move(buffer));
}

void Group::drop_done()
{
    const auto rest = std::partition(adopted_.begin(), adopted_.end(), [](const auto &message) {
        return !tutti_work_done(message.first);
    });

    for (auto message = rest; message != adopted_.end(); ++message)
        tutti_work_release(message->first);
    adopted_.erase(rest, adopted_.end());
}

namespace
{

void leave(tutti_group *group, std::vector<std::pair<tutti_work *, at::Tensor>> messages)
{
    for (auto &message : messages)
        if (tutti_work_wait(message.first) != TUTTI_OK)
            continue; // the group has failed; nobody asks
    tutti_group_free(group);
}

} // namespace

// The last reference may go on the group's own communication thread, in a callback: that thread cannot wait for its own end.
Group::~Group()
{
    if (is_inside()) {
        std::thread(leave, group_, std::move(adopted_)).detach();
    } else {
        const WithoutPython unlocked;
        leave(group_, std::move(adopted_));
    }
}

Group::Inside::Inside(const Group *group) : outer_(inside)
{
    inside = group;
}

Group::Inside::~Inside()
{
    inside = outer_;
}

bool Group::is_inside() const
{
    return inside == this;
}

Arena::Arena(std::shared_ptr<Group> group) : group_(std::move(group))
{
    const size_t bytes = arena_bytes();
    const WithoutPython unlocked;

    check(tutti_pool_new(&pool_, group_->get(), bytes)); // pages are taken when they are first used
}

Arena::~Arena()
{
    tutti_pool_free(pool_); // before the group
}

at::Tensor Arena::take(size_t bytes, int64_t count, const at::TensorOptions &options)
{
    void *piece = tutti_pool_alloc(pool_, std::max(bytes, size_t(1)));

    if (!piece)
        return at::Tensor();
    return at::from_blob(
        piece, {count},
        [self = shared_from_this()](void *p) { tutti_pool_release(self->pool_, p); }, options);
}

} // namespace tutti_torch
