# test_errors.py -- what survivors of a failure are told.   SPDX-License-Identifier: MIT
from __future__ import annotations

import importlib
import json
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import conftest
import pytest
import torch
import torch.distributed as dist
from releases import RELEASE, GroupError, needs
from test_collectives import own_backend


def mismatch(rank: int, world: int) -> None:
    with pytest.raises(GroupError, match="all_reduce") as failure:
        dist.all_reduce(torch.ones(3 if rank == 0 else 4))
    text = str(failure.value)
    assert "rank 0" in text and "rank 1" in text and "3" in text and "4" in text, text
    with pytest.raises(GroupError, match="all_reduce"):  # the group is dead
        dist.barrier()


def test_ranks_that_disagree_are_both_named(run):
    run(mismatch)


def mismatch_async(rank: int, world: int) -> None:
    tensor = torch.ones(3)
    work = (
        dist.all_reduce(tensor, async_op=True)
        if rank == 0
        else dist.broadcast(tensor, 0, async_op=True)
    )
    future = work.get_future()
    with pytest.raises(GroupError, match="broadcast"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    with pytest.raises(RuntimeError, match="all_reduce"):
        future.wait()


def test_a_future_fails_with_its_work(run):
    run(mismatch_async)


def abort(rank: int, world: int) -> None:
    dist.barrier()
    if rank == 0:
        dist.group.WORLD.abort()
        with pytest.raises(RuntimeError, match="abort"):
            dist.barrier()
    else:
        with pytest.raises(GroupError, match="rank 0.*abort"):
            dist.barrier()
            dist.barrier()
    assert own_backend().get_error().name != "SUCCESS"


@needs(hasattr(dist.ProcessGroup, "abort"), "ProcessGroup.abort")
def test_abort(run):
    run(abort)


def fail_within(rank: int) -> None:
    """A call of which rank 1 finds in its middle that it cannot hold the result."""
    from tutti_torch import choose

    if choose.compiled() is None:
        sparse = torch.eye(3).to_sparse()
        how = {"side_effect": ValueError("no room")} if rank == 1 else {}
        with mock.patch("torch.sparse_coo_tensor", wraps=torch.sparse_coo_tensor, **how):
            dist.all_reduce(sparse)
        return
    store, wide = dist.distributed_c10d._get_default_store(), torch.zeros(4, 2).t()
    if rank == 0:
        store.wait(["changed"])
    works = [dist.barrier(async_op=True), dist.broadcast(wide, 0, async_op=True)]
    if rank == 1:  # all of its elements at one place
        wide.set_(torch.zeros(1).untyped_storage(), 0, (2, 4), (0, 0))
        store.set("changed", "")
    for work in works:
        work.wait()


def body_fails(rank: int, world: int) -> None:
    if rank == 1:
        with pytest.raises((GroupError, ValueError), match="no room|one place|single memory"):
            fail_within(rank)
        assert own_backend().get_error().name == "COMM_ERROR"
        return
    with pytest.raises(GroupError, match="rank 1"):
        fail_within(rank)  # may be complete before the other's end is known
        while True:
            dist.barrier()
    assert own_backend().get_error().name == "REMOTE_ERROR"


@needs(hasattr(torch._C._distributed_c10d, "ErrorType"), "Backend.get_error")
def test_a_failure_within_a_call_is_this_rank_s_own(run):
    run(body_fails)


def program_fails(rank: int, world: int) -> None:
    from tutti_torch import choose

    backend = own_backend()
    dist.barrier()
    if rank == 0:
        module = choose.compiled() or importlib.import_module("tutti_torch.trampoline")
        module.leave_all("ValueError: no data")
        assert backend.get_error().name == "COMM_ERROR"
        return
    with pytest.raises(GroupError, match="rank 0.*no data"):
        dist.barrier()
        dist.barrier()
    assert backend.get_error().name == "REMOTE_ERROR"


@needs(hasattr(torch._C._distributed_c10d, "ErrorType"), "Backend.get_error")
def test_a_program_that_fails_says_so_on_all_ranks(run):
    run(program_fails)


def time_limit(rank: int, world: int) -> None:
    dist.barrier()
    if rank == 0:
        opts = dist.BarrierOptions()
        opts.timeout = timedelta(milliseconds=300)
        begin = time.monotonic()
        with pytest.raises(GroupError, match="rank 1.*PyTorch's timeout="):
            own_backend().barrier(opts).wait()
        assert time.monotonic() - begin < 5
    else:
        with pytest.raises(GroupError):
            time.sleep(1)
            dist.barrier()


def test_a_time_limit_names_who_is_missing(run):
    run(time_limit)


def monitored(rank: int, world: int) -> None:
    dist.barrier()
    if rank == 0:
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.group.WORLD.monitored_barrier(timedelta(milliseconds=200), True)
    else:
        time.sleep(0.7)
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.barrier()


def test_monitored_barrier_names_who_is_missing(run):
    run(monitored)


def monitored_at_once(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank == 0:
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.group.WORLD.monitored_barrier(timedelta(0))
        store.set("told", "")
    else:
        store.wait(["told"])


def test_a_monitored_barrier_without_time_fails_at_once(run):
    run(monitored_at_once)


def monitored_by_name(rank: int, world: int) -> None:
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)


@pytest.mark.skipif(RELEASE < (2, 15), reason="before 2.15 it refuses what is not named gloo")
def test_monitored_barrier_of_torch_distributed(run):
    run(monitored_by_name)


def never_together(rank: int, world: int) -> None:
    work = dist.all_reduce(torch.ones(1), async_op=True) if rank == 0 else None
    if work:
        with pytest.raises(RuntimeError, match="in\\s+progress|not done"):
            work.wait(timedelta(milliseconds=50))
    else:
        time.sleep(0.3)
        dist.all_reduce(torch.ones(1))
    if work:
        work.wait()


def test_a_wait_that_times_out_leaves_the_group_alive(run):
    run(never_together)


# ---- Processes that end -------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
import tutti_torch
rank, world, store, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=world)
begin = time.monotonic()
try:
    for _ in range(3):
        dist.all_reduce(torch.ones(1000))
    begin = time.monotonic()
    if rank == world - 1 and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == world - 1 and how == "raise":
        raise ValueError("the data set is empty")
    if how == "return":
        sys.exit(0)
    dist.all_reduce(torch.ones(1000), async_op=(rank == 0))
    dist.barrier()
    dist.barrier()
