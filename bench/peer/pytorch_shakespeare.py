#!/usr/bin/env python3
"""nanoGPT's model for CPUs on Tiny Shakespeare in PyTorch, with the settings of `tutti train --model gpt2 --data shakespeare`:
4 layers, 4 heads, width 128, context 64, batch 12, AdamW (0.9, 0.99), lr 1e-3 to 1e-4 by a cosine after 100 steps, decay 0.1 of matrices,
gradients clipped to 1, no dropout. Each line of output: steps, seconds of training, loss on the whole last tenth of the text, and CPU
seconds of training, which other programs on the machine disturb less.
  pytorch_shakespeare.py [--steps 2000] [--every 250] [--threads 1] [--compile]"""
import argparse, math, time, zlib
from pathlib import Path
import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.back = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (y.view(n, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.back(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                added = name.endswith(("out.weight", "back.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if added else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x, y):
        x = self.tokens(x) + self.positions.weight[:x.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def rate(step, steps):
    if step < 100:
        return 1e-3 * (step + 1) / 101
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / (steps - 100))) * 9e-4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    packed = Path(__file__).resolve().parents[2] / "src/data/format/shakespeare.z"
    text = zlib.decompress(packed.read_bytes())
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([number[c] for c in text])
    train, test = data[:len(data) * 9 // 10], data[len(data) * 9 // 10:]
    windows = (len(test) - 1) // CONTEXT
    tests = test[:windows * CONTEXT].view(-1, CONTEXT), test[1:windows * CONTEXT + 1].view(-1, CONTEXT)

    model = Model(len(number))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], betas=(0.9, 0.99))
    loss_of = torch.compile(model) if args.compile else model
    seconds = cpu = 0
    for step in range(args.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        at = torch.randint(len(train) - CONTEXT, (BATCH,))
        x, y = (torch.stack([train[i + k:i + k + CONTEXT] for i in at]) for k in (0, 1))
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps)
        loss = loss_of(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds += time.perf_counter() - begin
        cpu += time.process_time() - cpu_begin
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            with torch.no_grad():
                losses = [model(a, b).item() * len(a) for a, b in zip(*(t.split(64) for t in tests))]
            print(f"{step + 1} {seconds:.2f} {sum(losses) / windows:.4f} {cpu:.2f}", flush=True)


main()
