# test_collectives.py -- every collective, with every element type.   SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import tutti_torch
from releases import COALESCES, RELEASE, at_once, needs, skip, types_of

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = types_of("uint16", "uint32", "uint64")
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = types_of("float8_e4m3fn", "float8_e5m2")
ALL = FLOATS + INTEGERS + UNSIGNED + COMPLEX + FLOAT8 + [torch.bool]


def values(rank: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    """n small numbers, others on each rank."""
    numbers = (torch.arange(n) * 7 + rank * 3 + 1) % 5
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() + rank).to(dtype)
    if dtype == torch.bool:
        return numbers > 2
    return numbers.to(torch.float32).to(dtype) if dtype in FLOAT8 else numbers.to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dtype in FLOAT8:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    torch.testing.assert_close(a, b)


def wide(tensors: list[torch.Tensor]) -> torch.Tensor:
    """All in one, in a type that holds what they reduce to."""
    stack = torch.stack([t.to(torch.float64) if not t.is_complex() else t for t in tensors])
    return stack


EXPECTED = (
    (dist.ReduceOp.SUM, lambda s: s.sum(0)),
    (dist.ReduceOp.AVG, lambda s: s.sum(0) / len(s)),
    (dist.ReduceOp.PRODUCT, lambda s: s.prod(0)),
    (dist.ReduceOp.MIN, lambda s: s.min(0).values),
    (dist.ReduceOp.MAX, lambda s: s.max(0).values),
)


def direct(tensor: torch.Tensor, op: object, async_op: bool) -> None:
    """Without what torch.distributed.all_reduce and the dispatcher change before the backend sees it."""
    opts = at_once(dist.AllreduceOptions(), async_op)
    opts.reduceOp = op
    own_backend().allreduce([tensor], opts).wait()


def own_backend() -> object:
    group = dist.group.WORLD  # in 1.13 it is the backend
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def reduce_all(rank: int, world: int) -> None:
    for dtype in FLOATS + INTEGERS + UNSIGNED + COMPLEX:
        for op, expected in EXPECTED:
            if dtype.is_complex and op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                continue
            if not (dtype.is_floating_point or dtype.is_complex) and op == dist.ReduceOp.AVG:
                continue
            for n, async_op in ((1, False), (1, True), (1000, False), (30000, True), (0, True)):
                tensor = values(rank, n, dtype)
                want = expected(wide([values(r, n, dtype) for r in range(world)]))
                direct(tensor, op, async_op)
                same(tensor, want.to(dtype))


def test_all_reduce(run):
    run(reduce_all, world=2)
    run(reduce_all, world=3)


def reduce_booleans(rank: int, world: int) -> None:
    every = [values(r, 100, torch.bool) for r in range(world)]
    some, all_ = torch.stack(every).any(0), torch.stack(every).all(0)
    odd = torch.stack(every).sum(0) % 2 == 1
    for op, want in (
        (dist.ReduceOp.SUM, some),
        (dist.ReduceOp.MAX, some),
        (dist.ReduceOp.BOR, some),
        (dist.ReduceOp.PRODUCT, all_),
        (dist.ReduceOp.MIN, all_),
        (dist.ReduceOp.BAND, all_),
        (dist.ReduceOp.BXOR, odd),
    ):
        tensor = every[rank].clone()
        dist.all_reduce(tensor, op)
        same(tensor, want)
    for op, want in ((dist.ReduceOp.BAND, 4 & 6), (dist.ReduceOp.BOR, 6), (dist.ReduceOp.BXOR, 2)):
        tensor = torch.tensor([4 if rank == 0 else 6])
        dist.all_reduce(tensor, op)
        assert tensor.item() == want


def test_all_reduce_of_booleans_and_bits(run):
    run(reduce_booleans)


def premul(rank: int, world: int) -> None:
    tensor = torch.tensor([0.5])
    for factor in (0.5, tensor if RELEASE >= (2, 0) else [tensor]):
        op = dist._make_nccl_premul_sum(factor)
        for dtype in (torch.float32, torch.bfloat16, torch.complex64):
            tensor = values(rank, 20, dtype)
            want = sum(values(r, 20, dtype) * 0.5 for r in range(world))
            direct(tensor, op, True)
            same(tensor, want)
        src = values(rank, 10 * world, torch.float32)
        kept, out = src.clone(), torch.empty(10)
        dist.reduce_scatter_tensor(out, src, op)
        want = sum(values(r, 10 * world, torch.float32) * 0.5 for r in range(world))
        same(out, want[10 * rank : 10 * rank + 10])
        same(src, kept)