except getattr(dist, "DistBackendError", RuntimeError) as error:
    print("MESSAGE", " ".join(str(error).split()))
    print("SECONDS", time.monotonic() - begin)
"""


def survive(how: str, implementation: str) -> list[conftest.Done]:
    return conftest.run_program(PROGRAM, 3, how, implementation)


def test_a_killed_rank_is_named(implementation):
    *survivors, _ = survive("kill", implementation)
    for process in survivors:
        assert process.returncode == 0, process.stderr
        assert "MESSAGE" in process.stdout and "rank 2" in process.stdout, process.stdout
        seconds = float(process.stdout.split("SECONDS")[1].split()[0])
        assert seconds < 2, process.stdout


def test_an_exception_of_one_rank_reaches_the_others(implementation):
    *survivors, failed = survive("raise", implementation)
    assert failed.returncode == 1 and "the data set is empty" in failed.stderr
    for process in survivors:
        assert process.returncode == 0, process.stderr
        assert "rank 2" in process.stdout and "the data set is empty" in process.stdout


def test_the_end_of_a_program_without_destroy(implementation):
    for process in survive("return", implementation):
        lines = [line for line in process.stderr.splitlines() if " has waited " not in line]  # slow
        assert process.returncode == 0 and not lines, process.stderr


GROUPS = """
import json, os, signal, sys
import torch, torch.distributed as dist
import tutti_torch
rank, world, store, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
folder = os.path.dirname(store)
path = f"{folder}/{rank}.json"
os.environ["TORCHELASTIC_ERROR_FILE"] = path
dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=world)
alone = [dist.new_group([each]) for each in range(world)]
backwards = dist.new_group(list(range(world))[::-1])
dist.barrier(group=backwards)
if rank == 2:
    if how == "raise":
        raise ValueError("the data set is empty")
    if how == "interrupt":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


