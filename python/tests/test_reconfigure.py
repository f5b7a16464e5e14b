# test_reconfigure.py -- PyTorch's interface of elasticity.   SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import conftest
import pytest
import torch
import torch.distributed as dist
from releases import skip_on
from test_collectives import own_backend
from tutti_torch import choose

pytestmark = [
    pytest.mark.skipif(
        not hasattr(dist, "_reconfigure"), reason=f"PyTorch {torch.__version__} has no reconfigure"
    ),
    pytest.mark.skipif(
        choose.load_compiled()[0] is None, reason="there is no compiled backend here"
    ),
]


@pytest.fixture
def run(pools):
    """Calls a function in processes without a group, which get the name of a file for a store."""

    def call(function, world=3):
        key = world, "compiled"
        if key not in pools or not pools[key].usable:
            pools[key] = conftest.Ranks(world, "compiled")
        with tempfile.TemporaryDirectory() as folder:
            return pools[key].run(function, (f"{folder}/store",), "")

    return call


def begin(rank: int, world: int, path: str, at_most_s: float = 30) -> dist.Store:
    store = dist.FileStore(path, -1)
    dist.init_process_group(
        "tutti",
        store=store,
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=at_most_s),
        enable_reconfigure=True,
    )
    return store


def everyones_handles(store: dist.Store, rank: int, world: int) -> list[str]:
    store.set(f"handle/{rank}", dist._get_reconfigure_handle())
    return [store.get(f"handle/{r}").decode() for r in range(world)]


def to(uuid: int, handles: Iterable[str], at_most_s: float = 30) -> None:
    dist._reconfigure(uuid, handles, timeout=timedelta(seconds=at_most_s)).wait()


def check_sum(size: int) -> None:
    assert dist.get_world_size() == size
    tensor = torch.full((3,), 2.0 ** dist.get_rank())
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0**size - 1] * 3