def test_premultiplied_sum(run):
    run(premul)


def refused(rank: int, world: int) -> None:
    def says(text: str, call: object) -> None:
        with pytest.raises((RuntimeError, ValueError), match=text):
            call()

    says("AVG of .*[Ii]nt", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG))
    for dtype in FLOAT8:
        says("[Ff]loat8", lambda dtype=dtype: dist.all_reduce(torch.ones(2).to(dtype)))
    x = torch.ones(3)
    says(f"root is {world + 1}, expected", lambda: dist.group.WORLD.broadcast(x, world + 1).wait())
    rows = [1] * world
    says(r"input.*\[1, 1\].*3", lambda: dist.all_to_all_single(x.clone(), x, rows, rows))
    says(r"input.*\[3\].*expected 2", lambda: dist.all_to_all_single(x.clone(), x, [1, 2], [3]))
    says("bitwise|integers", lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    says("MAX", lambda: direct(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX, False))
    says("4|5", lambda: dist.all_gather_into_tensor(torch.ones(2 * world + 1), torch.ones(2)))
    says("meta|only", lambda: direct(torch.ones(2, device="meta"), dist.ReduceOp.SUM, False))
    dist.all_reduce(tensor := torch.ones(3))  # nothing was sent, so the group still works
    same(tensor, torch.full((3,), float(world)))


def test_what_has_no_meaning_is_refused_by_name(run):
    run(refused)


def move_all(rank: int, world: int) -> None:
    for dtype in ALL:
        for n in (0, 1, 17, 20000):
            every = [values(r, n, dtype) for r in range(world)]
            mine = every[rank].clone()

            root = world - 1
            tensor = mine.clone()
            dist.group.WORLD.broadcast([tensor], broadcast_opts(root)).wait()
            same(tensor, every[root])

            outs = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(outs, mine)
            for out, want in zip(outs, every):
                same(out, want)

            flat = torch.empty(n * world, dtype=dtype)
            dist.all_gather_into_tensor(flat, mine)
            same(flat, torch.cat(every))

            outs = [torch.empty_like(mine) for _ in range(world)] if rank == root else None
            dist.gather(mine, outs, dst=root)
            if rank == root:
                for out, want in zip(outs, every):
                    same(out, want)

            out = torch.empty_like(mine)
            dist.scatter(out, [t.clone() for t in every] if rank == 0 else None, src=0)
            same(out, every[rank])

            out = torch.empty(n * world, dtype=dtype)
            dist.all_to_all_single(out, torch.cat([mine] * world))
            same(out, torch.cat(every))


def broadcast_opts(root: int) -> object:
    opts = at_once(dist.BroadcastOptions())
    opts.rootRank = root
    return opts


def test_moving_calls(run):
    run(move_all, world=2)
    run(move_all, world=3)


def uneven(rank: int, world: int) -> None:
    every = [values(r, 5 * r, torch.float32) for r in range(world)]
    outs = [torch.empty(5 * r) for r in range(world)]
    dist.all_gather(outs, every[rank])
    for out, want in zip(outs, every):
        same(out, want)

    sends = [torch.full((rank + r + 1, 2), 10.0 * rank + r) for r in range(world)]
    outs = [torch.empty(rank + r + 1, 2) for r in range(world)]
    dist.all_to_all(outs, sends)
    for r, out in enumerate(outs):
        same(out, torch.full((rank + r + 1, 2), 10.0 * r + rank))

    rows = [rank + r for r in range(world)]
    src = torch.cat([torch.full((rank + r, 3), 10 * rank + r) for r in range(world)])
    dst = torch.empty(sum(rows), 3, dtype=src.dtype)
    dist.all_to_all_single(dst, src, rows, rows)
    same(dst, torch.cat([torch.full((rank + r, 3), 10 * r + rank) for r in range(world)]))

    parts = [torch.full((r + 1,), float(rank)) for r in range(world)]
    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, parts)
    same(out, torch.full((rank + 1,), float(sum(range(world)))))


