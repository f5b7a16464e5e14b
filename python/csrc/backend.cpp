// backend.cpp -- making the backend, its end, and how a call is run.   SPDX-License-Identifier: MIT
#include "backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace tutti_torch
{

namespace
{

// Never freed: a backend may end after the end of main.
std::mutex &alive_mutex = *new std::mutex;
std::set<TuttiBackend *> &alive = *new std::set<TuttiBackend *>;
TuttiBackend *default_backend = nullptr;

struct Here {
    Group *group;
    const Call *call;
    const Body *body;
};

tutti_status call_here(void *arg)
{
    auto *here = static_cast<Here *>(arg);

    return run_body(*here->group, *here->call, *here->body);
}

} // namespace

TuttiBackend::TuttiBackend(const StorePtr &store, const Place &place, std::shared_ptr<Group> group,
                           std::shared_ptr<Hooks> hooks)
    : Backend(place.rank, place.size), store_(store), hooks_(std::move(hooks)), name_(place.name),
      group_(std::move(group)), timeout_(place.timeout),
      without_(group_ ? "has been shut down" : "has no members yet: call reconfigure")
{
    const std::lock_guard<std::mutex> lock(alive_mutex);

    alive.insert(this);
    init();
}

TuttiBackend::~TuttiBackend()
{
    const std::lock_guard<std::mutex> lock(alive_mutex);

    alive.erase(this);
    if (default_backend == this)
        default_backend = nullptr;
}

void TuttiBackend::become_default(TuttiBackend *backend)
{
    const std::lock_guard<std::mutex> lock(alive_mutex);

    default_backend = backend;
}

std::shared_ptr<Group> TuttiBackend::group_of_default()
{
    const std::lock_guard<std::mutex> lock(alive_mutex);

    return default_backend ? default_backend->group() : nullptr;
}

void TuttiBackend::leave_all(const std::string &why)
{
    const std::string reason = why.empty() ? "its program ended while calls were in progress" : why;
    std::vector<std::pair<std::shared_ptr<Group>, std::shared_ptr<Pool>>> all;
    {
        const std::lock_guard<std::mutex> lock(alive_mutex);
        std::vector<TuttiBackend *> ordered(alive.begin(), alive.end());

        // the default group last, so that the launcher is told this process's rank in it
        std::stable_partition(ordered.begin(), ordered.end(),
                              [](TuttiBackend *backend) { return backend != default_backend; });
        for (TuttiBackend *backend : ordered) {
            const std::lock_guard<std::mutex> its_lock(backend->mutex_);

            if (backend->group_ && !why.empty())
                backend->error_ = ErrorType::COMM_ERROR;
            all.emplace_back(std::move(backend->group_), std::move(backend->pool_));
        }
    }
    /* without the lock: a callback on a communication thread may end a backend */
    for (const auto &[group, pool] : all)
        if (group && (!why.empty() || group->is_busy()))
            group->abort(reason);
    end_watching(reason);
}

c10::intrusive_ptr<Backend::Options> TuttiBackend::getBackendOptions()
{
    return c10::make_intrusive<Options>(timeout_);
}

// Only members call this, each set of ranks with a store of its own.
c10::intrusive_ptr<Backend> TuttiBackend::split(const StorePtr &store,
                                                const std::vector<int> &ranks,
                                                const c10::intrusive_ptr<Backend::Options> &opts)
{
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);

    if (found == ranks.end())
        return c10::intrusive_ptr<Backend>();
    const Place place = {static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()),
                         opts ? opts->timeout : timeout_.load(), name_.substr(0, 20) + "/part"};
    const auto hooks = std::make_shared<Hooks>();

    return c10::make_intrusive<TuttiBackend>(store, place,
                                             join_part(group(), ranks, store, place, hooks), hooks);
}

c10::intrusive_ptr<Backend> TuttiBackend::merge(const StorePtr &store,
                                                const c10::intrusive_ptr<Backend::Options> &opts,
                                                const int &rank, const int &size)
{
    const Place place = {rank, size, opts ? opts->timeout : timeout_.load(), "merged"};
    const auto hooks = std::make_shared<Hooks>();

    return c10::make_intrusive<TuttiBackend>(store, place, join_in(store, place, hooks), hooks);
}

std::shared_ptr<Group> TuttiBackend::group()
{
    const std::lock_guard<std::mutex> lock(mutex_);

    TORCH_CHECK(group_, "tutti: group \"", name_, "\" ", without_);
    return group_;
}

void TuttiBackend::setTimeout(std::chrono::milliseconds timeout)
{
    const std::lock_guard<std::mutex> lock(mutex_);

    if (group_)
        check(tutti_group_set_timeout(group_->get(), limit_of(timeout)));
    timeout_ = timeout;
}

