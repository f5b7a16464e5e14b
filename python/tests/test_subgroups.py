# test_subgroups.py -- groups that are made from the default group, and when they are not.   SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import inspect
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import conftest
import pytest
import torch
import torch.distributed as dist
from conftest import Ranks, implementations
from releases import RELEASE, GroupError, needs, skip_on
from test_collectives import own_backend, same
from test_groups import BACKEND, free_port

MANY = 64
LOCAL = "use_local_synchronization" in inspect.signature(dist.new_group).parameters


# Where PyTorch does not tell whether a call's caller waits, each call is asynchronous, and begins its group's thread.
TELLS_IF_ASYNC = hasattr(dist.AllreduceOptions(), "asyncOp")


def counts() -> tuple[int, int]:
    gc.collect()  # where PyTorch has no shutdown, a group ends with its last reference
    return tuple(len(list(Path(f"/proc/self/{what}").iterdir())) for what in ("task", "fd"))


def check_sum(group: object, size: int) -> None:
    dist.all_reduce(tensor := torch.ones(3), group=group)
    same(tensor, torch.full((3,), float(size)))


# ---- What they cost ------------------------------------------------------------------------------


def many(rank: int, world: int) -> None:
    check_sum(None, world)
    check_sum(dist.new_group(), world)
    before = counts()
    groups = [dist.new_group() for _ in range(MANY)]
    assert counts() == before
    for group in groups:
        check_sum(group, world)
    if TELLS_IF_ASYNC:
        assert counts() == before
    for group in groups:
        dist.destroy_process_group(group)
    del group
    groups.clear()
    assert counts() == before


def test_many_groups_add_no_thread_and_no_descriptor(run):
    run(many)
    run(many, world=3)


def mesh(rank: int, world: int) -> None:
    check_sum(None, world)
    before = counts()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    assert counts() == before
    for name in "ab":
        check_sum(mesh.get_group(name), 2)


@needs(hasattr(dist, "init_device_mesh"), "init_device_mesh")
def test_the_groups_of_a_mesh_add_none_either(run):
    run(mesh, world=4)


def split(rank: int, world: int) -> None:
    check_sum(None, world)
    before = counts()
    with skip_on(RuntimeError, text="No device associated"):
        half = dist.split_group(split_ranks=[[2, 0], [3, 1]])
    quarter = dist.split_group(half, split_ranks=[[1, 0]])
    assert counts() == before
    assert dist.get_rank(half) == 1 - rank // 2 and dist.get_rank(quarter) == rank // 2
    check_sum(half, 2)
    check_sum(quarter, 2)


@needs(hasattr(dist, "split_group"), "split_group")
def test_split_groups_add_none_either(run):
    run(split, world=4)


# ---- Their order, and their ends ---------------------------------------------------------------------


def ring(rank: int, world: int) -> None:
    """Members alone make their groups; half of the ranks never hear of one."""
    for first in (0, 1):  # as many on each rank, since PyTorch's names count them
        pairs = [[first, first + 1], sorted([first + 2, (first + 3) % 4])]
        mine = next(pair for pair in pairs if rank in pair)
        before = counts()
        group = dist.new_group(mine, use_local_synchronization=True)
        assert counts() == before
        check_sum(group, 2)
    dist.barrier()


@needs(LOCAL, "groups that their members alone make")
def test_members_alone(run):
    run(ring, world=4)


