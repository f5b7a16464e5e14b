# test_in_flight.py -- what happens around calls that are not done yet.   SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import Ranks, implementations
from releases import COALESCES, RELEASE, at_once, needs
from test_collectives import own_backend, same

import tutti_torch


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


def foreign_works(rank: int, world: int) -> None:
    """Another backend in Python, whose works contain ours, and raise what they like."""
    inner = own_backend()

    class Foreign(dist.Work):
        def __init__(self, work: dist.Work, fails: bool) -> None:
            super().__init__()
            self.work, self.fails = work, fails

        def wait(self, timeout: timedelta = timedelta(0)) -> bool:
            return self.work.wait()

        def get_future(self) -> torch.futures.Future:
            if self.fails:
                raise ValueError("no futures here")
            return self.work.get_future().then(lambda future: ["foreign"])

    class Outer(torch._C._distributed_c10d.Backend):
        fails = True

        def getBackendName(self) -> str:
            return "outer"

        def allreduce(self, tensors, opts):
            return Foreign(inner.allreduce(tensors, opts), self.fails)

    outer = Outer(rank, world)
    group = dist.ProcessGroup(dist.HashStore(), rank, world)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    group._register_backend(
        torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, outer
    )
    for outer.fails in (True, False):
        work = group.allreduce([tensor := torch.ones(2)], at_once(dist.AllreduceOptions(), True))
        work.is_completed()  # its own answer, whatever that is
        work.wait()
        assert tensor[0] == world
    assert work.get_future().wait() == ["foreign"]


@needs(RELEASE >= (2, 14), "backends in Python")
def test_works_of_other_python_backends_are_left_alone(run):
    run(foreign_works)


def shared_memory(rank: int, world: int) -> None:
    """Tensors that are freed in any order, also by the garbage collector, while others are made."""
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
    spans = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for _, t in held)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))
    dist.all_reduce(held[0][1][:100])


def test_pieces_of_shared_memory_never_overlap(run):
    run(shared_memory)


