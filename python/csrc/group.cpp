// group.cpp -- a group of the library, who keeps it alive, and its memory.   SPDX-License-Identifier: MIT
#include <Python.h>

#include "group.hpp"

#include "compatibility.hpp"
#include "types.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>

#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

thread_local const Group *inside = nullptr;

size_t pool_bytes()
{
    const char *text = std::getenv("TUTTI_TORCH_POOL_MB");
    const long long mb = text ? std::atoll(text) : 1024;

    TORCH_CHECK(mb > 0 && mb < (1 << 24), "TUTTI_TORCH_POOL_MB=", text,
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

namespace
{

// Waits for a message, which may be long done. That of a failed group is nobody's concern.
void finish(Message &message)
{
    try {
        if (tutti_work_wait(message.handle) == TUTTI_OK && message.target.defined())
            put_back(message.buffer, message.target);
    } catch (const std::exception &error) {
        TORCH_WARN("tutti: recv: a message that nobody waited for is lost: ", error.what());
    }
}

} // namespace

void Hooks::add(int64_t id, Hook hook)
{
    auto shared = std::make_shared<Hook>(std::move(hook));
    const std::lock_guard<std::mutex> lock(mutex_);

    hooks_[id].swap(shared);
}

void Hooks::remove(int64_t id)
{
    std::shared_ptr<Hook> removed; // freed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = hooks_.find(id);

    if (found == hooks_.end())
        return;
    removed.swap(found->second);
    hooks_.erase(found);
}

void Hooks::run()
{
    std::vector<std::shared_ptr<Hook>> hooks;
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        for (const auto &entry : hooks_)
            hooks.push_back(entry.second);
    }
    for (const auto &hook : hooks) {
        try {
            (*hook)();
        } catch (const std::exception &error) {
            TORCH_WARN("tutti: an abort hook failed: ", error.what());
        }
    }
}

void Group::run_hooks_once() const
{
    if (!has_run_hooks_.exchange(true))
        hooks_->run();
}

void Group::abort(const std::string &why)
{
    run_hooks_once();
    aborted_ = true;
    tutti_group_abort(group_, "%s", why.c_str());
}

void Group::note(tutti_status status) const
{
    if (__builtin_expect(status != TUTTI_OK, 0) && tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
        run_hooks_once();
}

bool Group::is_busy()
{
    tidy();
    const std::lock_guard<std::mutex> lock(mutex_);

    return *queued > 0 || !adopted_.empty();
}

void Group::adopt(tutti_work *handle, at::Tensor buffer, at::Tensor target)
{
    tidy();
    const std::lock_guard<std::mutex> lock(mutex_);

    has_adopted_ = true;
    adopted_.push_back({handle, std::move(buffer), std::move(target)});
}

// In the order in which they were adopted. The end of a tensor may run anything, so it is outside the lock.
void Group::tidy()
{
    std::vector<Message> done;

    if (!has_adopted_)
        return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto rest =
            std::stable_partition(adopted_.begin(), adopted_.end(), [](const Message &message) {
                return !tutti_work_done(message.handle);
            });

        std::move(rest, adopted_.end(), std::back_inserter(done));
        adopted_.erase(rest, adopted_.end());
    }
    for (Message &message : done)
        finish(message);
}

namespace
{

void leave(tutti_group *group, std::vector<Message> messages)
{
    for (Message &message : messages)
        finish(message);
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

Pool::Pool(std::shared_ptr<Group> group) : group_(std::move(group))
{
    const size_t bytes = pool_bytes();
    const WithoutPython unlocked;

    check(tutti_pool_new(&pool_, group_->get(), bytes)); // pages are taken when they are first used
}

Pool::~Pool()
{
    tutti_pool_free(pool_); // before the group
}

at::Tensor Pool::take(size_t bytes, int64_t count, const at::TensorOptions &options)
{
    void *piece = tutti_pool_alloc(pool_, std::max(bytes, size_t(1)));

    if (!piece)
        return at::Tensor();
    return at::from_blob(
        piece, {count},
        [self = shared_from_this()](void *p) { tutti_pool_release(self->pool_, p); }, options);
}

} // namespace tutti_torch
