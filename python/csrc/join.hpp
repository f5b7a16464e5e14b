// join.hpp -- how the ranks of a group come together.   SPDX-License-Identifier: MIT
//
// In PyTorch's store; or from a group in which they already are, which needs no new connections and no thread.
#pragma once

#include "compatibility.hpp"
#include "group.hpp"

namespace tutti_torch
{

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// A rank of a group that is being made.
struct Place {
    int rank, size;
    std::chrono::milliseconds timeout;
    std::string name; // short, and unique among the groups of a process
};

// The host of a TCP store, through the prefixes around it; "" for other stores.
std::string host_of(StorePtr store);

// The ranks meet in `store`, which it takes over.
std::shared_ptr<Group> join_new(tutti_store *store, const Place &place,
                                std::shared_ptr<Hooks> hooks, Group::Origin origin);

// The same in PyTorch's store.
std::shared_ptr<Group> join_in(const StorePtr &store, const Place &place,
                               std::shared_ptr<Hooks> hooks);

// A group whose rank i is ranks[i] of `parent`. Members only call it. It is made from the parent if that one is alive and has them
// on all of them, which they tell each other in `store`; else in `store`. If the members of the parent came together by
// reconfigure(), it is always made from it: they may have different stores. `parent` may be NULL.
std::shared_ptr<Group> join_part(const std::shared_ptr<Group> &parent,
                                 const std::vector<int> &ranks, const StorePtr &store,
                                 const Place &place, std::shared_ptr<Hooks> hooks);

} // namespace tutti_torch
