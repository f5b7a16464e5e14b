// work.cpp -- one call, as c10d waits for it.   SPDX-License-Identifier: MIT
#include "work.hpp"

#include "types.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

std::exception_ptr exception_of(tutti_status status, const std::string &text)
{
    try {
        throw_status(status, text);
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace

tutti_status run_body(const Group &group, const Call &call, const Body &body)
{
    const Group::Inside mark(&group);
    const Group::Limit limit(group, call.timeout);
    std::string why;

    try {
        return body(group.get());
    } catch (const c10::Error &error) {
        why = error.what_without_backtrace();
    } catch (const std::exception &error) {
        why = error.what();
    }
    tutti_group_abort(group.get(), "%s: %s", call.name(), why.c_str());
    return tutti_fail(TUTTI_ERR_ABORTED, "%s: %s", call.name(), why.c_str());
}

// ---- Threads that wait -----------------------------------------------------------------------------

namespace
{

struct Waiter {
    std::thread thread;
    std::weak_ptr<Group> group;
    c10::weak_intrusive_ptr<c10d::Work> work;
    std::shared_ptr<std::atomic<bool>> is_over; // it may be joined at once
};

// Never freed: a thread may end after the end of main.
std::mutex &waiters_mutex = *new std::mutex;
std::vector<Waiter> &waiters = *new std::vector<Waiter>;

std::vector<Waiter> take_waiters(bool all)
{
    const std::lock_guard<std::mutex> lock(waiters_mutex);
    const auto rest = std::partition(waiters.begin(), waiters.end(), [=](const Waiter &waiter) {
        return !all && !waiter.is_over->load();
    });
    std::vector<Waiter> taken(std::make_move_iterator(rest),
                              std::make_move_iterator(waiters.end()));

    waiters.erase(rest, waiters.end());
    return taken;
}

void join(std::vector<Waiter> &some)
{
    const WithoutPython unlocked;

    for (Waiter &waiter : some)
        waiter.thread.join();
}

} // namespace

void end_background(const std::string &why)
{
    std::vector<Waiter> all = take_waiters(true);

    for (const Waiter &waiter : all) {
        const auto work = waiter.work.lock();
        const std::shared_ptr<Group> group = waiter.group.lock();

        if (work && group && !work->isCompleted())
            tutti_group_abort(group->get(), "%s", why.c_str());
    }
    join(all);
}

void TuttiWork::wait_in_background(std::weak_ptr<Group> group)
{
    auto self = c10::intrusive_ptr<TuttiWork>::reclaim_copy(this);
    auto is_over = std::make_shared<std::atomic<bool>>(false);
    std::vector<Waiter> over = take_waiters(false);
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (has_waiter_ || is_done())
            self.reset();
        has_waiter_ = true;
    }
    join(over);
    if (!self)
        return;
    Waiter waiter = {{}, std::move(group), c10::weak_intrusive_ptr<c10d::Work>(self), is_over};
    waiter.thread = std::thread([self = std::move(self), is_over]() mutable {
        try {
            self->await(kNoTimeout);
        } catch (...) {
            self->complete(std::current_exception());
        }
        self.reset(); // with its callbacks, which may need Python's lock
        is_over->store(true);
    });
    const std::lock_guard<std::mutex> lock(waiters_mutex);
    waiters.push_back(std::move(waiter));
}

// ---- What is the same once a call is done --------------------------------------------------------------

namespace
{

// A list is only made if somebody looks at it.
optional<Tensors> for_profiles(at::TensorList inputs)
{
    return at::hasCallbacks() ? optional<Tensors>(inputs.vec()) : optional<Tensors>();
}

} // namespace

TuttiWork::TuttiWork(int rank, const Call &call, at::TensorList inputs, Tensors outputs)
    : Work(rank, call.type, call.title, for_profiles(inputs)), call_(call),
      outputs_(std::move(outputs))
{
}

bool TuttiWork::isCompleted()
{
    if (!is_done())
        look();
    return is_done();
}

bool TuttiWork::isSuccess() const
{
    return is_done() && !error_;
}

std::exception_ptr TuttiWork::exception() const
{
    return is_done() ? error_ : nullptr;
}

void TuttiWork::rethrow() const
{
    if (error_)
        std::rethrow_exception(error_);
}

bool TuttiWork::wait(std::chrono::milliseconds timeout)
{
    if (!is_done())
        await(timeout);
    rethrow();
    return true;
}

void TuttiWork::abort()
{
    TORCH_CHECK(false, "tutti: one call cannot be aborted alone; abort the group");
}

Tensors TuttiWork::result()
{
    TORCH_CHECK(isCompleted(), "tutti: ", call_.name(), ": the result is read before wait()");
    return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> TuttiWork::getFuture()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    bool complete_now = false;
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (!future_) {
            future_ = c10::make_intrusive<c10::ivalue::Future>(
                c10::ListType::create(c10::TensorType::get()));
            complete_now = is_done();
        }
        future = future_;
    }
    if (complete_now && error_)
        future->setErrorIfNeeded(error_);
    else if (complete_now)
        future->markCompleted(c10::IValue(outputs_));
    return future;
}

