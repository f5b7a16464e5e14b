// reconfigure.hpp -- where the members of a new membership meet.   SPDX-License-Identifier: MIT
//
// A communicator that is asked for its handle keeps a store of its own, whose address is in the handle. The members meet in that
// of their rank 0: so they need neither a member nor the store of an earlier membership, and may come from different ones. It is
// the library's, because PyTorch's TCPStore asks the DNS for the name of each address that connects, in its one thread.
#pragma once

#include <tutti/store.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace tutti_torch
{

class MeetingPlace
{
  public:
    // `rank`: by which sets of handles are sorted. `reaches`: a host that all ranks reach; empty: all are on one host.
    MeetingPlace(int rank, const std::string &reaches);
    ~MeetingPlace();
    MeetingPlace(const MeetingPlace &) = delete;
    MeetingPlace &operator=(const MeetingPlace &) = delete;

    const std::string &handle() const
    {
        return handle_;
    }
    // This communicator's rank among them. Throws if it is not one of them, or if one is there twice or is no handle.
    int place_among(const std::vector<std::string> &members) const;
    // Throws if it was called with this number before.
    void use(int64_t uuid);
    // A handle on the store of the first member. Throws if that one does not answer, or another member was given other handles.
    tutti_store *enter(int64_t uuid, const std::vector<std::string> &members,
                       std::chrono::milliseconds timeout) const;

  private:
    tutti_store *store_ = nullptr;
    std::string handle_;
    std::set<int64_t> used_;
};

} // namespace tutti_torch
