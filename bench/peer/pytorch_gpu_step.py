"""One training step of MiniResNet by PyTorch on a GPU: median milliseconds.   SPDX-License-Identifier: MIT

    pytorch_gpu_step.py BATCH f32|bf16 eager|compiled [STEPS [WARMUP]]

Channels-last, SGD with momentum and weight decay, fused, on synthetic pictures that are on the GPU already; TF32 off for f32.
Each step is waited for, as `tutti bench step` does. Prints one number; 77 where there is no torch with a GPU."""
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)


def convolution(n_in, n_out, size, stride):
    return nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False)


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.first = nn.Sequential(convolution(n_in, n_out, 3, stride), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))
        self.second = nn.Sequential(convolution(n_out, n_out, 3, 1), nn.BatchNorm2d(n_out))
        self.around = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.around = nn.Sequential(convolution(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))

    def forward(self, x):
        return torch.relu(self.second(self.first(x)) + self.around(x))


def mini_resnet():
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    return nn.Sequential(
        convolution(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        *[Block(*w) for w in widths], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    batch, precision, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 50
    warmup = int(sys.argv[5]) if len(sys.argv) > 5 else 20
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    model = mini_resnet().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, fused=True)
    x = torch.randn(batch, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,), device="cuda")
    forward = torch.compile(model) if mode == "compiled" else model
    times = []
    for i in range(warmup + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if i >= warmup:
            times.append((time.perf_counter() - begin) * 1e3)
    print(f"{statistics.median(times):.4f}")


main()
