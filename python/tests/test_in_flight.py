# test_in_flight.py -- what happens around calls that are not done yet.   SPDX-License-Identifier: MIT
from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist
from releases import needs


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


def polls(rank: int, world: int) -> None:
    group = dist.new_group(backend="gloo")
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    asked = []
    original = dist.Work.get_future
    dist.Work.get_future = lambda self: asked.append(self) or original(self)
    try:
        work.is_completed()
        work.wait()
        assert work.is_completed() and work.is_success() and not asked
    finally:
        dist.Work.get_future = original
    ours = dist.all_reduce(torch.ones(1), async_op=True)
    ours.wait()
    assert ours.is_completed()


@needs(hasattr(torch._C._distributed_c10d.Work, "_get_op_type"), "Work._get_op_type")
def test_other_backends_works_are_left_alone(run):
    run(polls)


def shared_memory(rank: int, world: int) -> None:
    """Tensors that are freed in any order, also by the garbage collector, while others are made."""
    import gc

    import tutti_torch

    held = []
    for i in range(400):
        cycle = [tutti_torch.empty(100 * (i % 5 + 1)).fill_(i)]
        cycle.append(cycle)
        if i % 7 == rank:
            held.append((i, cycle[0]))
        if i % 50 == 0:
            gc.collect(0)
    for i, tensor in held:
        assert bool((tensor == i).all())
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for _, t in held)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))
    dist.all_reduce(held[0][1][:100])


def test_pieces_of_shared_memory_never_overlap(run):
    run(shared_memory)
