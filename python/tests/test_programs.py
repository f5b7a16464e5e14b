# test_programs.py -- what people do with torch.distributed, beside Gloo.   SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import conftest
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from releases import RELEASE, needs, skip, skip_on
import tutti_torch
from test_collectives import same


def net() -> nn.Module:
    torch.manual_seed(1)
    sizes = ((20, 50), (50, 50), (50, 5))
    layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = 3) -> None:
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [
        (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
        for p in model.parameters()
    ]


def step_ddp(rank: int, world: int, hook: str) -> list[torch.Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    model = nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=0.005)
    if hook == "bf16":
        with skip_on(TypeError, text="BF16"):
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, warm_start=True)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
    return weights(model)


@pytest.mark.parametrize("hook", ["", "bf16", "powersgd"])
def test_ddp(run, hook):
    ours = run(step_ddp, hook)
    if hook == "powersgd":  # callbacks that wait for further calls: Gloo breaks their order
        theirs = [ours[1], ours[0]]
    else:
        theirs = run(step_ddp, hook, backend="gloo")
    for a, b in zip(ours[0] + ours[1], theirs[0] + theirs[0]):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def mapping_of(p: int) -> str:
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= p < end:
                return line
    return ""


def step_ddp_in_group_memory(rank: int, world: int, shared: bool) -> list[torch.Tensor]:
    """Whether each bucket was in the group's memory is the last tensor."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 5))
    make = tutti_torch.ddp_in_group_memory if shared else nn.parallel.DistributedDataParallel
    model = make(net, bucket_cap_mb=0.2)
    group_mapping = mapping_of(tutti_torch.empty(1 << 16).data_ptr())
    inside: list[bool] = []

    def hook(state, bucket):  # PyTorch refuses annotations that are text
        if bucket.buffer().numel() * bucket.buffer().element_size() >= 1 << 16:
            inside.append(mapping_of(bucket.buffer().data_ptr()) == group_mapping)
        average = dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future()
        return average.then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
    return [*weights(model), torch.tensor(inside)]


@needs(hasattr(nn.parallel.DistributedDataParallel, "_pre_forward"), "place before DDP's forward")
def test_ddp_in_group_memory(run, implementation):
    if implementation != "compiled" or not hasattr(torch.futures, "Future"):
        pytest.skip("the implementation in Python cannot give PyTorch memory")
    for shared, ordinary in zip(
        run(step_ddp_in_group_memory, True), run(step_ddp_in_group_memory, False)
    ):
        assert shared[-1].all() and len(shared[-1]) >= 3 and not ordinary[-1].any()
        for a, b in zip(shared[:-1], ordinary[:-1]):
            assert torch.equal(a, b)


def pickle_ddp_in_group_memory(rank: int, world: int) -> None:
    model = tutti_torch.ddp_in_group_memory(nn.Linear(300, 300))
    again = pickle.loads(pickle.dumps(model))
    for one in (again, copy.deepcopy(model)):
        one(torch.ones(1, 300)).sum().backward()
        one(torch.ones(1, 300)).sum().backward()


def test_ddp_in_group_memory_can_be_pickled(run, implementation):
    if implementation != "compiled":
        pytest.skip("the implementation in Python cannot give PyTorch memory")
    run(pickle_ddp_in_group_memory)


@needs(RELEASE >= (2, 0), "a wrapper that is asked for what it wraps")
def test_group_memory_with_debug_detail(implementation):
    text = (
        "import torch, torch.distributed as dist, tutti_torch\n"
        "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
        "x = tutti_torch.empty(4).fill_(2)\n"
        "dist.all_reduce(x)\n"
        "print(x.sum().item())\n"
    )
    environment = {
        **os.environ, **conftest._environment(implementation), "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    }
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment, timeout=conftest.LIMIT_S
    )
    assert done.returncode == 0 and done.stdout == "8.0\n", done.stderr + done.stdout


def step_ddp_of_a_part(rank: int, world: int) -> None:
    """The group of the model is not the default one, and not named where PyTorch takes it by its place."""
    part = dist.new_group([0, 1])
    if rank < 2:
        kind = nn.parallel.DistributedDataParallel
        options = list(inspect.signature(kind).parameters.values())[1:]
        before = [option.default for option in options[: [o.name for o in options].index("process_group")]]
        model = tutti_torch.ddp_in_group_memory(nn.Linear(20, 900), *before, part)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
        dist.all_reduce(sums := torch.stack([p.sum() for p in model.parameters()]).detach(), group=part)
        same(sums, 2 * torch.stack([p.sum() for p in model.parameters()]).detach())
    dist.barrier()


def nested_scopes(rank: int, world: int) -> None:
    with tutti_torch.group_memory():
        with tutti_torch.group_memory():
            inner = torch.empty(1 << 16)
        outer = torch.empty(1 << 16)
    after = torch.empty(1 << 16)
    mapping = mapping_of(tutti_torch.empty(1 << 16).data_ptr())
    inside = [mapping_of(tensor.data_ptr()) == mapping for tensor in (inner, outer, after)]
    assert inside == [True, True, False]


@pytest.mark.parametrize("body", [step_ddp_of_a_part, nested_scopes])
def test_scopes_of_group_memory(run, implementation, body):
    if implementation != "compiled":
        pytest.skip("the implementation in Python cannot give PyTorch memory")
    run(body, world=3)


def fsdp2() -> Callable[..., nn.Module]:
    """fully_shard, if it computes on CPUs."""
    with skip_on(ImportError, ValueError):  # ValueError: 1.13 with Python 3.11
        from torch.distributed.fsdp import fully_shard
    if not hasattr(torch.cpu.Stream, "record_event"):
        skip("FSDP2 does not compute on CPUs (Stream has no record_event)")
    return fully_shard


def step_fsdp(rank: int, world: int, from_group: bool, divide: bool) -> list[torch.Tensor]:
    fully_shard, model = fsdp2(), net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    if from_group:
        if not hasattr(model, "set_allocate_memory_from_process_group_for_comm"):
            skip("FSDP2 takes no memory from the group")
        model.set_allocate_memory_from_process_group_for_comm(True)
    if divide:
        if not hasattr(model, "set_gradient_divide_factor"):
            skip("FSDP2 has no divide factor for all gradients")
        model.set_gradient_divide_factor(4.0)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
    return weights(model)


@pytest.mark.parametrize("from_group,divide", [(False, False), (True, False), (False, True)])
def test_fsdp2(run, from_group, divide):
    ours = run(step_fsdp, from_group, divide)
    theirs = run(step_ddp, "", backend="gloo")
    if divide:
        theirs = run(step_fsdp, False, True, backend="gloo")
    for a, b in zip(ours[0], theirs[0]):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def hybrid(rank: int, world: int) -> list[torch.Tensor]:
    fully_shard, model = fsdp2(), net()
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
    return weights(model)


def test_hybrid_sharding(run):
    ours, theirs = run(hybrid, world=4), run(step_ddp, "", backend="gloo", world=4)
    for a, b in zip(ours[0], theirs[0]):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def dtensors(rank: int, world: int) -> None:
    with skip_on(ImportError):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

    mesh = init_device_mesh("cpu", (world,))
    full = torch.arange(35.0).reshape(7, 5)  # not divisible
    tensor = distribute_tensor(full, mesh, [Shard(0)])
    for placement in (Replicate(), Shard(1), Shard(0), Replicate()):
        tensor = tensor.redistribute(mesh, [placement])
        same(tensor.full_tensor(), full)
    one = distribute_tensor(full, mesh, [Shard(1)])
    two = distribute_tensor(full.t(), mesh, [Shard(0)])
    same((one @ two).full_tensor(), full @ full.t())

    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 7))
    reference = copy.deepcopy(model)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.ones(4, 20)
    torch.testing.assert_close(model(x), reference(x))


def test_dtensor_and_tensor_parallel(run):
    run(dtensors, world=2)
    run(dtensors, world=3)


def functional(rank: int, world: int) -> None:
    with skip_on(ImportError):
        import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    x = torch.full((4,), rank + 1.0)
    total = float(sum(range(1, world + 1)))
    same(funcol.all_reduce(x, "sum", group) + 0, torch.full((4,), total))
    same(funcol.all_reduce(x, "avg", group) + 0, torch.full((4,), total / world))
    every = torch.arange(1.0, world + 1).repeat_interleave(4)
    same(funcol.all_gather_tensor(x, 0, group) + 0, every)
    out = funcol.reduce_scatter_tensor(torch.arange(4.0 * world), "sum", 0, group)
    same(out + 0, world * torch.arange(4.0 * rank, 4.0 * rank + 4))
    outs = funcol.all_reduce_coalesced([x, x * 2], "sum", group)
    same(outs[1] + 0, torch.full((4,), 2 * total))
    outs = funcol.all_gather_into_tensor_coalesced([x, x], group)
    assert outs[1].shape == (4 * world,)
    outs = funcol.reduce_scatter_tensor_coalesced([torch.ones(world)] * 2, "sum", [0, 0], group)
    assert (outs[0] + 0).item() == world
    out = funcol.all_to_all_single(torch.full((world,), float(rank)), None, None, group)
    same(out + 0, torch.arange(float(world)))
    same(funcol.broadcast(x, 1, group) + 0, torch.full((4,), 2.0))


def test_functional_collectives(run):
    run(functional)


def compiled_step(rank: int, world: int) -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    same(f(torch.ones(5)), torch.full((5,), 2.0 * world + 1))


@needs(hasattr(torch, "compile"), "torch.compile")
def test_compile(run):
    run(compiled_step)


def zero(rank: int, world: int, sharded: bool) -> list[torch.Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(net())
    if sharded:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer, rank)
    return weights(model)


def test_zero_redundancy_optimizer(run):
    ours, theirs = run(zero, True), run(zero, False)
    for a, b in zip(ours[0], theirs[0]):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def checkpoint(rank: int, world: int, folder: str) -> None:
    with skip_on(ImportError, ValueError):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model)
    before = weights(model)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    for a, b in zip(weights(model), before):
        same(a, b)


def test_distributed_checkpoint(run, tmp_path):
    run(checkpoint, str(tmp_path))


def objects(rank: int, world: int) -> None:
    mine = {"rank": rank, "list": list(range(rank * 10))}
    got: list[object] = [None] * world
    dist.all_gather_object(got, mine)
    assert [o["rank"] for o in got] == list(range(world))
    dist.gather_object(mine, got if rank == 0 else None, dst=0)
    box = [mine if rank == 1 else None]
    dist.broadcast_object_list(box, src=1)
    assert box[0]["rank"] == 1
    out: list[object] = [None]
    dist.scatter_object_list(out, [{"for": r} for r in range(world)] if rank == 0 else None, src=0)
    assert out[0] == {"for": rank}
    if not hasattr(dist, "send_object_list"):
        return
    if rank == 0:
        dist.send_object_list([mine], 1)
    elif rank == 1:
        box = [None]
        dist.recv_object_list(box, 0)
        assert box[0]["rank"] == 0


def test_objects(run):
    run(objects)


def pipeline(rank: int, world: int) -> list[torch.Tensor] | None:
    with skip_on(ImportError):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(3)
    layers = [nn.Linear(8, 8) for _ in range(world)]
    stage = PipelineStage(layers[rank], rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    x = torch.arange(64.0).reshape(8, 8) / 64
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=torch.zeros(8, 8))
    return [p.grad.clone() for p in layers[rank].parameters()]


def in_one_process() -> list[torch.Tensor]:
    """What pipeline() computes. Some releases leave the division by the number of pieces to the program."""
    from torch.distributed.pipelining import Schedule1F1B

    torch.manual_seed(3)
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for x in (torch.arange(64.0).reshape(8, 8) / 64).chunk(4):
        nn.functional.mse_loss(layers(x), torch.zeros(2, 8)).backward()
    divides = "scale_grads" in inspect.signature(Schedule1F1B).parameters
    return [p.grad / 4 if divides else p.grad for p in layers.parameters()]


def test_pipeline(run):  # Gloo's send and receive may wait for each other here
    ours = run(pipeline)
    for a, b in zip(ours[0] + ours[1], in_one_process()):
        torch.testing.assert_close(a, b)
