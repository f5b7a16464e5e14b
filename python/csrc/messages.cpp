// messages.cpp -- sends and receives, and several calls as one, as c10d waits for them.   SPDX-License-Identifier: MIT
#include "types.hpp"
#include "work.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>

namespace tutti_torch
{

// ---- Sends and receives ------------------------------------------------------------------------------

MessageWork::MessageWork(int rank, const Call &call, std::shared_ptr<Group> group,
                         tutti_work *handle, at::Tensor buffer, at::Tensor target)
    : TuttiWork(rank, call, target.defined() ? target : buffer,
                target.defined() ? Tensors{target} : Tensors{}),
      group_(std::move(group)), handle_(handle), buffer_(std::move(buffer)),
      target_(std::move(target))
{
}

// A message that nobody waited for still uses its buffer; to wait here might wait for a rank that waits for this one.
MessageWork::~MessageWork()
{
    if (handle_)
        group_->adopt(handle_, std::move(buffer_), std::move(target_));
}

MessageWork::Held MessageWork::hold()
{
    const std::lock_guard<std::mutex> lock(settling_);

    if (settled_)
        return {nullptr, nullptr};
    return {group_, tutti_work_retain(handle_)};
}

std::exception_ptr MessageWork::received(tutti_status status)
{
    if (status != TUTTI_OK)
        return exception_of(status, tutti_last_error());
    try {
        if (target_.defined())
            put_back(buffer_, target_);
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }
}

// Once, by the first thread that sees the message done.
void MessageWork::settle(tutti_status status)
{
    std::shared_ptr<Group> group;
    std::exception_ptr error;
    {
        const std::lock_guard<std::mutex> lock(settling_);

        if (settled_)
            return;
        error = received(status);
        if (call_.type == c10d::OpType::RECVANYSOURCE)
            source_ = tutti_work_source(handle_);
        tutti_work_release(handle_);
        handle_ = nullptr;
        settled_ = true;
        group.swap(group_);
    }
    group->note(status);
    complete(error);
}

void MessageWork::look()
{
    const Held held = hold();

    if (!held.work)
        return;
    if (tutti_work_done(held.work))
        settle(tutti_work_wait(held.work));
    else
        tutti_work_release(held.work);
}

void MessageWork::await(std::chrono::milliseconds timeout)
{
    const WithoutPython unlocked;
    const Held held = hold();
    tutti_status status;

    if (held.work && timeout.count() <= 0) {
        settle(tutti_work_wait(held.work));
    } else if (held.work) {
        status = tutti_work_wait_for(held.work, limit_of(timeout));
        if (status == TUTTI_ERR_TIMEOUT && !tutti_work_done(held.work)) {
            tutti_work_release(held.work);
            throw_status(TUTTI_ERR_TIMEOUT);
        }
        settle(status == TUTTI_ERR_TIMEOUT ? tutti_work_wait(held.work) : status);
    }
    if (!is_done()) // the first thread may be about to complete it
        await_done();
    if (held.group)
        held.group->tidy();
}

int MessageWork::sourceRank() const
{
    TORCH_CHECK(call_.type == c10d::OpType::RECVANYSOURCE, "tutti: ", call_.name(),
                " has no source rank: it is for a receive from any rank");
    TORCH_CHECK(is_done(), "tutti: ", call_.name(), ": the source rank is read before wait()");
    return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> MessageWork::getFuture()
{
    auto future = TuttiWork::getFuture();

    watch();
    return future;
}

// ---- Messages that are completed though nobody waits ---------------------------------------------------

namespace
{

using MessagePtr = c10::intrusive_ptr<MessageWork>;

// One thread, begun with the first such message. The library says when a message is done; callbacks of its future may take long,
// and may need Python's lock, so that they run here and not on a thread of the library.
class Completer
{
  public:
    void expect(const MessagePtr &work, std::weak_ptr<Group> group)
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        watched_.emplace(work.get(),
                         Watched{std::move(group), c10::weak_intrusive_ptr<MessageWork>(work)});
        if (!thread_.joinable())
            thread_ = std::thread([this] { run(); });
    }

    void forget(MessageWork *work)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        watched_.erase(work);
    }

    void take(MessagePtr work)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ready_.push_back(std::move(work));
        }
        changed_.notify_one();
    }

    void end(const std::string &why)
    {
        std::map<MessageWork *, Watched> all;
        std::thread thread;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            all = watched_;
        }
        for (const auto &entry : all) {
            const auto work = entry.second.work.lock();
            const std::shared_ptr<Group> group = entry.second.group.lock();

            if (work && group && !work->isCompleted())
                group->abort(why);
        }
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ending_ = true;
            thread.swap(thread_);
        }
        changed_.notify_one();
        if (thread.joinable())
            thread.join();
        const std::lock_guard<std::mutex> lock(mutex_);
        ending_ = false;
    }

  private:
    struct Watched {
        std::weak_ptr<Group> group;
        c10::weak_intrusive_ptr<MessageWork> work;
    };

    void run()
    {
        std::unique_lock<std::mutex> lock(mutex_);

        for (;;) {
            changed_.wait(lock,
                          [this] { return !ready_.empty() || (ending_ && watched_.empty()); });
            if (ready_.empty())
                return;
            MessagePtr work = std::move(ready_.front());
            MessageWork *const key = work.get();
            ready_.pop_front();
            lock.unlock();
            work->isCompleted(); // completes it
            work.reset();        // with its callbacks, which may need Python's lock
            lock.lock();
            watched_.erase(key);
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
    std::deque<MessagePtr> ready_;
    std::map<MessageWork *, Watched> watched_; // until their callbacks have run
    bool ending_ = false;
};

// Never freed: the library may call after the end of main.
Completer &completer = *new Completer;

void on_done(void *work)
{
    completer.take(MessagePtr::reclaim(static_cast<MessageWork *>(work)));
}

} // namespace