def test_pieces_of_different_sizes(run):
    run(uneven, world=3)


def reductions(rank: int, world: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        total = sum(values(r, 12 * world, dtype) for r in range(world))
        tensor = values(rank, 12 * world, dtype)
        kept = tensor.clone()
        dist.reduce(tensor, dst=1)
        same(tensor, total if rank == 1 else kept)
        out = torch.empty(12, dtype=dtype)
        dist.reduce_scatter_tensor(out, kept)
        same(out, total[12 * rank : 12 * rank + 12])
        out = torch.empty(12, dtype=dtype)
        dist.reduce_scatter(out, [t.clone() for t in kept.chunk(world)])
        same(out, total[12 * rank : 12 * rank + 12])
    out = torch.empty(4)
    dist.reduce_scatter_tensor(out, torch.arange(4.0 * world), dist.ReduceOp.AVG)
    same(out, torch.arange(4.0 * rank, 4.0 * rank + 4))


def test_reductions_to_one_rank_and_to_each(run):
    run(reductions, world=2)
    run(reductions, world=3)


def strides(rank: int, world: int) -> None:
    """Ranks with different strides mean the same tensor."""
    base = torch.arange(24.0).reshape(2, 3, 4)
    own = base.permute(2, 0, 1).contiguous().permute(1, 2, 0) if rank == 0 else base.clone()
    for async_op in (False, True):
        tensor = own.clone(memory_format=torch.preserve_format)
        work = dist.all_reduce(tensor, async_op=async_op)
        if work:
            work.wait()
        same(tensor, base * world)
    tensor = torch.zeros(8)[::2] if rank else torch.arange(4.0)
    dist.broadcast(tensor, 0)
    same(tensor, torch.arange(4.0))
    outs = [torch.empty(4, 2).t() for _ in range(world)]
    dist.all_gather(outs, torch.full((2, 4), float(rank)))
    for r, out in enumerate(outs):
        same(out, torch.full((2, 4), float(r)))
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    want = image * world
    dist.broadcast(image, 0)
    want = image * world
    dist.all_reduce(image)
    same(image, want)
    leaf = torch.nn.Parameter(torch.ones(3, 4).t())
    dist.broadcast(leaf.data, 0)
    if own_backend() is dist.group.WORLD:
        return  # 1.13's dispatcher gives every backend a copy of such a tensor, and drops what is written there
    tensor = torch.tensor([1 + 2j]).conj()
    direct(tensor, dist.ReduceOp.SUM, False)
    same(tensor.resolve_conj(), torch.tensor([(1 - 2j) * world]))


def test_strides_do_not_matter(run):
    run(strides)


def coalesced(rank: int, world: int) -> None:
    tensors = [values(rank, n, torch.float32) for n in (3, 0, 5000)]
    wants = [sum(values(r, n, torch.float32) for r in range(world)) for n in (3, 0, 5000)]
    for async_ops in (False, True):
        copies = [t.clone() for t in tensors]
        with dist._coalescing_manager(async_ops=async_ops) as cm:
            for t in copies:
                dist.all_reduce(t)
        if async_ops:
            cm.wait()
        for t, want in zip(copies, wants):
            same(t, want)
    outs = [torch.empty(4 * world), torch.empty(2 * world, dtype=torch.int32)]
    srcs = [torch.full((4,), float(rank)), torch.full((2,), rank, dtype=torch.int32)]
    with dist._coalescing_manager():
        for out, src in zip(outs, srcs):
            dist.all_gather_into_tensor(out, src)
    for out, n in zip(outs, (4, 2)):
        same(out, torch.arange(world).repeat_interleave(n).to(out.dtype))
    out1, out2 = torch.empty(3), torch.empty(5)
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(out1, torch.ones(3 * world))
        dist.reduce_scatter_tensor(out2, torch.ones(5 * world))
    same(torch.cat([out1, out2]), torch.full((8,), float(world)))


@needs(COALESCES, "manager of coalesced collectives")
def test_coalesced_calls(run):
    run(coalesced)


def coalesced_lists(rank: int, world: int) -> None:
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), rank + 1.0)])
    for r, (a, b) in enumerate(lists):
        same(a, torch.full((2,), float(r)))
        same(b, torch.full((3,), r + 1.0))
    booleans = [torch.tensor([rank == 0]), torch.tensor([rank])]
    own_backend().allreduce_coalesced(booleans, dist.AllreduceCoalescedOptions()).wait()
    assert booleans[0].item() is True and booleans[1].item() == sum(range(world))


