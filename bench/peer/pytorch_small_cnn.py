"""The network of bench/optim_small_cnn.c in PyTorch: milliseconds a step, with the threads that it chooses by itself.

    pytorch_small_cnn.py [STEPS [BATCH [THREADS]]]
"""
import sys
import time

import torch
from torch import nn

steps, batch, threads = (int(a) for a in (sys.argv[1:] + ["300", "32", "0"][len(sys.argv) - 1:]))
if threads:
    torch.set_num_threads(threads)
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Linear(64 * 8 * 8, 10))
optim = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.rand(batch, 3, 32, 32) * 2 - 1, torch.arange(batch) % 10
for i in range(steps):
    if i == 1:
        begin = time.perf_counter()
    optim.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optim.step()
    loss.item()
print(f"threads {torch.get_num_threads()} ms {(time.perf_counter() - begin) * 1e3 / (steps - 1):.3f}")
