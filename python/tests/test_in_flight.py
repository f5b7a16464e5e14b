# test_in_flight.py -- what happens around calls that are not done yet.   SPDX-License-Identifier: MIT
from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist


def future_of_a_failure(rank: int, world: int) -> None:
    work = dist.all_reduce(torch.ones(3 + rank), async_op=True)  # the ranks disagree
    with pytest.raises(RuntimeError, match="all_reduce"):
        work.wait()
    dist.destroy_process_group()
    future = work.get_future()
    with pytest.raises(RuntimeError, match="all_reduce"):
        future.wait()


def test_a_failed_call_has_a_future_after_the_end_of_its_group(run):
    run(future_of_a_failure)


def several_wait(rank: int, world: int) -> None:
    if rank == 1:
        time.sleep(0.6)
        dist.send(torch.tensor([5.0]), 0)
        return
    work = dist.irecv(got := torch.zeros(1), 1)
    outcomes = []

    def wait() -> None:
        try:
            work.wait()
            outcomes.append(got.item())
        except RuntimeError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    dist.destroy_process_group()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(outcomes) == 3 and all(x == 5 or isinstance(x, RuntimeError) for x in outcomes)


def test_a_group_outlives_the_waits_for_its_messages(run):
    run(several_wait)
