# A user's copy of airbench94_muon.py, whose code is not in this repository, on this CPU: steps of its training as it is written, in F32,
# with what it takes from CUDA and torchvision replaced from outside.   SPDX-License-Identifier: MIT
#
#   python bench/peer/airbench_on_cpu.py airbench94_muon.py DIR STEPS [THREADS]
#
# DIR has CIFAR-10's binary files. Lines: images_per_s, by the median of steps after the second; cpu_ms_per_image of steps after the first.
import os
import runpy
import statistics
import sys
import tempfile
import time
import types
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from airbench94 import read

BATCH = 2000  # the script's


class Enough(Exception):
    pass


class Event:
    def __init__(self, enable_timing=True):
        self.at = 0.0

    def record(self):
        self.at = time.monotonic()

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean.view(1, -1, 1, 1), std.view(1, -1, 1, 1)

    def __call__(self, images):
        return (images - self.mean) / self.std


def replace():
    """What the script asks of a GPU."""
    torch.cuda.Event, torch.cuda.synchronize = Event, lambda: None
    torch.compile = lambda f=None, **_: f if f else (lambda g: g)
    torch.Tensor.half = torch.Tensor.bfloat16 = torch.Tensor.float
    nn.Module.half, nn.Module.cuda = nn.Module.float, lambda self: self
    load = torch.load
    torch.load = lambda path, map_location=None: load(path, map_location="cpu")
    vision, transforms = types.ModuleType("torchvision"), types.ModuleType("torchvision.transforms")
    transforms.Normalize = Normalize
    vision.transforms = transforms
    sys.modules.update({"torchvision": vision, "torchvision.transforms": transforms})


def store(folder, name, files):
    images, labels = read(folder, files)
    torch.save({"images": images.permute(0, 2, 3, 1).contiguous(), "labels": labels, "classes": []}, Path("cifar10", name))


def main():
    script, folder, steps = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3])
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else len(os.sched_getaffinity(0)))
    replace()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        os.mkdir("cifar10")
        store(folder, "train.pt", [f"data_batch_{i}.bin" for i in range(1, 6)])
        store(folder, "test.pt", ["test_batch.bin"])
        sys.argv = [str(script)]
        given = runpy.run_path(str(script), run_name="airbench94_muon")
        times, step = [(time.monotonic(), time.process_time())], given["Muon"].step

        def counted(self):
            step(self)
            times.append((time.monotonic(), time.process_time()))
            if len(times) > steps:
                raise Enough

        given["Muon"].step = counted
        try:
            given["main"](0, given["CifarNet"]().to(memory_format=torch.channels_last))
        except Enough:
            pass
        os.chdir("/")
    seconds = [b[0] - a[0] for a, b in zip(times, times[1:])]
    print(f"images_per_s {BATCH / statistics.median(seconds[2:] or seconds):.2f}")
    print(f"cpu_ms_per_image {1e3 * (times[-1][1] - times[1][1]) / BATCH / max(1, len(seconds) - 1):.4f}")


if __name__ == "__main__":
    main()
