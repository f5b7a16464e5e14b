// join.cpp -- how the ranks of a group come together.   SPDX-License-Identifier: MIT
#include "join.hpp"

#include "store.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace tutti_torch
{

namespace
{

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

const char *const kLost = " was lost: ",
                  *const kEnded = " said: its program ended"; // as the library and leave_all put it
constexpr int kCountBits = 16, kIdBits = 30; // of the number that the members of a part add up

// A store of any kind that all hosts reach says nothing about addresses; the launcher's variable may.
tutti_status store_of(tutti_store **store_p, const StorePtr &store)
{
    const std::string host = host_of(store);
    const char *master = std::getenv("MASTER_ADDR");

    if (!host.empty() || !master || !*master)
        return store_new(store_p, store, host);
    if (store_new(store_p, store, master) == TUTTI_OK)
        return TUTTI_OK;
    return store_new(store_p, store, "");
}

// For the keys of one group: PyTorch numbers groups from 0 again after destroy_process_group, in the same store. Each size is counted
// by itself, since an earlier group of that name may not have had all of these ranks.
StorePtr fresh(const StorePtr &store, const Place &place)
{
    const std::string size = std::to_string(place.size);
    const int64_t n = store->add("tutti/parts/" + size + "/" + std::to_string(place.rank), 1);

    return c10::make_intrusive<c10d::PrefixStore>("tutti/part/" + size + "/" + std::to_string(n),
                                                  store);
}

// The bits of the group's number that have room in that sum; not 0.
uint32_t id_of(const Group &group)
{
    return (static_cast<uint32_t>(tutti_group_id(group.get())) & ((1u << kIdBits) - 1)) | 1;
}

std::string key_of(int rank)
{
    return "here/" + std::to_string(rank);
}

[[noreturn]] void throw_missing(c10d::Store &store, const Place &place,
                                const std::vector<int> &ranks)
{
    std::string missing;

    for (int r = 0; r < place.size; r++)
        if (!store.check({key_of(r)}))
            missing += c10::str(missing.empty() ? "" : ", ", r, " (", ranks[r], " of its parent)");
    throw_status(TUTTI_ERR_TIMEOUT,
                 c10::str("group \"", place.name, "\": not all of its ", place.size,
                          " ranks came within ", place.timeout.count() / 1e3, " s; missing: rank ",
                          missing));
}

// Why the parent died, if a member will not come for that reason. One that only aborted or left the parent may. "": all may come.
std::string why_one_is_gone(const Group &parent, const std::vector<int> &ranks)
{
    if (tutti_group_status(parent.get()) == TUTTI_OK)
        return "";
    const std::string text = tutti_last_error();
    const bool is_gone = text.find(kLost) != text.npos || text.find(kEnded) != text.npos;
    const int culprit = is_gone ? tutti_group_culprit(parent.get()) : -1;

    return std::find(ranks.begin(), ranks.end(), culprit) != ranks.end() ? text : "";
}

// The first who decides how the members come together does so for all.
void decide(c10d::Store &store, const Bytes &way)
{
    if (store.add("decided", 1) == 1)
        store.set("way", way);
}

// Whether all members can use the same parent, `id` (0: this one cannot). The last one who comes says so, or one who sees that a
// member is gone. It polls, because a wait would keep the program's connection to the store busy. `parent`: NULL: this one has none.
bool all_know(c10d::Store &store, const Place &place, const Group *parent,
              const std::vector<int> &ranks, uint32_t id)
{
    const int64_t mine = (static_cast<int64_t>(id) << kCountBits) + 1;
    const auto begin = Clock::now();

    store.set(key_of(place.rank), Bytes{1});
    const int64_t sum = store.add("members", mine);
    if ((sum & ((1 << kCountBits) - 1)) == place.size)
        decide(store, Bytes{static_cast<uint8_t>(id != 0 && sum == place.size * mine)});
    while (!store.check({"way"})) {
        const auto waited = Clock::now() - begin;
        const std::string why = parent ? why_one_is_gone(*parent, ranks) : "";

        if (!why.empty())
            decide(store, Bytes(why.begin(), why.end()));
        else if (waited >= limited(place.timeout))
            throw_missing(store, place, ranks);
        else
            std::this_thread::sleep_for(pause_after(waited));
    }
    const Bytes way = store.get("way");
    if (way.size() > 1)
        throw_status(TUTTI_ERR_PEER, c10::str("while group \"", place.name, "\" was being made: ",
                                              std::string(way.begin(), way.end())));
    return way == Bytes{1};
}

bool has(const Group &parent, const std::vector<int> &ranks, const Place &place)
{
    const int size = tutti_group_size(parent.get());

    return ranks[place.rank] == tutti_group_rank(parent.get()) &&
           std::all_of(ranks.begin(), ranks.end(), [size](int rank) { return rank < size; });
}

std::shared_ptr<Group> split(Group &parent, const std::vector<int> &ranks, const Place &place,
                             const std::string &name, std::shared_ptr<Hooks> hooks)
{
    tutti_group *made = nullptr;

    check(tutti_group_split_members(parent.get(), ranks.data(), place.size, name.c_str(), &made));
    auto group = std::make_shared<Group>(made, std::move(hooks), parent.origin);
    check(tutti_group_set_timeout(made, limit_of(place.timeout)));
    return group;
}

} // namespace

std::string host_of(StorePtr store)
{
    while (auto *prefix = dynamic_cast<c10d::PrefixStore *>(store.get()))
        store = prefix->getUnderlyingStore();
    const auto *tcp = dynamic_cast<c10d::TCPStore *>(store.get());

    return tcp ? tcp->getHost() : "";
}

std::shared_ptr<Group> join_new(tutti_store *store, const Place &place,
                                std::shared_ptr<Hooks> hooks, Group::Origin origin)
{
    const WithoutPython unlocked;
    tutti_group_opts opts = {};
    tutti_group *made = nullptr;

    opts.store = store;
    opts.rank = place.rank;
    opts.world_size = place.size;
    opts.name = place.name.c_str();
    opts.timeout_ms = limit_of(place.timeout);
    opts.backend = TUTTI_BACKEND_NATIVE;
    const tutti_status status = tutti_group_init(&made, &opts);
    const std::string text = status == TUTTI_OK ? "" : tutti_last_error();
    tutti_store_free(store); // the group has its own handle
    if (status != TUTTI_OK)
        throw_status(status, text);
    return std::make_shared<Group>(made, std::move(hooks), origin);
}

std::shared_ptr<Group> join_in(const StorePtr &store, const Place &place,
                               std::shared_ptr<Hooks> hooks)
{
    const WithoutPython unlocked;
    tutti_store *meeting = nullptr;

    check(store_of(&meeting, store));
    return join_new(meeting, place, std::move(hooks), Group::Origin::store);
}

std::shared_ptr<Group> join_part(const std::shared_ptr<Group> &parent,
                                 const std::vector<int> &ranks, const StorePtr &store,
                                 const Place &place, std::shared_ptr<Hooks> hooks)
{
    const WithoutPython unlocked;
    const bool is_there = parent && has(*parent, ranks, place);

    if (is_there && parent->origin == Group::Origin::reconfigure) {
        /* PyTorch's name of the group is another one on members that came later */
        const std::string name = std::string(tutti_group_name(parent->get())).substr(0, 50);
        const std::lock_guard<std::mutex> lock(parent->splitting);

        return split(*parent, ranks, place, name + "/part", std::move(hooks));
    }
    /* while another thread makes a group from it, this one does not wait: other ranks may begin with that which comes second here */
    std::unique_lock<std::mutex> lock;
    if (is_there)
        lock = std::unique_lock<std::mutex>(parent->splitting, std::try_to_lock);
    const bool is_usable = lock && tutti_group_status(parent->get()) == TUTTI_OK;
    const uint32_t id = is_usable ? id_of(*parent) : 0;

    if (place.size == 1
            ? is_usable
            : all_know(*fresh(store, place), place, is_there ? parent.get() : nullptr, ranks, id))
        return split(*parent, ranks, place, place.name, std::move(hooks));
    if (lock)
        lock.unlock();
    return join_in(store, place, std::move(hooks));
}

} // namespace tutti_torch
