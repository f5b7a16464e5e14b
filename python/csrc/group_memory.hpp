// group_memory.hpp -- memory that PyTorch allocates itself, from the group.   SPDX-License-Identifier: MIT
#pragma once

#include "backend.hpp"

namespace tutti_torch
{

// From now on the calling thread's larger CPU tensors are in the memory of this backend's group; NULL: in ordinary memory. All ranks
// do this at the same place between collectives. Returns what was set before. The caller keeps the backend alive meanwhile.
TuttiBackend *set_group_memory(TuttiBackend *backend);

} // namespace tutti_torch
