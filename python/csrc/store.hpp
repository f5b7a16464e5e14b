// store.hpp -- PyTorch's store as a store of the library.   SPDX-License-Identifier: MIT
#pragma once

#include <tutti/store.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch
{

// `reaches` is a host that all ranks reach, for finding this host's address; empty: all are on one host.
tutti_status store_new(tutti_store **store_p, const c10::intrusive_ptr<c10d::Store> &store,
                       const std::string &reaches);

} // namespace tutti_torch
