// work.hpp -- one call, as c10d waits for it.   SPDX-License-Identifier: MIT
#pragma once

#include "group.hpp"

#include <atomic>
#include <functional>
#include <optional>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch
{

using Tensors = std::vector<at::Tensor>;

// What a call does, in its place in the order of the group's calls. The message of a failure is the thread's.
using Body = std::function<tutti_status(tutti_group *)>;

struct Call {
    c10d::OpType type;
    const char *title; // in profiles: "tutti:all_reduce"
    uint64_t sequence;
    std::chrono::milliseconds timeout; // the call's own; negative: the group's

    const char *name() const
    {
        return title + sizeof("tutti:") - 1;
    }
};

// As throw_status, but returned.
std::exception_ptr exception_of(tutti_status status, const std::string &text);
// `function` in its place in the order of the group's calls, under the call's own time limit.
tutti_call queued_call(const Call &call, tutti_status (*function)(void *arg),
                       void (*drop)(void *arg), void *arg);
// If `body` throws, peers would wait for its end, so then the group is aborted.
tutti_status run_body(Group &group, const Call &call, const Body &body);

// The base of both kinds: what is the same once a call is done.
class TuttiWork : public c10d::Work
{
  public:
    // `inputs`: whose shapes profiles show.
    TuttiWork(int rank, const Call &call, at::TensorList inputs, Tensors outputs);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    void synchronize() override
    {
        wait();
    }
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    Tensors result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const
    {
        return call_.sequence;
    }
    std::chrono::milliseconds getTimeout() const
    {
        return call_.timeout;
    }

    const Tensors &outputs() const
    {
        return outputs_;
    }

    // Of a call that ran in the calling thread.
    void finish_now();
    // Calls it when the work is done: now, or on the thread that completes it.
    void when_done(std::function<void()> then);
    // From now on it is completed even if nobody waits.
    virtual void watch()
    {
    }

  protected:
    // Blocks until `done_`, or throws after `timeout` (0: no limit).
    virtual void await(std::chrono::milliseconds timeout) = 0;
    // Looks without blocking, and completes the work if its call is done.
    virtual void look()
    {
    }

    // Once: records the outcome, lets waiters go on, and runs the callbacks of the future here.
    void complete(std::exception_ptr error);
    bool is_done() const
    {
        return done_.load(std::memory_order_acquire);
    }
    void rethrow() const;
    // Until another thread has completed it.
    void await_done();
    // False if nobody has asked for the future.
    bool await_future();

    const Call call_;
    Tensors outputs_;

  private:
    std::atomic<bool> done_{false};
    std::exception_ptr error_; // written before done_
    c10::intrusive_ptr<c10::ivalue::Future>
        future_;                              // made when it is first asked for; under mutex_
    std::vector<std::function<void()>> then_; // under mutex_
};

// A call that has run.
class DoneWork : public TuttiWork
{
  public:
    using TuttiWork::TuttiWork;

  protected:
    void await(std::chrono::milliseconds) override
    {
    }
};

// A collective in the group's queue.
class QueuedWork : public TuttiWork
{
  public:
    QueuedWork(int rank, const Call &call, at::TensorList inputs, Tensors outputs,
               std::shared_ptr<Group> group, Body body);
    ~QueuedWork() override;

    // Queues `work`. Throws if the group is dead.
    static void submit(const c10::intrusive_ptr<QueuedWork> &work);

  protected:
    void await(std::chrono::milliseconds timeout) override;

  private:
    static tutti_status call(void *arg);
    static void drop(void *arg);

    // The communication thread: not an owner, because the group waits for what is queued before it ends.
    Group *runs_in_;
    const std::shared_ptr<std::atomic<int>> queued_;
    std::weak_ptr<Group> group_;
    const bool in_inference_mode_;
    Body body_;
    tutti_work *handle_ = nullptr;
};

// A send or receive.
class MessageWork : public TuttiWork
{
  public:
    // Takes over `handle`. `target`: where a received message goes that `buffer` holds; not defined: nowhere else.
    MessageWork(int rank, const Call &call, std::shared_ptr<Group> group, tutti_work *handle,
                at::Tensor buffer, at::Tensor target);
    ~MessageWork() override;

    int sourceRank() const override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    // A thread completes all such messages of the process: see messages.cpp.
    void watch() override;

  protected:
    void await(std::chrono::milliseconds timeout) override;
    void look() override;

  private:
    // What a thread holds while it looks at the message, or waits for it.
    struct Held {
        std::shared_ptr<Group> group; // not before the work is given back
        tutti_work *work;             // NULL: another thread has settled it
    };
    Held hold();
    std::exception_ptr received(tutti_status status);
    void settle(tutti_status status);

    std::shared_ptr<Group> group_; // until it is done
    tutti_work *handle_;
    at::Tensor buffer_, target_;
    std::atomic<int> source_{-1};
    std::mutex settling_;
    bool settled_ = false;
    bool watched_ = false; // under settling_
};

// At the end of the process: ends the thread that completes watched messages, when all are done. Groups of those that are not are
// aborted. Without Python's lock, which callbacks may need.
void end_watching(const std::string &why);

// Several as one: what lies between startCoalescing and endCoalescing.
class WorkList : public TuttiWork
{
  public:
    WorkList(int rank, const Call &call, Tensors outputs,
             std::vector<c10::intrusive_ptr<c10d::Work>> works);

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    void watch() override;

  protected:
    void await(std::chrono::milliseconds timeout) override;
    void look() override;

  private:
    // Of works that are done: the first error.
    std::exception_ptr error_of_all() const;

    const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
    std::atomic<bool> watched_{false};
};

} // namespace tutti_torch