def one_after_the_other(rank: int, world: int) -> None:
    """Each call reads what those before it have written, whatever copies it needs."""
    first = torch.ones(300, 400)
    works = [dist.all_reduce(first.t(), async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    same(first, torch.full((300, 400), float(world**2)))

    second = torch.ones(1000)
    half = dist._make_nccl_premul_sum(0.5)
    options = at_once(dist.AllreduceOptions(), True)
    options.reduceOp = half
    works = [dist.all_reduce(second, async_op=True), own_backend().allreduce([second], options)]
    works.append(dist.all_reduce(second, async_op=True))
    for work in works:
        work.wait()
    same(second, torch.full((1000,), world**3 / 2))

    third = torch.ones(1000)
    sparse = torch.sparse_coo_tensor(torch.arange(1000)[None], third, (1000,))
    work = dist.all_reduce(third, async_op=True)
    dist.all_reduce(sparse, async_op=True).wait()
    work.wait()
    same(sparse.to_dense(), torch.full((1000,), float(world**2)))


def test_calls_see_the_results_of_those_before_them(run):
    run(one_after_the_other)


def nobody_waits(rank: int, world: int) -> None:
    outs = [torch.zeros(5) for _ in range(world)]
    wide = torch.zeros(4, 3).t()
    joined = torch.zeros(3 * world, 2).t()
    works = [
        dist.all_gather(outs, torch.full((5,), rank + 1.0), async_op=True),
        dist.all_reduce(wide.add_(1), async_op=True),
        dist.all_gather_into_tensor(joined, torch.full((2, 3), rank + 1.0), async_op=True),
    ]
    dist.barrier()
    for r, out in enumerate(outs):
        same(out, torch.full((5,), r + 1.0))
    same(wide, torch.full((3, 4), float(world)))
    want = torch.arange(1.0, world + 1).repeat_interleave(6).reshape(joined.shape)
    same(joined, want)
    del works


def test_results_are_there_though_nobody_waits(run):
    run(nobody_waits)


def splits_on_one_rank(rank: int, world: int) -> None:
    out = torch.empty(4 * world)
    splits = [4] * world if rank == 0 else None
    dist.all_to_all_single(out, torch.full((4 * world,), float(rank)), splits, splits)
    same(out, torch.arange(float(world)).repeat_interleave(4))


def test_one_rank_gives_splits_and_another_none(run):
    run(splits_on_one_rank)


def limit_of_one_call(rank: int, world: int) -> None:
    """A receive that is issued while a call with a short limit is in progress has the group's limit."""
    options = at_once(dist.BarrierOptions())
    options.timeout = timedelta(seconds=1.2)
    dist.barrier()
    if rank == 1:
        time.sleep(0.6)
        own_backend().barrier(options).wait()
        time.sleep(1.5)
        dist.send(torch.tensor([5.0]), 0)
        return
    thread = threading.Thread(target=lambda: own_backend().barrier(options).wait())
    thread.start()
    time.sleep(0.2)
    work = dist.irecv(got := torch.zeros(1), 1)
    thread.join()
    work.wait()
    assert got.item() == 5


def test_the_limit_of_one_call_is_not_that_of_others(run):
    run(limit_of_one_call)


def limits_with_copies(rank: int, world: int) -> None:
    options = at_once(dist.AllreduceOptions())
    options.timeout = timedelta(seconds=20)
    tensor = torch.ones(3, 5).t()
    own_backend().allreduce([tensor], options).wait()
    options.asyncOp = True
    own_backend().allreduce([tensor], options).wait()
    same(tensor, torch.full((5, 3), float(world**2)))
    options.timeout = timedelta(milliseconds=300)
    if rank == 0:
        with pytest.raises(RuntimeError, match="Timed out.*rank 1"):
            own_backend().allreduce([tensor], options).wait()
    else:
        time.sleep(1)
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.barrier()


@needs(hasattr(dist.AllreduceOptions, "asyncOp"), "AllreduceOptions.asyncOp")
def test_a_call_with_a_limit_and_copies(run):
    run(limits_with_copies)


def inference(rank: int, world: int) -> None:
    with torch.inference_mode():
        made = torch.ones(3, 2)
        dist.all_reduce(made.t())
        same(made, torch.full((3, 2), float(world)))
    leaf = torch.ones(3, 2, requires_grad=True)
    dist.all_reduce(leaf.detach().t(), async_op=True).wait()
    (leaf * leaf).sum().backward()
    same(leaf.grad, torch.full((3, 2), 2.0 * world))


def test_tensors_of_inference_and_of_training(run):
    run(inference)


def many_calls(rank: int, world: int) -> None:
    """One of each call that could be made in several ways."""
    mixed = [torch.tensor([rank == 0]), torch.tensor([1.0, 2.0])]
    own_backend().allreduce_coalesced(mixed, dist.AllreduceCoalescedOptions()).wait()
    assert mixed[0].item() is True and mixed[1][1].item() == 2 * world
    lists = [[torch.empty(3, 2).t(), torch.empty(2)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [torch.full((2, 3), rank + 0.5), torch.full((2,), rank + 1.0)])
    for r, (a, b) in enumerate(lists):
        same(a, torch.full((2, 3), r + 0.5))
        same(b, torch.full((2,), r + 1.0))
    with dist._coalescing_manager():
        for n in (2, 3):
            dist.reduce_scatter_tensor(torch.empty(n), torch.ones(n * world))
    with dist._coalescing_manager():
        for n in (2, 3):
            dist.all_gather_into_tensor(torch.empty(n * world), torch.ones(n))
    parts = [torch.ones(r + 1) for r in range(world)]
    dist.reduce_scatter(out := torch.empty(rank + 1), parts)
    same(out, torch.full((rank + 1,), float(world)))
    dist.all_to_all_single(torch.empty(2 * world), torch.ones(2 * world))
    dist.all_reduce(torch.sparse_coo_tensor([[rank]], [1.0], (4,)))
    shared = tutti_torch.empty(10).fill_(1)
    dist.all_reduce(shared)
    assert shared.sum().item() == 10 * world


@needs(COALESCES, "manager of coalesced collectives")
def test_calls_that_could_be_made_in_several_ways(run):
    run(many_calls)


def test_ranks_with_different_implementations(pools):
    if len(implementations()) < 2:
        pytest.skip("there is only one implementation here")
    ranks = Ranks(2, "compiled+python")
    pools[2, "compiled+python"] = ranks
    ranks.run(many_calls, (), "tutti")
