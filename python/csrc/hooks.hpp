// hooks.hpp -- functions that the program wants called when a group fails.   SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch
{

// Any thread. A hook may add and remove hooks; its own removal takes effect with the next run.
class Hooks
{
  public:
    using Hook = std::function<void()>;

    void add(int64_t id, Hook hook);
    void remove(int64_t id);
    // In the order of their numbers. What they throw is a warning.
    void run();

  private:
    std::mutex mutex_;
    std::map<int64_t, std::shared_ptr<Hook>>
        hooks_; // shared: a copy of a hook may need Python's lock
};

} // namespace tutti_torch
