# test_lifetimes.py -- who waits for what, until when, and what a refused call leaves.   SPDX-License-Identifier: MIT
from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import conftest
import pytest
import torch
import torch.distributed as dist
from releases import COALESCES, GroupError, needs
from test_collectives import own_backend, same


# ---- Messages ------------------------------------------------------------------------------------


def many_waiters(rank: int, world: int, folder: str) -> None:
    for i in range(40):
        dist.init_process_group(
            "tutti", init_method=f"file://{folder}/store{i}", rank=rank, world_size=world
        )
        if rank == 0:
            work = dist.irecv(got := torch.zeros(1), 1)
            future = work.get_future()
            threads = [threading.Thread(target=work.wait) for _ in range(4)]
            for thread in threads:
                thread.start()
            work.wait()
            assert got.item() == 1
            dist.destroy_process_group()  # while others have not yet woken up
            for thread in threads:
                thread.join()
            future.wait()
        else:
            time.sleep(0.02)
            dist.send(torch.ones(1), 0)
            dist.destroy_process_group()


def test_a_group_ends_while_others_wait_for_its_message(run):
    with tempfile.TemporaryDirectory() as folder:
        run(many_waiters, folder, backend="")


def inference(rank: int, world: int) -> None:
    if rank:
        dist.barrier()
        dist.send(torch.arange(6.0).reshape(2, 3).t().contiguous(), 0)
        for _ in range(2):
            dist.broadcast(torch.arange(6.0), 1)
        return
    want = torch.arange(6.0).reshape(2, 3).t()
    with torch.inference_mode():
        got, others, outside = (torch.zeros(2, 3).t() for _ in range(3))
        future = dist.irecv(got, 1).get_future()
    dist.barrier()
    future.wait()
    same(got, want)
    with torch.inference_mode():
        dist.broadcast(others, 1, async_op=True).wait()
    dist.broadcast(outside, 1)
    same(others, torch.arange(6.0).reshape(3, 2))
    same(outside, torch.arange(6.0).reshape(3, 2))


def test_tensors_of_inference_mode(run):
    run(inference)


def dropped(rank: int, world: int) -> None:
    if rank:
        dist.barrier()
        dist.send(torch.ones(3, 4), 0)
        dist.send(torch.ones(1), 0, tag=5)
        return
    got = torch.zeros(4, 3).t()
    dist.irecv(got, 1)
    dist.barrier()
    dist.recv(torch.zeros(1), 1, tag=5)
    assert got.sum().item() == 12


def test_a_message_that_nobody_waits_for_arrives_in_any_tensor(run, implementation):
    if implementation == "python":
        pytest.skip("the first who waits puts it into a tensor of other strides")
    run(dropped)


# ---- The store -----------------------------------------------------------------------------------