def test_coalesced_lists(run):
    run(coalesced_lists)


def sparse(rank: int, world: int) -> None:
    tensor = torch.sparse_coo_tensor([[rank, 3]], torch.ones(2, 2) * (rank + 1), (6, 2))
    dist.all_reduce(tensor)
    want = torch.zeros(6, 2)
    for r in range(world):
        want[r] += r + 1
        want[3] += r + 1
    same(tensor.to_dense(), want)
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (4,))
    one = torch.sparse_coo_tensor([[2]], [5.0], (4,))
    mixed = empty if rank == 0 else one
    dist.all_reduce(mixed)
    same(mixed.to_dense(), torch.tensor([0.0, 0.0, 5.0 * (world - 1), 0.0]))


def test_sparse_all_reduce(run):
    run(sparse)


def futures(rank: int, world: int) -> None:
    tensor = torch.full((4,), rank + 1.0)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda f: f.value()[0] * 2)
    same(doubled.wait(), torch.full((4,), 2.0 * sum(range(1, world + 1))))
    assert work.is_completed() and work.is_success()
    same(work.result()[0], tensor)
    outs = [torch.empty(2) for _ in range(world)]
    work = dist.all_gather(outs, torch.full((2,), float(rank)), async_op=True)
    got = work.get_future().wait()
    assert [t[0].item() for t in got] == list(range(world))
    assert dist.barrier(async_op=True).wait()

    # a collective that a callback issues keeps its place in the order
    order = []
    first, second, third = torch.ones(1), torch.ones(2), torch.ones(3)

    def again(future: object) -> object:
        dist.all_reduce(second)
        order.append(rank)
        return second

    work = dist.all_reduce(first, async_op=True)
    chained = work.get_future().then(again)
    last = dist.all_reduce(third, async_op=True)
    last.wait()
    chained.wait()
    same(torch.cat([first, second, third]), torch.full((6,), float(world)))
    for _ in range(50):  # whoever is first: the callback, the waiter, the end of the call
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        work.wait()
        same(future.wait()[0], torch.full((3,), float(world)))


def test_futures(run):
    run(futures)


def many_at_once(rank: int, world: int) -> None:
    tensors = [torch.full((1 + 100 * i,), float(rank)) for i in range(100)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    dist.all_reduce(tensor := torch.ones(1))  # at once, among queued ones
    for work in reversed(works):
        work.wait()
    for t in tensors:
        same(t, torch.full_like(t, float(sum(range(world)))))
    same(tensor, torch.full((1,), float(world)))


def test_many_calls_in_flight(run):
    run(many_at_once)


def shapes_in_profiles(rank: int, world: int) -> None:
    if tutti_torch.implementation() != "compiled":
        skip("what is written in Python is not in profiles by its own name")
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(2, 3))
        dist.all_reduce(torch.ones(4), async_op=True).wait()
        dist.all_gather([torch.ones(5) for _ in range(world)], torch.ones(5))
        if rank == 0:
            dist.send(torch.ones(6), 1)
            dist.send(torch.ones(7), 1)
        elif rank == 1:
            dist.recv(torch.ones(6), 0)
            dist.recv(torch.ones(7))
    found = {(e.name, str(e.input_shapes)) for e in profile.events() if "tutti:" in e.name}
    messages = {0: ("send", "send"), 1: ("recv", "recvAnySource")}[rank]
    assert found == {
        ("tutti:all_reduce", "[[2, 3]]"),
        ("tutti:all_reduce", "[[4]]"),
        ("tutti:all_gather", "[[5]]"),
        (f"tutti:{messages[0]}", "[[6]]"),
        (f"tutti:{messages[1]}", "[[7]]"),
    }, found


def test_profiles_show_the_shapes_of_inputs(run):
    run(shapes_in_profiles)
