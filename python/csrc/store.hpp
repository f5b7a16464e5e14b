// store.hpp -- PyTorch's store as a store of the library.   SPDX-License-Identifier: MIT
#pragma once

#include <tutti/store.h>

#include <chrono>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch
{

// `reaches` is a host that all ranks reach, for finding this host's address; empty: all are on one host.
tutti_status store_new(tutti_store **store_p, const c10::intrusive_ptr<c10d::Store> &store,
                       const std::string &reaches);

// How long to sleep between two looks for a key for which one has waited that long already.
std::chrono::steady_clock::duration pause_after(std::chrono::steady_clock::duration waited);

} // namespace tutti_torch
