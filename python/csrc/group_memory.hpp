// group_memory.hpp -- memory that PyTorch allocates itself, from the group.   SPDX-License-Identifier: MIT
#pragma once

#include "backend.hpp"

namespace tutti_torch
{

// From now on the calling thread's larger CPU tensors are in the memory of this backend's group, which must outlive the scope;
// all ranks enter at the same place between collectives. Scopes are not nested.
void enter_group_memory(TuttiBackend &backend);
void leave_group_memory();

} // namespace tutti_torch
