# pytorch_ddp.py -- an ordinary PyTorch DDP program, which knows nothing of Tutti.   SPDX-License-Identifier: MIT
#
#     tutti run -n 2 examples/pytorch_ddp.py        in place of: torchrun --nproc-per-node 2 examples/pytorch_ddp.py
#
# Linear regression, 10 -> 1, by Gloo on the CPU. It only uses the launcher's environment.
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(samples):
    random = torch.Generator().manual_seed(7)
    x = torch.randn(samples, 10, generator=random)
    weights = torch.linspace(-1, 1, 10).unsqueeze(1)
    return TensorDataset(x, x @ weights + 0.5)


def check_replicas(model):
    """Parameters are the same bits on all ranks."""
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, mine)
    for rank, theirs in enumerate(all_ranks):
        if not torch.equal(mine, theirs):
            raise RuntimeError(f"rank {rank} has other parameters than rank {dist.get_rank()}")


def train(args):
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo")  # env://: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE
    torch.manual_seed(rank)  # replicas start with different weights: DDP copies rank 0's
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    data = make_data(512)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == args.fail_rank:
            raise ValueError(f"rank {rank} was asked to fail")
        if rank == 0:
            print(f"epoch {epoch}  loss {loss.item():.6f}", flush=True)
    check_replicas(model)
    print(f"rank {rank} (local {local_rank}) of {dist.get_world_size()}: done, replicas agree", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fail-rank", type=int, default=-1, help="this rank raises an exception after an epoch")
    parser.add_argument("--record", action="store_true", help="as torchrun's users decorate main, for its error file")
    arguments = parser.parse_args()
    (record(train) if arguments.record else train)(arguments)
