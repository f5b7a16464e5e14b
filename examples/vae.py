# vae.py -- what vae.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/vae.py
import math
from random import gauss, random as uniform, seed

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, SIDE, LATENT, STEPS = 64, 12, 4, 301
PIXELS = SIDE * SIDE


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(PIXELS, 128)
        self.mean = nn.Linear(128, LATENT)
        self.log_var = nn.Linear(128, LATENT)
        self.decoder = nn.Linear(LATENT, 128)
        self.out = nn.Linear(128, PIXELS)

    def forward(self, x, noise):
        h = F.relu(self.encoder(x))
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.exp(0.5 * log_var) * noise
        return torch.sigmoid(self.out(F.relu(self.decoder(z)))), mean, log_var


def make_batch():
    images, noise = [], []
    for _ in range(N):
        a, b = 2 + (SIDE - 5) * uniform(), 2 + (SIDE - 5) * uniform()
        images.append([math.exp(-((i - a)**2 + (k - b)**2) / 3) for i in range(SIDE) for k in range(SIDE)])
        noise.append([gauss() for _ in range(LATENT)])
    return torch.tensor(images), torch.tensor(noise)


def loss_of(model):
    """Squared error and KL divergence from N(0, 1), of a sample."""
    x, noise = make_batch()
    y, mean, log_var = model(x, noise)
    kl = (mean**2 + log_var.exp() - log_var - 1).sum()
    return (F.mse_loss(y, x, reduction="sum") + 0.05 * kl) / N


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seed(dist.get_rank())  # each rank has samples of its own
    model = DistributedDataParallel(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step:3}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
