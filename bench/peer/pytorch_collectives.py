"""Times collectives through torch.distributed, as users call them: one line "OP BYTES MICROSECONDS" each on rank 0.

  tutti run -n 2 python pytorch_collectives.py BACKEND BYTES...     BACKEND: gloo, tutti, fake (PyTorch's no-op)
  mpirun -n 2 python pytorch_collectives.py mpi BYTES...

Each number is the median over calls of the slowest rank's mean within a batch: every rank makes the calls of a batch one after
another, as in training, and the batches of all ranks begin together. all_gather and reduce_scatter count the larger buffer,
all_to_all the whole, as nccl-tests do.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

OPS = os.environ.get("OPS", "all_reduce all_gather reduce_scatter all_to_all send_recv").split()


def call_of(op, n, rank, size):
    """A function that makes the call once on f32 buffers of n elements in all."""
    whole, part = torch.ones(max(n, size)), torch.ones(max(n // size, 1))
    whole = whole[: part.numel() * size]
    if op == "all_reduce":
        x = torch.ones(n)
        return lambda: dist.all_reduce(x)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole)
    if op == "all_to_all":
        out = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(out, whole)
    x, peer = torch.ones(n), rank ^ 1

    def ping_pong():
        if rank % 2 == 0:
            dist.send(x, peer)
            dist.recv(x, peer)
        else:
            dist.recv(x, peer)
            dist.send(x, peer)

    return ping_pong if peer < size else lambda: None


def measure(call, budget_s):
    """Microseconds a call."""
    call()
    begin = time.perf_counter()
    call()
    once = time.perf_counter() - begin
    batch = max(1, min(200, int(0.004 / max(once, 1e-6))))
    times = []
    counts = torch.tensor([batch, max(5, min(60, int(budget_s / max(once * batch, 1e-6))))])
    dist.broadcast(counts, 0)
    batch, rounds = (int(v) for v in counts)
    for _ in range(rounds):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - begin) / batch)
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest.median()) * 1e6


def main():
    backend, sizes = sys.argv[1], [int(b) for b in sys.argv[2:]]
    torch.set_num_threads(1)
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    else:
        dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in OPS:
        for b in sizes:
            try:
                us = measure(call_of(op, max(b // 4, 1), rank, size), 0.4)
            except RuntimeError as error:
                if "support" not in str(error):  # what MPI's lacks is refused on all ranks
                    raise
                print(f"{backend}: {op}: {error}", file=sys.stderr)
                break
            if rank == 0:
                print(op, b, f"{us:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