def two_at_once(rank: int, world: int) -> None:
    """The same ranks make two groups from two threads, whose order differs."""
    from tutti_torch import choose

    store, first = dist.distributed_c10d._get_default_store(), threading.Event()
    made = {}

    class Options:
        group_rank, group_size = rank, world
        global_ranks_in_group = [0, 1]
        timeout = timedelta(seconds=30)

    def make(name: str) -> None:
        opts = Options()
        opts.store, opts.group_id = dist.PrefixStore(name, store), name
        made[name] = choose._create(opts)

    names = ["a", "b"] if rank == 0 else ["b", "a"]
    threads = [threading.Thread(target=make, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "ab":
        made[name].allreduce([tensor := torch.ones(2)], dist.AllreduceOptions()).wait()
        assert tensor[0] == world
        made[name].shutdown()


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_two_groups_of_the_same_ranks_in_any_order(run):
    run(two_at_once)


def outlive(rank: int, world: int) -> None:
    groups = [dist.new_group() for _ in range(4)]
    own_backend().shutdown()  # of the parent only
    for group in groups:
        check_sum(group, world)
        work = dist.all_reduce(tensor := torch.ones(2), group=group, async_op=True)
        work.wait()
        assert tensor[0] == world
    after = dist.new_group()  # in the store, since the parent is gone
    check_sum(after, world)


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_groups_outlive_the_one_they_were_made_from(run):
    run(outlive)


# ---- When the members must not use the parent ----------------------------------------------------------


def one_has_lost_it(rank: int, world: int) -> None:
    for loser in range(world):
        if rank == loser:
            own_backend().shutdown()
        if loser == 0:
            check_sum(dist.new_group(), world)
    group = dist.new_group()
    check_sum(group, world)


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_a_rank_without_the_parent(run):
    run(one_has_lost_it)
    run(one_has_lost_it, world=3)


def after_its_death(rank: int, world: int) -> None:
    """Each rank sees the abort at another moment."""
    if rank == 1:
        own_backend().abort()
    group = dist.new_group([0, 1])
    if rank < 2:
        check_sum(group, 2)
    with pytest.raises(GroupError, match="rank 1"):
        dist.barrier()


@needs(hasattr(BACKEND, "abort"), "Backend.abort")
def test_a_parent_that_dies_meanwhile(run):
    for _ in range(5):
        try:
            run(after_its_death, world=3)
        except AssertionError as error:  # the death came after the members had agreed
            assert "rank 1" in str(error) and "abort" in str(error), error
            assert "no answer" not in str(error), error


def other_default(rank: int, world: int) -> None:
    group = dist.new_group(backend="tutti")
    check_sum(group, world)
    if rank == 0:
        dist.destroy_process_group(group)
    else:
        with pytest.raises(GroupError, match="rank 0"):
            dist.all_reduce(torch.ones(1), group=group)


def test_a_default_group_of_another_backend(run):
    run(other_default, backend="gloo")


def under_the_debug_wrapper(rank: int, world: int, port: int) -> None:
    """On one rank only: the other rank's default group is the backend itself."""
    dist.init_process_group(
        "tutti", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    check_sum(None, world)
    groups = [dist.new_group() for _ in range(3)]
    for group in groups:
        check_sum(group, world)


def wrapped(rank: int, world: int, port: int) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        under_the_debug_wrapper(rank, world, port)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def test_under_the_debug_wrapper(run):
    run(wrapped, free_port(), backend="")


def other_sizes(rank: int, world: int, port: int) -> None:
    """As under torchrun: later default groups in the same store have groups of the same names with other members."""
    kind = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    store = dist.TCPStore(
        "127.0.0.1", port, world, rank == 0, timeout=timedelta(seconds=30), **kind
    )
    for members in ([0, 1], [0, 1, 2], [1, 2], [2, 0], [0, 1, 2], [0, 1]):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world)
        group = dist.new_group(members)
        if rank in members:
            check_sum(group, len(members))
        own_backend().shutdown()
        group = dist.new_group(members)  # the same in the store
        if rank in members:
            check_sum(group, len(members))
        dist.destroy_process_group()


@needs(hasattr(dist.ProcessGroup, "shutdown"), "ProcessGroup.shutdown")
def test_groups_of_the_same_names_with_other_members_in_one_store(run):
    run(other_sizes, free_port(), world=3, backend="")


def one_never_comes(rank: int, world: int) -> None:
    if rank != 1:
        with pytest.raises(RuntimeError, match=r"(?i)timed out.* missing: rank 1 \(1 of its parent\)"):
            dist.new_group(timeout=timedelta(seconds=1))
    dist.barrier()  # the parent lives


def test_a_member_that_never_comes_is_named(run):
    run(one_never_comes, world=3)


def mixed(rank: int, world: int) -> None:
    many(rank, world)
    if hasattr(dist.ProcessGroup, "shutdown"):
        outlive(rank, world)


def test_ranks_with_different_implementations(pools):
    if len(implementations()) < 2:
        pytest.skip("there is only one implementation here")
    if (2, "compiled+python") not in pools or not pools[2, "compiled+python"].usable:
        pools[2, "compiled+python"] = Ranks(2, "compiled+python")
    pools[2, "compiled+python"].run(mixed, (), "tutti")


# ---- The death of a rank ---------------------------------------------------------------------------

DEATH = """
import os, signal, sys, time, torch, torch.distributed as dist
import tutti_torch
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=world)
groups = [dist.new_group() for _ in range(20)]
works = [dist.all_reduce(torch.ones(5), group=group, async_op=True) for group in groups]
for work in works:
    work.wait()
survivors = dist.new_group([0, 2])
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for group in groups:
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(5), group=group)
        sys.exit(1)
    except RuntimeError as error:
        assert "rank 1" in str(error), error
        assert time.monotonic() - begin < 20
dist.all_reduce(x := torch.ones(1), group=survivors)
assert x.item() == 2
if sys.argv[4] == "again":
    dist.all_reduce(x := torch.ones(1), group=dist.new_group([0, 2]))
    assert x.item() == 2
print("GOOD", flush=True)
os._exit(0)
"""


def test_the_death_of_a_rank_with_many_groups(implementation):
    # in 1.13 new_group waits for all ranks of the program
    done = conftest.run_program(DEATH, 3, "again" if RELEASE >= (2, 0) else "", implementation)
    assert done[1].returncode == -signal.SIGKILL
    for rank in (0, 2):
        assert "GOOD" in done[rank].stdout, done[rank].stderr


GONE = """
import os, signal, sys, time, torch, torch.distributed as dist
import tutti_torch
rank, world, store, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=world)
shared = dist.distributed_c10d._get_default_store()
dist.barrier()
if rank == 1:
    while how.endswith("later") and shared.num_keys() < int(shared.get("keys")) + 4:
        time.sleep(0.001)  # until the others wait for this one
    if how.startswith("raise"):
        raise ValueError("no more data")
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 0:
    shared.set("keys", str(shared.num_keys() + 1))
shared.get("keys")
try:
    dist.new_group()
except RuntimeError as error:
    print("MESSAGE", " ".join(str(error).split()), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("how", ["kill", "kill later", "raise", "raise later"])
def test_a_member_that_dies_while_others_wait_for_it(implementation, how):
    done = conftest.run_program(GONE, 3, how, implementation)
    for rank in (0, 2):
        assert "MESSAGE" in done[rank].stdout and "rank 1 (" in done[rank].stdout, done[rank]
        assert ("no more data" if how.startswith("raise") else "lost") in done[rank].stdout


def centuries(rank: int, world: int) -> None:
    """Rank 0 waits in new_group before rank 1 comes."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("keys", str(store.num_keys() + 1))
    while rank and store.num_keys() < int(store.get("keys")) + 3:
        time.sleep(0.001)  # until rank 0 waits for this one
    check_sum(dist.new_group(timeout=timedelta(days=365 * 300)), world)


def test_a_time_limit_of_centuries(run):
    run(centuries)
