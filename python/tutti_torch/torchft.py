# torchft.py -- torchft's process group over Tutti.   SPDX-License-Identifier: MIT
"""For torchft.Manager, in place of torchft.ProcessGroupGloo:

    from tutti_torch.torchft import ProcessGroupTutti
    manager = torchft.Manager(pg=ProcessGroupTutti(timeout=...), ...)

Each quorum makes a new group, whose ranks meet in the store that torchft gives, and gives up the one before.
"""

from __future__ import annotations

import torch
from torch.distributed import ProcessGroup, Store
from torchft.process_group import ProcessGroupWrapper

from .choose import create


class ProcessGroupTutti(ProcessGroupWrapper):
    """A torchft process group for CPU tensors. Its timeout is that of the meeting and of each collective."""

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        kind = ProcessGroup.BackendType.CUSTOM
        pg = ProcessGroup(store, rank, world_size)
        pg._set_default_backend(kind)
        backend = create(store, rank, world_size, self._timeout, "torchft")
        pg._register_backend(torch.device("cpu"), kind, backend)
        return pg

    def getBackendName(self) -> str:
        return "torchft-tutti"