void MessageWork::watch()
{
    Held held;
    {
        const std::lock_guard<std::mutex> lock(settling_);

        if (settled_ || watched_)
            return;
        watched_ = true;
        held = {group_, tutti_work_retain(handle_)};
    }
    const auto self = MessagePtr::reclaim_copy(this);

    completer.expect(self, held.group);
    c10::raw::intrusive_ptr::incref(this); // on_done gives it back
    const tutti_status status = tutti_work_on_done(held.work, on_done, this);
    tutti_work_release(held.work);
    if (status == TUTTI_OK)
        return;
    c10::raw::intrusive_ptr::decref(this);
    completer.forget(this);
    throw_status(status);
}

void end_watching(const std::string &why)
{
    completer.end(why);
}

// ---- Several -----------------------------------------------------------------------------------------

WorkList::WorkList(int rank, const Call &call, Tensors outputs,
                   std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : TuttiWork(rank, call, {}, std::move(outputs)), works_(std::move(works))
{
}

std::exception_ptr WorkList::error_of_all() const
{
    for (const auto &work : works_)
        if (work->exception())
            return work->exception();
    return nullptr;
}

void WorkList::look()
{
    for (const auto &work : works_)
        if (!work->isCompleted())
            return;
    complete(error_of_all());
}

// `timeout` is that of all of them together.
void WorkList::await(std::chrono::milliseconds timeout)
{
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + limited(timeout);
    std::chrono::milliseconds left = timeout;

    for (const auto &work : works_) {
        if (timeout.count() > 0)
            left =
                std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()),
                         std::chrono::milliseconds(1));
        try {
            work->wait(left);
        } catch (...) {
            if (!work->isCompleted())
                throw;
        }
    }
    complete(error_of_all());
}

// By the last of them.
void WorkList::watch()
{
    const auto self = c10::intrusive_ptr<WorkList>::reclaim_copy(this);
    const auto left = std::make_shared<std::atomic<size_t>>(works_.size() + 1);
    const auto one_done = [self, left] {
        if (--*left == 0)
            self->complete(self->error_of_all());
    };

    if (watched_.exchange(true))
        return;
    for (const auto &work : works_) {
        auto &own = static_cast<TuttiWork &>(*work);

        own.when_done(one_done);
        own.watch();
    }
    one_done();
}

c10::intrusive_ptr<c10::ivalue::Future> WorkList::getFuture()
{
    auto future = TuttiWork::getFuture();

    watch();
    return future;
}

} // namespace tutti_torch
