# test_torchft.py -- torchft's process group, as its manager drives it.   SPDX-License-Identifier: MIT
from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

pytest.importorskip("torchft")


def quorums(rank: int, world: int, port: int) -> None:
    """All ranks; then the last leaves in the middle of a step; then the others; then all again, in another order."""
    from tutti_torch.torchft import ProcessGroupTutti

    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, timeout=timedelta(seconds=30))
    pg = ProcessGroupTutti(timeout=timedelta(seconds=30))

    def configure(quorum: int, as_rank: int, size: int) -> None:
        address = f"127.0.0.1:{port}/torchft/{quorum}/0"
        if hasattr(pg, "configure"):  # until 0.2.0
            pg.configure(address, f"r{rank}", as_rank, size, quorum)
        else:
            from torchft.process_group import reconfigure_with_store

            reconfigure_with_store(pg, address, as_rank, size)

    def total() -> float:
        tensor = torch.full((3,), rank + 1.0)
        pg.allreduce([tensor], dist.AllreduceOptions()).wait()
        return tensor[0].item()

    configure(1, rank, world)
    assert pg.size() == world and total() == 6
    if rank == 2:
        pg.abort()
    else:
        began = time.monotonic()
        with pytest.raises(RuntimeError, match="rank 2"):
            total()
        assert time.monotonic() - began < 20  # not the time limit
        configure(2, rank, 2)
        assert total() == 3
    configure(3, world - 1 - rank, world)
    assert total() == 6
    pg.shutdown()
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < world:
        time.sleep(0.01)


def test_torchft_drives_the_group_through_quorums(run):
    from test_groups import free_port

    run(quorums, free_port(), world=3, backend="")
