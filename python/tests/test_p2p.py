# test_p2p.py -- sends and receives.   SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from releases import COALESCES, needs
from test_collectives import ALL, own_backend, same, values


def types_and_sizes(rank: int, world: int) -> None:
    for dtype in ALL:
        for n in (0, 1, 100, 100000):
            want = values(0, n, dtype)
            if rank == 0:
                own_backend().send([want.clone()], 1, 3).wait()
            elif rank == 1:
                got = torch.empty(n, dtype=dtype)
                own_backend().recv([got], 0, 3).wait()
                same(got, want)


def test_types_and_sizes(run):
    run(types_and_sizes)


def tags(rank: int, world: int) -> None:
    if rank == 0:
        works = [dist.isend(torch.full((n,), float(n)), 1, tag=n) for n in (1, 2, 3)]
        for work in works:
            work.wait()
    else:
        for n in (3, 1, 2):  # not in the order of the sends
            got = torch.empty(n)
            dist.recv(got, 0, tag=n)
            same(got, torch.full((n,), float(n)))


def test_tags(run):
    run(tags)


def from_any(rank: int, world: int) -> None:
    if rank:
        dist.send(torch.tensor([float(rank)]), 0, tag=rank % 2)
        return
    seen = []
    for tag in [r % 2 for r in range(1, world)]:
        got = torch.empty(1)
        source = dist.recv(got, tag=tag)
        assert source == int(got.item())
        seen.append(source)
    assert sorted(seen) == list(range(1, world))


def test_receive_from_any_rank(run):
    run(from_any, world=3)


def ring(rank: int, world: int) -> None:
    big = torch.full((300000,), float(rank))
    got, small = torch.empty(300000), torch.empty(2)
    ops = [
        dist.P2POp(dist.irecv, got, (rank - 1) % world),
        dist.P2POp(dist.isend, big, (rank + 1) % world),
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank - 1) % world, tag=1),
        dist.P2POp(dist.irecv, small, (rank + 1) % world, tag=1),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got[0] == (rank - 1) % world and small[1] == (rank + 1) % world


def test_batches(run):
    run(ring, world=2)
    run(ring, world=3)


def ring_coalesced(rank: int, world: int) -> None:
    big = torch.full((300000,), float(rank))
    got, small = torch.empty(300000), torch.full((2,), float(rank + 1))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as cm:
        dist.isend(big, (rank + 1) % world)
        dist.irecv(got.zero_(), (rank - 1) % world)
        dist.broadcast(small, 0, async_op=True)
    cm.wait()
    assert got[-1] == (rank - 1) % world and small[0] == 1


@needs(COALESCES, "manager of coalesced messages")
def test_coalesced_messages(run):
    run(ring_coalesced, world=2)
    run(ring_coalesced, world=3)


def strided(rank: int, world: int) -> None:
    if rank == 0:
        dist.send(torch.arange(6.0).reshape(2, 3).t(), 1)
    else:
        got = torch.empty(2, 3).t()
        work = dist.irecv(got, 0)
        work.wait()
        same(got, torch.arange(6.0).reshape(2, 3).t())


def test_strides(run):
    run(strided)


def limits(rank: int, world: int) -> None:
    if rank == 1:
        work = dist.irecv(got := torch.empty(1), 0)
        assert not work.is_completed()
        with pytest.raises(RuntimeError, match="recv.*(still in progress|not done)"):
            work.wait(timedelta(milliseconds=30))
        dist.barrier()
        work.wait()  # the message comes later, and the receive is still good
        assert work.is_completed() and got.item() == 7
    else:
        dist.barrier()
        dist.send(torch.tensor([7.0]), 1)
    dist.barrier()


def test_a_wait_that_times_out_can_be_repeated(run):
    run(limits)


def future(rank: int, world: int) -> None:
    if rank == 0:
        dist.barrier()
        dist.send(torch.tensor([3.0]), 1)
        return
    work = dist.irecv(got := torch.empty(1), 0)
    chained = work.get_future().then(lambda f: f.value()[0] + 1)
    dist.barrier()
    assert chained.wait().item() == 4 and got.item() == 3


def test_a_receive_has_a_future(run):
    run(future)


def many_futures(rank: int, world: int) -> None:
    """They need one thread for all of them."""
    peer = 1 - rank
    backend = own_backend()
    sent = [torch.full((5,), float(i)) for i in range(40)]
    got = [torch.zeros(5) for _ in sent]
    dist.barrier()
    before = len(os.listdir("/proc/self/task"))
    works = [backend.recv([tensor], peer, tag) for tag, tensor in enumerate(got)]
    futures = [work.get_future().then(lambda f: f.value()[0][0].item()) for work in works]
    assert len(os.listdir("/proc/self/task")) <= before + 4
    dist.barrier()
    for tag in reversed(range(len(sent))):
        backend.send([sent[tag]], peer, tag).wait()
    assert [future.wait() for future in futures] == [float(i) for i in range(len(sent))]


def test_futures_need_no_thread_each(run):
    run(many_futures)


def late_future(rank: int, world: int) -> None:
    """Nobody waits in the library, and the limit of the message passes all the same."""
    dist.barrier()
    if rank == 1:
        with pytest.raises(RuntimeError):  # rank 0 never comes
            dist.barrier()
        return
    own_backend().set_timeout(timedelta(seconds=0.5))
    future = own_backend().recv([torch.zeros(1)], 1, 0).get_future()
    own_backend().set_timeout(timedelta(seconds=60))
    with pytest.raises(RuntimeError, match="Timed out"):
        future.wait()


BACKEND = getattr(torch._C._distributed_c10d, "Backend", None)


@needs(hasattr(BACKEND, "set_timeout"), "Backend.set_timeout")
def test_a_future_fails_when_its_message_is_late(run):
    run(late_future)


def forgotten(rank: int, world: int) -> None:
    """Works that nobody keeps: their messages still arrive, and nothing waits for the other rank."""
    other = 1 - rank
    dist.isend(torch.full((300000,), float(rank)), other)
    dist.isend(torch.full((2,), float(rank)), other, tag=1)
    dist.recv(small := torch.empty(2), other, tag=1)
    dist.recv(big := torch.empty(300000), other)
    assert big[-1] == other and small[0] == other


def test_sends_that_nobody_waits_for(run):
    run(forgotten)