ErrorType TuttiBackend::getError()
{
    const std::lock_guard<std::mutex> lock(mutex_);

    if (!group_)
        return error_;
    switch (tutti_group_status(group_->get())) {
    case TUTTI_OK:
        return ErrorType::SUCCESS;
    case TUTTI_ERR_TIMEOUT:
        return ErrorType::TIMEOUT;
    case TUTTI_ERR_ABORTED:
        return group_->is_aborted() ? ErrorType::COMM_ERROR : ErrorType::REMOTE_ERROR;
    case TUTTI_ERR_PEER:
        return ErrorType::REMOTE_ERROR;
    default:
        return ErrorType::COMM_ERROR;
    }
}

// PyTorch's own variable for this.
bool TuttiBackend::wants_trace_of_failures()
{
    const char *wish = std::getenv("TORCH_FR_DUMP_ON_TIMEOUT");

    return wish && *wish && std::string(wish) != "0" && std::string(wish) != "false";
}

void TuttiBackend::abort()
{
    abort_with("the program aborted the process group");
}

void TuttiBackend::abort_with(const std::string &why)
{
    std::shared_ptr<Group> group;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        group = group_;
    }
    if (group)
        group->abort(why);
}

void TuttiBackend::shutdown()
{
    std::shared_ptr<Group> group;
    std::shared_ptr<Pool> pool;
    const ErrorType error = getError();
    {
        const std::lock_guard<std::mutex> lock(alive_mutex);

        if (default_backend == this)
            default_backend = nullptr;
    }
    const std::lock_guard<std::mutex> lock(mutex_);

    error_ = error;
    without_ = "has been shut down";
    group.swap(group_); // freed here, unless tensors in its memory or messages still need it
    pool.swap(pool_);
}

std::string TuttiBackend::transport()
{
    return tutti_group_transport_name(group()->get());
}

std::shared_ptr<Pool> TuttiBackend::pool()
{
    const WithoutPython unlocked;
    const std::lock_guard<std::mutex> only_one(reserving_);
    const std::shared_ptr<Group> group = this->group();
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (pool_)
            return pool_;
    }
    auto pool = std::make_shared<Pool>(group); // waits for the other ranks
    const std::lock_guard<std::mutex> lock(mutex_);
    pool_ = pool;
    return pool;
}

at::Tensor TuttiBackend::allocateTensor(long size, at::TensorOptions options)
{
    std::shared_ptr<Pool> pool;
    at::Tensor tensor;
    size_t bytes;

    TORCH_CHECK(size >= 0 && !__builtin_mul_overflow(static_cast<size_t>(size),
                                                     options.dtype().itemsize(), &bytes),
                "tutti: a tensor of ", size, " elements in the group's memory");
    TORCH_CHECK(options.device().is_cpu(), "tutti: memory on ", options.device(),
                "; the group's memory is the CPU's");
    pool = this->pool();
    tensor = pool->take(bytes, size, options);
    if (tensor.defined())
        return tensor;
    TORCH_WARN_ONCE("tutti: no room for ", bytes,
                    " bytes in the group's memory, so they are in "
                    "ordinary memory and copied in each call; TUTTI_TORCH_POOL_MB sets its size");
    return at::empty({size}, options);
}

void TuttiBackend::check_root(const char *call, int64_t root) const
{
    TORCH_CHECK(root >= 0 && root < size_, "tutti: ", call, ": root is ", root,
                ", expected a rank from 0 to ", size_ - 1);
}

WorkPtr TuttiBackend::run(const Call &call, bool is_async, at::TensorList inputs, Tensors outputs,
                          Body body)
{
    const std::shared_ptr<Group> group = this->group();

    if (!is_async || group->is_inside())
        return noted(run_here(group, call, inputs, std::move(outputs), body));
    auto work = c10::make_intrusive<QueuedWork>(rank_, call, inputs, std::move(outputs), group,
                                                std::move(body));
    QueuedWork::submit(work);
    return noted(work);
}

WorkPtr TuttiBackend::run_here(const std::shared_ptr<Group> &group, const Call &call,
                               at::TensorList inputs, Tensors outputs, const Body &body)
{
    auto work = c10::make_intrusive<DoneWork>(rank_, call, inputs, std::move(outputs));
    const WithoutPython unlocked;
    Here here = {group.get(), &call, &body};
    const tutti_call queued = queued_call(call, call_here, nullptr, &here);
    const tutti_status status = tutti_group_call(group->get(), &queued, nullptr);

    group->note(status);
    check(status);
    group->tidy();
    work->finish_now();
    return work;
}

} // namespace tutti_torch