def first_membership(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    assert dist._supports_reconfigure() and own_backend().get_error().name == "SUCCESS"
    with pytest.raises(RuntimeError, match="no members yet"):
        dist.all_reduce(torch.ones(1))
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    check_sum(world)
    assert dist.get_rank() == rank
    assert own_backend()._get_sequence_number_for_group() == 1
    to(2, handles[::-1])
    check_sum(world)
    assert dist.get_rank() == world - 1 - rank
    to(3, set(handles))
    check_sum(world)
    assert dist.get_rank() == rank  # sorted by the first ranks
    assert dist._get_reconfigure_handle() == handles[rank]


def test_a_list_of_handles_orders_the_ranks_and_a_set_is_sorted(run):
    run(first_membership)


def split_and_merge(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    if rank == 0:
        to(2, handles[:1])
        check_sum(1)
    else:
        to(2, handles[1:])
        check_sum(world - 1)
    to(3, handles)
    check_sum(world)
    if rank > 0:
        to(4, handles[:0:-1])  # one leaves, the others change places
        check_sum(world - 1)
        assert dist.get_rank() == world - 1 - rank


def test_memberships_split_and_merge(run):
    run(split_and_merge)


def own_stores(rank: int, world: int, path: str) -> None:
    begin(0, 1, f"{path}-{rank}")
    outside = dist.FileStore(path, -1)
    to(1, [dist._get_reconfigure_handle()])
    to(2, everyones_handles(outside, rank, world))
    check_sum(world)


def test_processes_with_stores_of_their_own_come_together(run):
    run(own_stores)


def refused(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    own = [handles[rank]]
    to(7, own)
    for handles_given, words in (
        (own, "uuid 7 was already used"),
        ([], "no handles"),
        (own + own, "given twice"),
        ([*own, "gloo:0:1:0:"], "not a handle"),
        ([handles[rank - 1]], "not among the 1 given"),
    ):
        with pytest.raises(RuntimeError, match=words):
            to(7, handles_given)
    check_sum(1)  # what is refused changes nothing
    to(8, handles)
    check_sum(world)


def test_what_cannot_be_a_membership_is_refused(run):
    run(refused)


def others_given(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    if rank == 0:
        to(1, handles[:1])
        store.set("first", "here")
        with pytest.raises(dist.DistBackendError, match="never came.*rank"):
            to(2, handles, 1)
        assert own_backend().get_error().name == "TIMEOUT"
        with pytest.raises(RuntimeError, match="reconfigure 2 failed"):
            dist.barrier()
        store.set("second", "failed")
    else:
        store.get("second")
        if rank == 1:
            with pytest.raises(RuntimeError, match="other handles"):
                to(2, [handles[0], handles[1]])
    everyones_handles(store, rank, world)
    to(3, handles)
    check_sum(world)


def test_a_member_that_does_not_come_is_named(run):
    run(others_given)


def after_an_abort(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    check_sum(world)
    if rank == 0:
        own_backend().abort()
        assert own_backend().get_error().name == "COMM_ERROR"
    else:
        with pytest.raises(dist.DistBackendError, match="rank 0.*abort"):
            dist.barrier()
        assert own_backend().get_error().name == "REMOTE_ERROR"
    to(2, handles)
    assert own_backend().get_error().name == "SUCCESS"
    check_sum(world)


def test_recovery_after_an_abort(run):
    run(after_an_abort)


def after_a_time_out(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    own_backend().set_timeout(timedelta(milliseconds=500))
    told = threading.Event()
    own_backend().register_abort_hook(4, told.set)
    if rank > 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert told.wait(20)
        with pytest.raises(dist.DistBackendError, match="(?i)timed out.*rank 0"):
            work.wait()
        assert own_backend().get_error().name == "TIMEOUT"
        store.set(f"late/{rank}", "")
    else:
        store.wait([f"late/{r}" for r in range(1, world)])
    own_backend().unregister_abort_hook(4)
    own_backend().set_timeout(timedelta(seconds=30))
    to(2, handles)
    check_sum(world)


def test_recovery_after_a_time_out_and_its_hook(run):
    run(after_a_time_out)


def calls_in_progress(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    if rank == world - 1:
        with pytest.raises(dist.DistBackendError, match="rank [01] .*another membership"):
            dist.barrier()
        return
    work = dist.all_reduce(torch.ones(1), async_op=True) if rank == 0 else None
    received = own_backend().recv([torch.ones(1)], world - 1, 0)
    store.set(f"begun/{rank}", "")
    store.wait([f"begun/{r}" for r in range(world - 1)])
    to(2, handles[:-1])
    check_sum(world - 1)
    for pending in filter(None, (work, received)):
        with pytest.raises(dist.DistBackendError, match="another membership"):
            pending.wait()


def test_calls_of_the_old_membership_fail(run):
    run(calls_in_progress)


def in_a_callback(rank: int, world: int, path: str) -> None:
    """The membership stays, and the number is not used up."""
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    refused: list[str] = []

    def callback(_done: object) -> None:
        with pytest.raises(RuntimeError, match="in a callback") as error:
            to(2, handles)
        refused.append(str(error.value))

    if rank == 0:  # before the others make the call, so that it is not done yet
        work = dist.all_reduce(torch.ones(1), async_op=True)
        done = work.get_future().then(callback)
        store.set("called", "")
        done.wait()
        assert len(refused) == 1
    else:
        store.wait(["called"])
        dist.all_reduce(torch.ones(1))
    check_sum(world)
    to(2, handles)
    check_sum(world)


def test_a_callback_cannot_reconfigure(run):
    run(in_a_callback)


def parts_of_memberships(rank: int, world: int, path: str) -> None:
    """Each process has a store of its own, and has made other numbers of groups before: only the membership is common."""
    begin(0, 1, f"{path}-{rank}")
    outside = dist.FileStore(path, -1)
    handles = everyones_handles(outside, rank, world)
    to(1, handles[rank : rank + 1])
    for _ in range(rank):
        dist.new_group()
    to(2, handles)
    dist.all_reduce(tensor := torch.ones(1), group=dist.new_group())
    assert tensor.item() == world


def test_groups_made_of_a_membership_that_has_grown(run):
    run(parts_of_memberships)


def threads_and_descriptors() -> set[tuple[str, str]]:
    """Not their number: what earlier memberships and tests left may end at any time."""
    found = {("thread", path.name) for path in Path("/proc/self/task").iterdir()}
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile, as that of the folder is
            found.add((path.name, os.readlink(path)))
    return found


def parts_after_a_shrink(rank: int, world: int, path: str) -> None:
    store = begin(rank, world, path)
    handles = everyones_handles(store, rank, world)
    to(1, handles)
    with skip_on(RuntimeError, text="No device associated"):
        group = dist.split_group(split_ranks=[[2, 0, 1]])
    dist.all_reduce(torch.ones(1), group=group)
    dist.new_group([1, 2])
    if rank == 0:
        return
    to(3, handles[:0:-1])  # rank 0 is gone, the others change places
    check_sum(world - 1)  # all have the connections of this membership
    before = threads_and_descriptors()
    groups = [dist.new_group(), dist.split_group(split_ranks=[[1, 0]])]
    made = threads_and_descriptors() - before
    assert not made, made
    assert [dist.get_rank(group) for group in groups] == [world - 1 - rank, rank - 1]
    for group in groups:
        dist.all_reduce(tensor := torch.ones(1), group=group)
        assert tensor.item() == 2


def test_groups_made_after_a_shrink(run):
    run(parts_after_a_shrink)


# ---- Processes that die and are replaced -------------------------------------------------------------

MEMBER = """
import os, signal, sys, time
import torch, torch.distributed as dist
import test_reconfigure as t
number, rank, world, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
store = t.begin(rank, world, path if number < 3 else path + "-its-own")
board = dist.FileStore(path + "-board", -1)  # where the program's processes talk
board.set(f"handle/{number}", dist._get_reconfigure_handle())
handles = [board.get(f"handle/{n}").decode() for n in range(3)]
if number < 3:
    t.to(1, handles)
    t.check_sum(3)
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(torch.ones(1))
    except dist.DistBackendError as error:
        print("MESSAGE", " ".join(str(error).split()), flush=True)
    t.to(2, handles[1:])
    t.check_sum(2)
    print("SHRUNK", dist.get_rank(), flush=True)
    board.set(f"shrunk/{number}", "")
t.to(3, [*handles[1:], board.get("handle/3").decode()])
t.check_sum(3)
print("GROWN", dist.get_rank(), flush=True)
dist.destroy_process_group()
"""


def test_the_death_of_rank_0_and_its_replacement():
    environment = {**os.environ, **conftest._environment("compiled")}
    with tempfile.TemporaryDirectory() as folder:

        def start(number: int, rank: int, world: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", MEMBER, str(number), str(rank), str(world)]
            return subprocess.Popen(
                [*command, f"{folder}/store"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )

        members = [start(number, number, 3) for number in range(3)]
        try:
            board = dist.FileStore(f"{folder}/store-board", -1)
            board.wait(["shrunk/1", "shrunk/2"], timedelta(seconds=90))
            members.append(start(3, 0, 1))
            ends = [(*m.communicate(timeout=conftest.LIMIT_S), m.returncode) for m in members]
        finally:
            for member in members:
                member.kill()
    assert ends[0][2] == -signal.SIGKILL
    for i, (out, err, code) in enumerate(ends[1:]):
        assert code == 0, err
        assert f"GROWN {i}" in out, out
        if i < 2:
            assert "rank 0" in out.split("MESSAGE")[1] and f"SHRUNK {i}" in out, out


def test_the_backend_in_python_says_that_it_cannot(tmp_path: Path):
    if choose.why_no_python() is not None:
        pytest.skip(str(choose.why_no_python()))
    environment = {**os.environ, **conftest._environment("python")}
    program = f"import test_reconfigure as t; t.begin(0, 1, {str(tmp_path / 'store')!r})"
    begin_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert "enable_reconfigure needs the compiled backend" in done.stderr, done.stderr
    assert time.monotonic() - begin_s < 60