def end_with_groups(how: str, implementation: str, tmp_path: Path) -> list[dict[str, str]]:
    """What each rank's file for the launcher says at the end."""
    keep = f"import atexit, shutil\natexit.register(lambda: shutil.copy(path, {str(tmp_path)!r}))\n"
    source = GROUPS.replace("dist.init_process_group", keep + "dist.init_process_group", 1)
    conftest.run_program(source, 3, how, implementation)
    files = sorted(tmp_path.glob("*.json"))
    return [json.loads(file.read_text())["message"] for file in files]


def test_the_launcher_is_told_of_the_killed_rank_not_of_the_exceptions_that_follow(implementation, tmp_path):
    reports = end_with_groups("kill", implementation, tmp_path)
    assert len(reports) == 2
    for report in reports:
        assert report["message"].startswith("rank 2 "), report
        assert float(report["extraInfo"]["timestamp"]) > time.time() + 5, report  # a peer's


def test_the_launcher_is_told_the_rank_in_the_default_group(implementation, tmp_path):
    reports = end_with_groups("raise", implementation, tmp_path)
    assert reports[2]["message"].startswith("rank 2 "), reports[2]
    for report in reports:
        assert "the data set is empty" in report["message"], report
        assert report["message"].startswith("rank 2 "), report


def test_an_exception_without_text_is_named(implementation, tmp_path):
    for report in end_with_groups("interrupt", implementation, tmp_path):
        assert report["message"].endswith("its program ended with KeyboardInterrupt"), report


ALONE = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
import tutti_torch
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
limit = timedelta(seconds=0.5)
try:
    if rank == 0:
        where = "file://" + store
        dist.init_process_group("tutti", init_method=where, rank=0, world_size=2, timeout=limit)
except RuntimeError as error:
    print("MESSAGE", error)
"""


def test_a_rank_that_never_came_is_named(implementation):
    alone, _ = conftest.run_program(ALONE, 2, "", implementation)
    assert "1 of 2 ranks never came: rank 1" in alone.stdout, alone
    assert "Exception ignored" not in alone.stderr, alone.stderr


def other_shapes(rank: int, world: int) -> None:
    with pytest.raises(GroupError, match=r"\[3, 3\] .*rank 0.*\[5, 5\] .*rank 1"):
        dist.all_reduce(torch.eye(3 if rank == 0 else 5).to_sparse())


def other_dimensions(rank: int, world: int) -> None:
    with pytest.raises(GroupError, match=r"\[3, 3\] .*rank 0.*\[3, 3\] .*rank 1"):
        dist.all_reduce(torch.eye(3).to_sparse(2 if rank == 0 else 1))


def test_sparse_tensors_of_different_shapes(run):
    run(other_shapes)
    run(other_dimensions)


def too_large(rank: int, world: int) -> None:
    opts = dist.BroadcastOptions()
    opts.rootRank = 2**32
    with pytest.raises(RuntimeError, match="root"):
        own_backend().broadcast([torch.ones(1)], opts)
    n = 2**62
    with pytest.raises(RuntimeError, match="all_to_all_single.*rows"):
        dist.all_to_all_single(torch.ones(4, 4), torch.ones(4, 4), [n, n, n, n + 4], [1] * 4)
    dist.barrier()


def test_numbers_that_would_overflow(run):
    run(too_large, world=4)


def no_rows(rank: int, world: int) -> None:
    for output, input in ((torch.ones(()), torch.ones(2)), (torch.ones(2), torch.ones(()))):
        with pytest.raises(RuntimeError, match="has no dimensions"):
            dist.all_to_all_single(output, input)
    dist.barrier()


def test_all_to_all_single_of_a_tensor_without_rows(run):
    run(no_rows)