void TuttiWork::complete(std::exception_ptr error)
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (is_done())
            return;
        error_ = std::move(error);
        done_.store(true, std::memory_order_release);
        future = future_;
    }
    cv_.notify_all();
    if (recordFunctionEndCallback_) {
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
    }
    if (future && error_)
        future->setErrorIfNeeded(error_);
    else if (future)
        future->markCompleted(c10::IValue(outputs_));
}

// With a future, the waiter goes on when the call is done, as the callbacks do; its queued function ends after them.
bool TuttiWork::await_future()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        future = future_;
    }
    if (future)
        future->wait();
    return future.defined();
}

void TuttiWork::await_done()
{
    std::unique_lock<std::mutex> lock(mutex_);

    cv_.wait(lock, [this] { return is_done(); });
}

void TuttiWork::finish_now()
{
    complete(nullptr);
}

// ---- Collectives -----------------------------------------------------------------------------------

QueuedWork::QueuedWork(int rank, const Call &call, at::TensorList inputs, Tensors outputs,
                       std::shared_ptr<Group> group, Body body)
    : TuttiWork(rank, call, inputs, std::move(outputs)), runs_in_(group.get()),
      queued_(group->queued), group_(group), in_inference_mode_(c10::InferenceMode::is_enabled()),
      body_(std::move(body))
{
}

QueuedWork::~QueuedWork()
{
    tutti_work_release(handle_);
}

void QueuedWork::submit(const c10::intrusive_ptr<QueuedWork> &work)
{
    const std::shared_ptr<Group> group = work->group_.lock();

    ++*work->queued_;
    c10::raw::intrusive_ptr::incref(work.get()); // drop gives it back
    check(tutti_group_submit(group->get(), call, drop, work.get(), &work->handle_));
}

tutti_status QueuedWork::call(void *arg)
{
    auto *work = static_cast<QueuedWork *>(arg);
    tutti_status status;
    {
        const c10::InferenceMode mode(work->in_inference_mode_);
        status = run_body(*work->runs_in_, work->call_, work->body_);
    }
    const std::string message = status == TUTTI_OK ? "" : tutti_last_error();
    const Group::Inside mark(work->runs_in_); // for callbacks, and for what ends with the body

    work->runs_in_->note(status);
    work->body_ = nullptr; // the inputs are no longer needed
    work->complete(status == TUTTI_OK ? nullptr : exception_of(status, message));
    return status == TUTTI_OK ? TUTTI_OK : tutti_fail(status, "%s", message.c_str());
}

// Also if the group died before its turn.
void QueuedWork::drop(void *arg)
{
    const Group::Inside mark(static_cast<QueuedWork *>(arg)->runs_in_); // ends after the work
    const auto work = c10::intrusive_ptr<QueuedWork>::reclaim(static_cast<QueuedWork *>(arg));

    if (!work->is_done())
        work->complete(exception_of(TUTTI_ERR_ABORTED, tutti_last_error()));
    --*work->queued_;
}

void QueuedWork::await(std::chrono::milliseconds timeout)
{
    const std::shared_ptr<Group> group = group_.lock();
    const WithoutPython unlocked;
    tutti_work *work;
    tutti_status status;

    TORCH_CHECK(!group || !group->is_inside(), "tutti: ", call_.name(),
                ": a callback waits for a call that comes after it in the group's order");
    if (timeout.count() <= 0 && await_future())
        return;
    if (!group) { // its last steps complete all works
        await_done();
        return;
    }
    work = tutti_work_retain(handle_);
    status =
        timeout.count() > 0 ? tutti_work_wait_for(work, limit_of(timeout)) : tutti_work_wait(work);
    if (status == TUTTI_ERR_TIMEOUT && timeout.count() > 0)
        tutti_work_release(work);
    if (!is_done())
        throw_status(status);
}

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
    await_done(); // the first thread may be about to complete it
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
    const Held held = hold();

    if (held.work) {
        tutti_work_release(held.work);
        wait_in_background(held.group);
    }
    return future;
}

// ---- Several -----------------------------------------------------------------------------------------

WorkList::WorkList(int rank, const Call &call, Tensors outputs, std::weak_ptr<Group> group,
                   std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : TuttiWork(rank, call, {}, std::move(outputs)), group_(std::move(group)),
      works_(std::move(works))
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
    const Clock::time_point end = Clock::now() + timeout;
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

c10::intrusive_ptr<c10::ivalue::Future> WorkList::getFuture()
{
    auto future = TuttiWork::getFuture();

    if (!isCompleted())
        wait_in_background(group_);
    return future;
}

} // namespace tutti_torch
