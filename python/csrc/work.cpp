// work.cpp -- one call, as c10d waits for it.   SPDX-License-Identifier: MIT
#include "work.hpp"

#include "types.hpp"

#include <thread>

#include <ATen/core/ivalue.h>
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

tutti_status run_guarded(const Group &group, const Call &call, const Body &body,
                         std::exception_ptr *thrown_p)
{
    std::string why;

    try {
        return body(group.get());
    } catch (const c10::Error &error) {
        why = error.what_without_backtrace();
        *thrown_p = std::current_exception();
    } catch (const std::exception &error) {
        why = error.what();
        *thrown_p = std::current_exception();
    }
    tutti_group_abort(group.get(), "%s: %s", call.name(), why.c_str());
    return tutti_fail(TUTTI_ERR_ABORTED, "%s: %s", call.name(), why.c_str());
}

} // namespace

tutti_status run_body(const Group &group, const Call &call, const Body &body,
                      std::chrono::milliseconds group_timeout, std::exception_ptr *thrown_p)
{
    const Group::Inside mark(&group);
    const bool own_limit = call.timeout.count() > 0 && call.timeout != group_timeout;
    tutti_status status;

    if (!own_limit)
        return run_guarded(group, call, body, thrown_p);
    TUTTI_TRY(tutti_group_set_timeout(group.get(), limit_of(call.timeout)));
    status = run_guarded(group, call, body, thrown_p);
    if (tutti_group_set_timeout(group.get(), limit_of(group_timeout)) != TUTTI_OK)
        return status; // not possible: both limits are positive
    return status;
}

TuttiWork::TuttiWork(int rank, const Call &call, Tensors outputs)
    : Work(rank, call.type, call.title), call_(call), outputs_(std::move(outputs))
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

void TuttiWork::finish_now()
{
    complete(nullptr);
}

// ---- Collectives -----------------------------------------------------------------------------------

QueuedWork::QueuedWork(int rank, const Call &call, Tensors outputs, std::shared_ptr<Group> group,
                       std::chrono::milliseconds group_timeout, Body body)
    : TuttiWork(rank, call, std::move(outputs)), runs_in_(group.get()), queued_(group->queued),
      group_(group), group_timeout_(group_timeout), body_(std::move(body))
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
    std::exception_ptr thrown;
    const tutti_status status =
        run_body(*work->runs_in_, work->call_, work->body_, work->group_timeout_, &thrown);

    const std::string message = status == TUTTI_OK ? "" : tutti_last_error();
    const Group::Inside mark(work->runs_in_); // for callbacks, and for what ends with the body

    work->body_ = nullptr; // the inputs are no longer needed
    if (status != TUTTI_OK && !thrown)
        thrown = exception_of(status, message);
    work->complete(thrown);
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
    : TuttiWork(rank, call, target.defined() ? Tensors{target} : Tensors{}),
      group_(std::move(group)), handle_(handle), buffer_(std::move(buffer)),
      target_(std::move(target))
{
}

// A message that nobody waited for still uses its buffer; to wait here might wait for a rank that waits for this one.
MessageWork::~MessageWork()
{
    if (handle_)
        group_->adopt(handle_, buffer_);
}

tutti_work *MessageWork::reference()
{
    const std::lock_guard<std::mutex> lock(settling_);

    return settled_ ? nullptr : tutti_work_retain(handle_);
}

// Once, by the first thread that sees the message done.
void MessageWork::settle(tutti_status status)
{
    std::shared_ptr<Group> group;
    std::exception_ptr error;
    const std::string text = status == TUTTI_OK ? "" : tutti_last_error();
    {
        const std::lock_guard<std::mutex> lock(settling_);

        if (settled_)
            return;
        settled_ = true;
        if (status != TUTTI_OK)
            error = exception_of(status, text);
        else if (target_.defined())
            put_back(buffer_, target_);
        if (call_.type == c10d::OpType::RECVANYSOURCE)
            source_ = tutti_work_source(handle_);
        tutti_work_release(handle_);
        handle_ = nullptr;
        group.swap(group_);
    }
    complete(error);
}

void MessageWork::look()
{
    tutti_work *work = reference();

    if (!work)
        return;
    if (tutti_work_done(work))
        settle(tutti_work_wait(work));
    else
        tutti_work_release(work);
}

void MessageWork::await(std::chrono::milliseconds timeout)
{
    const WithoutPython unlocked;
    tutti_work *work = reference();
    tutti_status status;

    if (!work)
        return;
    if (timeout.count() <= 0) {
        settle(tutti_work_wait(work));
        return;
    }
    status = tutti_work_wait_for(work, limit_of(timeout));
    if (status == TUTTI_ERR_TIMEOUT) {
        const std::string text = tutti_last_error();
        const bool done = tutti_work_done(work);

        tutti_work_release(work);
        if (!done)
            throw_status(TUTTI_ERR_TIMEOUT, text);
    }
    settle(status);
}

int MessageWork::sourceRank() const
{
    TORCH_CHECK(call_.type == c10d::OpType::RECVANYSOURCE, "tutti: ", call_.name(),
                " has no source rank: it is for a receive from any rank");
    TORCH_CHECK(is_done(), "tutti: ", call_.name(), ": the source rank is read before wait()");
    return source_;
}

// The library calls nothing back when a message is done, so a thread waits for it.
c10::intrusive_ptr<c10::ivalue::Future> MessageWork::getFuture()
{
    auto future = TuttiWork::getFuture();
    bool start = false;
    {
        const std::lock_guard<std::mutex> lock(settling_);

        start = !settled_ && !has_waiter_;
        has_waiter_ = true;
    }
    if (start) {
        auto self = c10::intrusive_ptr<MessageWork>::reclaim_copy(this);

        std::thread([self] { self->await(kNoTimeout); }).detach();
    }
    return future;
}

// ---- Several -----------------------------------------------------------------------------------------

WorkList::WorkList(int rank, const Call &call, Tensors outputs,
                   std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : TuttiWork(rank, call, std::move(outputs)), works_(std::move(works))
{
}

bool WorkList::wait(std::chrono::milliseconds timeout)
{
    await(timeout);
    return TuttiWork::wait(timeout);
}

void WorkList::await(std::chrono::milliseconds timeout)
{
    if (is_done())
        return;
    for (const auto &work : works_)
        work->wait(timeout);
    complete(nullptr);
}

bool WorkList::isCompleted()
{
    for (const auto &work : works_)
        if (!work->isCompleted())
            return false;
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkList::getFuture()
{
    auto future = TuttiWork::getFuture();

    if (!is_done()) {
        auto self = c10::intrusive_ptr<WorkList>::reclaim_copy(this);

        std::thread([self] {
            try {
                self->await(kNoTimeout);
            } catch (...) {
                self->complete(std::current_exception());
            }
        }).detach();
    }
    return future;
}

} // namespace tutti_torch
