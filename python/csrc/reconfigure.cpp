// reconfigure.cpp -- other members for a backend that stays: PyTorch's interface of elasticity.   SPDX-License-Identifier: MIT
#include "backend.hpp"

#include <algorithm>
#include <cstdio>
#include <random>

namespace tutti_torch
{

namespace
{

constexpr const char *kLoopback = "127.0.0.1";

// This host's address for others that reach `host`. "": `host` is not known, or there is no way to it.
std::string address_towards(const std::string &host)
{
    char text[128];

    return tutti_host_address(host.c_str(), text, sizeof text) == TUTTI_OK ? text : "";
}

// "tutti:RANK:NUMBER:PORT:HOST". The number is random: ports are used again.
struct Parts {
    std::string host;
    int port;
};

Parts parts_of(const std::string &handle)
{
    unsigned rank, port;
    unsigned long long number;
    int n = 0;

    TORCH_CHECK(std::sscanf(handle.c_str(), "tutti:%u:%llx:%u:%n", &rank, &number, &port, &n) ==
                        3 &&
                    n > 0 && n < static_cast<int>(handle.size()) && port > 0 && port < 65536,
                "tutti: reconfigure: not a handle of this backend: \"", handle, "\"");
    return {handle.substr(n), static_cast<int>(port)};
}

std::string handle_text(int rank, int port, const std::string &host)
{
    std::random_device random;
    const unsigned long long number = (static_cast<unsigned long long>(random()) << 32) | random();
    char text[64];

    std::snprintf(text, sizeof text, "tutti:%06d:%016llx:%d:", rank, number, port);
    return text + host;
}

// What all members have to agree on, in few bytes: their number and FNV's hash of their handles.
std::string summary_of(const std::vector<std::string> &members)
{
    uint64_t hash = 0xcbf29ce484222325;
    char text[64];

    for (const std::string &member : members)
        for (const char c : member + "\n")
            hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    std::snprintf(text, sizeof text, "%zu %016llx", members.size(),
                  static_cast<unsigned long long>(hash));
    return text;
}

} // namespace

MeetingPlace::MeetingPlace(int rank, const std::string &reaches)
{
    const char *master = std::getenv("MASTER_ADDR");
    std::string host = reaches.empty() ? "" : address_towards(reaches);

    if (host.empty() && master && *master)
        host = address_towards(master);
    if (host.empty())
        host = kLoopback;
    check(tutti_store_tcp_serve(&store_, host.c_str(), 0));
    handle_ = handle_text(rank, tutti_store_port(store_), host);
}

MeetingPlace::~MeetingPlace()
{
    tutti_store_free(store_);
}

int MeetingPlace::place_among(const std::vector<std::string> &members) const
{
    std::set<std::string> seen;
    int place = -1;

    TORCH_CHECK(!members.empty(), "tutti: reconfigure: no handles given");
    for (size_t i = 0; i < members.size(); i++) {
        parts_of(members[i]);
        TORCH_CHECK(seen.insert(members[i]).second, "tutti: reconfigure: the handle \"", members[i],
                    "\" is given twice");
        if (members[i] == handle_)
            place = static_cast<int>(i);
    }
    TORCH_CHECK(place >= 0, "tutti: reconfigure: this rank's own handle \"", handle_,
                "\" is not among the ", members.size(), " given");
    return place;
}

void MeetingPlace::use(int64_t uuid)
{
    TORCH_CHECK(used_.insert(uuid).second, "tutti: reconfigure: uuid ", uuid,
                " was already used on this communicator");
}

tutti_store *MeetingPlace::enter(int64_t uuid, const std::vector<std::string> &members,
                                 std::chrono::milliseconds timeout) const
{
    const Parts first = parts_of(members[0]);
    const std::string mine = summary_of(members), key = "members/" + std::to_string(uuid);
    tutti_store *store = nullptr;
    char agreed[128];
    size_t n = sizeof agreed;
    tutti_status status;

    status = members[0] == handle_ ? tutti_store_clone(&store, store_)
                                   : tutti_store_tcp_connect(&store, first.host.c_str(), first.port,
                                                             limit_of(timeout));
    if (status != TUTTI_OK)
        throw_status(status, c10::str("reconfigure ", uuid, ": its rank 0, \"", members[0],
                                      "\", does not answer: ", tutti_last_error()));
    status = tutti_store_compare_set(store, key.c_str(), nullptr, 0, mine.data(), mine.size(),
                                     agreed, &n);
    if (status == TUTTI_OK && std::string(agreed, n) == mine)
        return store;
    const std::string why = status == TUTTI_OK ? "" : tutti_last_error();
    tutti_store_free(store);
    TORCH_CHECK(status == TUTTI_OK, "tutti: reconfigure ", uuid, ": ", why);
    TORCH_CHECK(false, "tutti: reconfigure ", uuid,
                ": another member was given other handles, or in another order (their number and "
                "a hash: \"",
                std::string(agreed, n), "\" there, \"", mine, "\" here)");
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace
{

std::vector<std::string> in_order_of_ranks(const c10d::ReconfigureOptions &opts)
{
    const auto *list = std::get_if<std::vector<std::string>>(&opts.handles);

    if (list)
        return *list;
    const auto &set = std::get<std::unordered_set<std::string>>(opts.handles);
    std::vector<std::string> sorted(set.begin(), set.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

} // namespace

MeetingPlace &TuttiBackend::meeting_place() const
{
    const std::lock_guard<std::mutex> lock(meeting_mutex_);

    if (!meeting_place_)
        meeting_place_ = std::make_unique<MeetingPlace>(rank_, host_of(store_));
    return *meeting_place_;
}

c10d::ReconfigureHandle TuttiBackend::get_reconfigure_handle() const
{
    const WithoutPython unlocked;

    return meeting_place().handle();
}

// The communication thread cannot wait for its own end.
void TuttiBackend::refuse_inside() const
{
    const std::lock_guard<std::mutex> lock(mutex_);

    TORCH_CHECK(!group_ || !group_->is_inside(),
                "tutti: reconfigure in a callback of a call of this group; call it after wait()");
}

// Who still waits for this rank in the old membership is told why it will not come.
void TuttiBackend::leave_members(int64_t uuid)
{
    std::shared_ptr<Group> group;
    std::shared_ptr<Pool> pool;
    const std::string why =
        "it left for another membership (reconfigure " + std::to_string(uuid) + ")";
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        group.swap(group_);
        pool.swap(pool_);
        without_ = "has no members: reconfigure " + std::to_string(uuid) + " failed";
    }
    if (!group)
        return;
    pool.reset(); // tensors in its memory keep it, and the group
    if (group->is_busy() || group.use_count() > 1)
        tutti_group_abort(group->get(), "%s", why.c_str());
}

WorkPtr TuttiBackend::reconfigure(const c10d::ReconfigureOptions &opts)
{
    const WithoutPython unlocked;
    const std::vector<std::string> members = in_order_of_ranks(opts);
    const std::chrono::milliseconds limit = limited(opts.timeout.value_or(timeout_.load()));
    const int size = static_cast<int>(members.size());
    const auto begin = std::chrono::steady_clock::now();
    MeetingPlace &place = meeting_place();
    const int rank = place.place_among(members);
    const Place at = {rank, size, limit, name_.substr(0, 40) + "/" + std::to_string(opts.uuid)};

    refuse_inside();
    place.use(opts.uuid);
    leave_members(opts.uuid);
    try {
        const auto group = join_new(place.enter(opts.uuid, members, limit), at, hooks_,
                                    Group::Origin::reconfigure);
        check(tutti_group_set_timeout(group->get(), limit_of(timeout_.load())));
        const std::lock_guard<std::mutex> lock(mutex_);
        group_ = group;
    } catch (...) {
        const bool late = std::chrono::steady_clock::now() - begin >= limit * 9 / 10;
        const std::lock_guard<std::mutex> lock(mutex_);

        error_ = late ? ErrorType::TIMEOUT : ErrorType::COMM_ERROR;
        throw;
    }
    rank_ = rank;
    size_ = size;
    sequence_ = 0;
    auto work = c10::make_intrusive<DoneWork>(
        rank, Call{c10d::OpType::UNKNOWN, "tutti:reconfigure", 0, limit}, at::TensorList(),
        Tensors{});
    work->finish_now();
    return work;
}

#endif

} // namespace tutti_torch
