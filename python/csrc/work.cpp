// work.cpp -- one call, as c10d waits for it.   SPDX-License-Identifier: MIT
#include "work.hpp"

#include "types.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace tutti_torch
{

std::exception_ptr exception_of(tutti_status status, const std::string &text)
{
    try {
        throw_status(status, text);
    } catch (...) {
        return std::current_exception();
    }
}

tutti_call queued_call(const Call &call, tutti_status (*function)(void *arg),
                       void (*drop)(void *arg), void *arg)
{
    tutti_call queued = {};

    queued.kind = TUTTI_CALL_FUNCTION;
    queued.timeout_ms = call.timeout.count() > 0 ? limit_of(call.timeout) : 0;
    queued.function = function;
    queued.drop = drop;
    queued.arg = arg;
    return queued;
}

tutti_status run_body(Group &group, const Call &call, const Body &body)
{
    const Group::Inside mark(&group);
    std::string why;

    try {
        return body(group.get());
    } catch (const c10::Error &error) {
        why = error.what_without_backtrace();
    } catch (const std::exception &error) {
        why = error.what();
    }
    why = std::string(call.name()) + ": " + why;
    group.abort(why);
    return tutti_fail(TUTTI_ERR_ABORTED, "%s", why.c_str());
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
    std::vector<std::function<void()>> then;
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (is_done())
            return;
        error_ = std::move(error);
        done_.store(true, std::memory_order_release);
        future = future_;
        then.swap(then_);
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
    for (const auto &function : then)
        function();
}

void TuttiWork::when_done(std::function<void()> then)
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (!is_done()) {
            then_.push_back(std::move(then));
            return;
        }
    }
    then();
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
    const tutti_call queued = queued_call(work->call_, call, drop, work.get());
    check(tutti_group_call(group->get(), &queued, &work->handle_));
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

} // namespace tutti_torch
