"""Two ranks on each of two hosts: collectives, groups across hosts, messages; a death; other members.   SPDX-License-Identifier: MIT

  torchrun ... torch_hosts.py works|dies|regroups
"""
import os
import signal
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

HERE = socket.gethostname()


def works():
    dist.init_process_group("tutti")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.full((100000,), float(rank + 1))
    dist.all_reduce(x)
    assert x[0] == x[-1] == world * (world + 1) / 2
    across = [dist.new_group([i, i + 2]) for i in (0, 1)][rank % 2]  # one rank of each host
    y = torch.tensor([float(rank)])
    dist.all_reduce(y, group=across)
    assert y.item() == 2 * (rank % 2) + 2
    other, z = (rank + 2) % world, torch.zeros(len(x))
    ops = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, z, other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(z, x)
    print(f"rank {rank} of {world} works on {HERE}", flush=True)
    dist.destroy_process_group()


def dies():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the other worker of the host
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
    except dist.DistBackendError as error:
        print(f"rank {rank} sees: {error}", flush=True)
    os._exit(1)


def regroups():
    """The first rank of the first host leaves; the handles go through the job's store."""
    dist.init_process_group("tutti", enable_reconfigure=True, timeout=timedelta(seconds=30))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.distributed_c10d._get_default_store()
    store.set(f"handle/{rank}", dist._get_reconfigure_handle())
    handles = [store.get(f"handle/{r}").decode() for r in range(world)]
    dist._reconfigure(1, handles).wait()
    x = torch.ones(1000)
    dist.all_reduce(x)
    assert x[0] == world
    if rank > 0:
        dist._reconfigure(2, handles[1:]).wait()
        x = torch.ones(1000)
        dist.all_reduce(x)
        assert x[0] == world - 1
    print(f"rank {rank} on {HERE} has {int(x[0])} members, by {handles[rank].split(':', 4)[4]}", flush=True)
    store.add("over", 1)
    while store.add("over", 0) < world:  # the job's store is in the first rank
        pass
    dist.destroy_process_group()


{"works": works, "dies": dies, "regroups": regroups}[sys.argv[1]]()
