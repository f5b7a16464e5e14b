# _C.pyi -- types of the extension module, the compiled backend.   SPDX-License-Identifier: MIT
import torch
from torch._C._distributed_c10d import Backend, Store

built_for: str

def create(
    store: Store,
    rank: int,
    size: int,
    timeout_s: float,
    name: str,
    ranks: list[int] | None = None,
    without_members: bool = False,
) -> Backend: ...
def allocate(backend: Backend, size: int, dtype: torch.dtype) -> torch.Tensor: ...
def set_group_memory(backend: Backend | None) -> Backend | None: ...
def transport(backend: Backend) -> str: ...
def leave_all(why: str) -> None: ...