class OneConnection(dist.Store):
    """As a program may have written it."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner

    def set(self, key: str, value: bytes) -> None:
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def add(self, key: str, amount: int) -> int:
        return self.inner.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self.inner.check(keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        raise AssertionError("a wait keeps the only connection busy")


def one_connection(rank: int, world: int, path: str) -> None:
    from tutti_torch import choose

    store = OneConnection(dist.FileStore(path, world))
    if rank:
        time.sleep(0.3)

    class Options:
        group_rank, group_size, group_id = rank, world, "world"
        global_ranks_in_group: list[int] = []
        timeout = timedelta(seconds=20)

    opts = Options()
    opts.store = store
    backend = choose._create(opts)
    backend.allreduce([tensor := torch.ones(3)], dist.AllreduceOptions()).wait()
    if hasattr(backend, "shutdown"):
        backend.shutdown()
    same(tensor, torch.full((3,), float(world)))


@needs(hasattr(dist.Store, "check"), "Store.check")
def test_a_group_polls_a_store_of_one_connection(run):
    with tempfile.TemporaryDirectory() as folder:
        run(one_connection, f"{folder}/store", backend="")


# ---- Time limits ---------------------------------------------------------------------------------


def group_limit(rank: int, world: int) -> None:
    if rank:
        time.sleep(0.5)
        dist.barrier()
        with pytest.raises(GroupError):
            time.sleep(3)
            dist.barrier()
        return
    opts = dist.BarrierOptions()
    opts.timeout = timedelta(seconds=20)
    barrier = own_backend().barrier(opts)
    time.sleep(0.2)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
    barrier.wait()
    begin = time.monotonic()
    with pytest.raises(GroupError, match="rank 1"):
        dist.barrier()
    assert time.monotonic() - begin < 2.5


@needs(
    hasattr(dist.distributed_c10d, "_set_pg_timeout") and hasattr(dist.ProcessGroup, "set_timeout"),
    "time limit that can be set",
)
def test_a_new_limit_of_the_group_outlasts_a_call_with_its_own(run):
    run(group_limit)


# ---- Refused calls -------------------------------------------------------------------------------


def overlapping(rank: int, world: int) -> None:
    one, parts = torch.ones(1).expand(4), [torch.ones(1).expand(4) for _ in range(world)]
    calls = [
        lambda: dist.all_reduce(one),
        lambda: dist.all_reduce(one, async_op=True).wait(),
        lambda: dist.broadcast(one, 1 - rank),
        lambda: dist.reduce(one, rank),
        lambda: dist.all_gather(parts, torch.ones(4)),
        lambda: dist.recv(one, 1 - rank),
        lambda: dist.reduce_scatter(one, [torch.ones(4)] * world),
        lambda: dist.all_to_all(parts, [torch.ones(4)] * world),
        lambda: dist.all_to_all_single(one, torch.ones(4)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="clone"):
            call()
    dist.all_reduce(tensor := torch.ones(4))  # the group lives
    same(tensor, torch.full((4,), float(world)))
    dist.broadcast(one if rank == 0 else tensor, 0)  # to read such a tensor is fine
    assert rank == 0 or tensor[3] == 1


def test_a_destination_whose_elements_overlap_is_refused(run):
    run(overlapping)


# ---- Several as one ------------------------------------------------------------------------------


def coalesced(rank: int, world: int) -> None:
    backend, other = own_backend(), 1 - rank
    with pytest.raises(ValueError, match="of the program"):
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True):
            dist.isend(torch.ones(1), other, tag=9)
            raise ValueError("of the program")
    dist.recv(torch.zeros(1), other, tag=9)
    backend._start_coalescing()
    got = torch.zeros(2)
    dist.isend(torch.full((2,), float(rank)), other)
    dist.irecv(got, other)
    work = backend._end_coalescing()
    futures = [work.get_future() for _ in range(3)]
    deadline = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < deadline
    assert work.is_success() and got[1] == other
    assert any(tensor.data_ptr() == got.data_ptr() for tensor in work.result())
    for future in futures:
        future.wait()


def wait_for_several(rank: int, world: int) -> None:
    if rank:
        dist.barrier()
        for tag in range(4):
            dist.send(torch.ones(1), 0, tag=tag)
        return
    own_backend()._start_coalescing()
    for tag in range(4):
        dist.irecv(torch.zeros(1), 1, tag=tag)
    work = own_backend()._end_coalescing()
    begin = time.monotonic()
    with pytest.raises(RuntimeError):
        work.wait(timedelta(milliseconds=300))
    assert time.monotonic() - begin < 1
    dist.barrier()
    work.wait()
    assert work.is_success()


@needs(COALESCES and hasattr(dist.ProcessGroup, "_start_coalescing"), "such lists")
def test_several_messages_as_one(run, implementation):
    if implementation == "python":
        pytest.skip("PyTorch's own list of works does not see that they are done before a wait")
    run(coalesced)
    run(wait_for_several)


# ---- Memory --------------------------------------------------------------------------------------


def too_large(rank: int, world: int) -> None:
    import tutti_torch

    with pytest.raises(RuntimeError):
        tutti_torch.empty(2**62, dtype=torch.float64)
    dist.barrier()
    tensor = tutti_torch.empty(16).fill_(1)
    dist.all_reduce(tensor)
    assert tensor[0] == world


def test_a_size_that_overflows_is_refused(run):
    run(too_large)


# ---- The end of a program ------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
import tutti_torch
rank, store, how = int(sys.argv[1]), sys.argv[3], sys.argv[4]
def slow():
    for i in range(10**6):
        pass
dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=2)
if rank == 0:
    works = [dist.irecv(torch.zeros(1), 1, tag=i) for i in range(8)]
    futures = [work.get_future().then(lambda f: slow()) for work in works]
    dist.barrier()
else:
    dist.barrier()
    if how == "sends":
        for i in range(8):
            dist.send(torch.ones(1), 0, tag=i)
    time.sleep(1.5)
"""


@pytest.mark.parametrize("how", ["sends", "is silent"])
def test_a_program_ends_while_futures_are_pending(implementation, how):
    if implementation == "python":
        pytest.skip("PyTorch ends such a program by std::terminate: docs/pytorch.md")
    first, _ = conftest.run_program(PROGRAM, 2, how, implementation)
    assert first.returncode == 0, first.stderr


# ---- A group that ends while another thread is in a call of it -------------------------------------------


def barrier_or_nothing() -> None:
    with contextlib.suppress(RuntimeError):  # the group ended before the call began
        dist.barrier()


def ends_under_a_call(rank: int, world: int) -> None:
    backend, store = own_backend(), dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank:
        store.wait(["ended"])
        barrier_or_nothing()
        return
    thread = threading.Thread(target=barrier_or_nothing)
    thread.start()
    state = Path(f"/proc/self/task/{thread.native_id}/stat")
    while backend._get_sequence_number_for_group() < 2 or " S " not in state.read_text():
        time.sleep(0.001)  # until it sleeps in the call, or, rarely, in the interpreter on the way there
    backend.shutdown()
    store.set("ended", "")
    thread.join()
    with pytest.raises(RuntimeError, match="has been shut down"):
        dist.barrier()


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_a_group_ends_under_a_call(run):
    run(ends_under_a_call)
