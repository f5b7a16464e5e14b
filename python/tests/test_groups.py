# test_groups.py -- several groups, their properties, their end, and their memory.   SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import inspect
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from releases import RELEASE, needs, skip_on
from test_collectives import own_backend, same


BACKEND = getattr(torch._C._distributed_c10d, "Backend", dist.ProcessGroup)


def subgroups(rank: int, world: int) -> None:
    halves = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    outer, inner = dist.new_group([0, 2]), dist.new_group([1])
    pairs = inner if rank == 1 else outer
    mine = [group for group in halves if group is not dist.GroupMember.NON_GROUP_MEMBER]
    works = []
    tensors = []
    for _ in range(20):  # on all groups at once
        for group in [None, pairs, *mine]:
            tensors.append((group, torch.ones(1000)))
            works.append(dist.all_reduce(tensors[-1][1], group=group, async_op=True))
    for work in works:
        work.wait()
    for group, tensor in tensors:
        same(tensor, torch.full((1000,), float(dist.get_world_size(group))))
    for group in mine:
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, dist.get_global_rank(group, 1), group=group)
        assert tensor.item() == dist.get_global_rank(group, 1)
    for group in mine:
        dist.destroy_process_group(group)
    dist.all_reduce(torch.ones(1))


def test_several_groups_at_once(run):
    run(subgroups, world=3)


def local_groups(rank: int, world: int) -> None:
    group = None
    if rank < 2:  # made by its members only
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(tensor := torch.ones(1), group=group)
        assert tensor.item() == 2
    dist.barrier()


@needs(
    "use_local_synchronization" in inspect.signature(dist.new_group).parameters,
    "groups that their members alone make",
)
def test_a_group_made_by_its_members(run):
    run(local_groups, world=3)


def split(rank: int, world: int) -> None:
    with skip_on(RuntimeError, text="No device associated"):
        group = dist.split_group(split_ranks=[[0, 2], [1]])
    dist.all_reduce(tensor := torch.ones(1), group=group)
    assert tensor.item() == (1 if rank == 1 else 2)


@needs(hasattr(dist, "split_group"), "split_group")
def test_split(run):
    run(split, world=3)


def again(rank: int, world: int) -> None:
    for _ in range(2):
        dist.all_reduce(tensor := torch.ones(1))
        assert tensor.item() == world


def test_one_process(run):
    run(again, world=1)


def reinit(rank: int, world: int, ports: list[int]) -> None:
    """A port each time: PyTorch lets a rank that is early meet the store that rank 0 is just closing."""
    for port in ports:
        dist.init_process_group(
            "tutti", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
        dist.all_reduce(tensor := torch.ones(1))
        assert tensor.item() == world
        dist.destroy_process_group()


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@needs(RELEASE >= (2, 0), "TCPStore that connects again after a reset by the one before it")
def test_init_and_destroy_again(run):
    run(reinit, [free_port() for _ in range(3)], backend="")


def same_store(rank: int, world: int, port: int) -> None:
    """As under torchrun: the store outlives the groups, whose names come again."""
    # as PyTorch makes its own
    kind = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    limit = timedelta(seconds=30)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=limit, **kind)
    for _ in range(3):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world)
        dist.all_reduce(tensor := torch.ones(1))
        assert tensor.item() == world
        dist.destroy_process_group()


@needs(RELEASE >= (2, 0), "barrier of init_process_group that can be used twice in one store")
def test_groups_one_after_the_other_in_one_store(run):
    run(same_store, free_port(), backend="")


def properties(rank: int, world: int) -> None:
    backend = own_backend()
    assert backend.name() == "tutti"
    assert dist.get_backend() == "tutti"
    if hasattr(dist.distributed_c10d, "_get_process_group_store"):
        assert dist.distributed_c10d._get_process_group_store(dist.group.WORLD) is not None
    dist.group.WORLD.monitored_barrier(timedelta(seconds=20))
    dist.barrier()
    dist.barrier(async_op=True).wait()


def test_properties(run):
    run(properties)


def options(rank: int, world: int) -> None:
    backend = own_backend()
    assert backend.options._timeout == timedelta(minutes=30)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=50), dist.group.WORLD)
    assert backend.options._timeout == timedelta(seconds=50)
    assert backend.get_error().name == "SUCCESS"


@needs(hasattr(BACKEND, "options"), "Backend.options")
def test_options(run):
    run(options)


def sequence(rank: int, world: int) -> None:
    with skip_on(RuntimeError, text="does not yet support sequence numbers"):
        before = dist.group.WORLD._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 1


def test_sequence_number(run):
    run(sequence)


def memory(rank: int, world: int) -> None:
    import tutti_torch

    tensor = tutti_torch.empty(10, 3)
    assert tensor.shape == (10, 3) and tensor.dtype == torch.float32
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    same(tensor, torch.full((10, 3), float(sum(range(1, world + 1)))))
    wide = tutti_torch.empty(5, dtype=torch.float64)
    assert wide.dtype == torch.float64
    kept = []
    for i in range(200):  # freed at different times on different ranks
        t = tutti_torch.empty(1000 * (i % 7 + 1))
        t.fill_(float(i))
        dist.all_reduce(t)
        assert t[-1].item() == i * world
        if i % (rank + 2) == 0:
            kept.append((i, t))
    for i, t in kept:
        assert t[0].item() == i * world
    kept.clear()
    gc.collect()
    # tensors outlive the group
    held = tutti_torch.empty(10)
    held.fill_(1)
    dist.destroy_process_group()
    tensor.add_(1)
    assert held.sum().item() == 10


def test_memory_of_the_group(run):
    run(memory)


def memory_by_pytorch(rank: int, world: int) -> None:
    backend, cpu = own_backend(), torch.device("cpu")
    assert backend.supports_tensor_alloc(cpu)
    tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=cpu)
    dist.all_reduce(tensor.fill_(1.0))
    assert tensor.sum().item() == 1000 * world


@needs(hasattr(BACKEND, "allocate_tensor"), "Backend.allocate_tensor")
def test_memory_that_pytorch_asks_for(run):
    run(memory_by_pytorch)


def after_shutdown(rank: int, world: int) -> None:
    group = dist.group.WORLD
    dist.barrier()
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="shut down|ended|destroyed"):
        group.allreduce([torch.ones(1)])


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_calls_after_the_end(run):
    run(after_shutdown)


def wrapped(rank: int, world: int, port: int) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        dist.init_process_group(
            "tutti", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
        dist.all_reduce(tensor := torch.ones(3))
        same(tensor, torch.full((3,), float(world)))
        outs = [torch.empty(2) for _ in range(world)]
        dist.all_gather(outs, torch.full((2,), float(rank)))
        same(torch.cat(outs), torch.arange(float(world)).repeat_interleave(2))
        dist.barrier()
        with pytest.raises(RuntimeError, match="mismatch|[Dd]etected|the same call"):
            dist.all_reduce(torch.ones(3 + rank))
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def test_debug_wrapper(run):
    run(wrapped, free_port(), backend="")
