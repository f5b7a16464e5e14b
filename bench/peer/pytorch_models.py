"""Times training steps and decoded tokens of PyTorch models over a backend: one line "MODEL MILLISECONDS" each on rank 0.

  tutti run -n 2 python pytorch_models.py BACKEND MODEL...     BACKEND: gloo, tutti, tutti_memory: buckets in the group's memory
  MODEL: ddp_mini_resnet   DistributedDataParallel, batch 8, 2.8 M parameters
         ddp_gpt2          DistributedDataParallel, GPT-2 124M, batch 1 x 64 tokens
         fsdp2_gpt2        fully_shard of the same, block by block
         tp_llama          a token through a tensor-parallel network of Llama's shapes, 1 B parameters in bf16, 48 layers of
                           two all_reduces each: LAYERS, WIDTH change it

Random data and weights. The median of STEPS (default 7) steps, of which a step is as slow as its slowest rank.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from pytorch_step import MiniResNet

STEPS = int(os.environ.get("STEPS", 7))
IN_GROUP_MEMORY = sys.argv[1] == "tutti_memory"


def mini_resnet():
    return MiniResNet(3), (torch.randn(8, 3, 32, 32), torch.randint(10, (8,)))


class Layer(nn.Module):
    """A block of GPT-2: attention and MLP, each after a layer norm and beside a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """124M parameters; the head is the embedding."""

    def __init__(self, width=768, layers=12, vocabulary=50257, context=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.wte.weight.T


def gpt2():
    tokens = torch.randint(50257, (1, 65))
    return GPT2(), (tokens[:, :-1], tokens[:, 1:].flatten())


def training_step(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(batch[0]).flatten(0, -2), batch[1]).backward()
        optimizer.step()

    return step


def fsdp2_gpt2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, batch = gpt2()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(model, mesh=mesh)
    if IN_GROUP_MEMORY:
        for module in (model, *model.layers):
            module.set_allocate_memory_from_process_group_for_comm(True)
    return training_step(model, batch)


def tp_llama():
    """Attention's and the MLP's products for one token, each rank with its part of the columns, then of the rows."""
    size, width, layers = dist.get_world_size(), int(os.environ.get("WIDTH", 1536)), int(os.environ.get("LAYERS", 48))
    hidden = width * 8 // 3 // size
    part = width // size
    make = lambda rows, columns: torch.randn(rows, columns, dtype=torch.bfloat16) * columns**-0.5
    weights = [(make(3 * part, width), make(width, part), make(2 * hidden, width), make(width, hidden)) for _ in range(layers)]
    token = torch.randn(1, width, dtype=torch.bfloat16)

    def step():
        x = token
        with torch.no_grad():
            for qkv, out, gate_up, down in weights:
                y = F.linear(F.linear(F.rms_norm(x, (width,)), qkv)[:, -part:], out)
                dist.all_reduce(y)
                x = x + y
                gate, up = F.linear(F.rms_norm(x, (width,)), gate_up).chunk(2, 1)
                y = F.linear(F.silu(gate) * up, down)
                dist.all_reduce(y)
                x = x + y

    return step


def make(model):
    if model == "fsdp2_gpt2":
        return fsdp2_gpt2()
    if model == "tp_llama":
        return tp_llama()
    network, batch = {"ddp_mini_resnet": mini_resnet, "ddp_gpt2": gpt2}[model]()
    wrap = nn.parallel.DistributedDataParallel
    if IN_GROUP_MEMORY:
        from tutti_torch import ddp_in_group_memory as wrap
    return training_step(wrap(network), batch)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("tutti" if IN_GROUP_MEMORY else sys.argv[1])
    for model in sys.argv[2:]:
        step = make(model)
        times = []
        for i in range(STEPS + 2):
            dist.barrier()
            begin = time.perf_counter()
            step()
            spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            if i >= 2:
                times.append(float(spent) * 1e3)
        del step
        if dist.get_rank() == 0:
            print(model, f"{statistics.median(times):.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
