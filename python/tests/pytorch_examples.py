#!/usr/bin/env python3
# pytorch_examples.py -- PyTorch's own examples, with Gloo and with Tutti.   SPDX-License-Identifier: MIT
"""Runs the programs in distributed/ of https://github.com/pytorch/examples with both backends, on CPUs, and compares the
parameters that they end with. Their files stay as they are. They ask for GPUs, so each process starts with a stand-in that
shows the CPU as the accelerator and gives the backend where they name theirs.

    python pytorch_examples.py FOLDER            a clone of pytorch/examples
    python pytorch_examples.py FOLDER -k ddp     those with this in their name

minGPT-ddp needs hydra-core, fsspec and boto3. Left out: what uses RPC, the older FSDP/ (it loads weights and data from a
hub), and fsdp_tp_example.py, whose attention DTensor cannot shard on CPUs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BACKENDS = ("gloo", "tutti")

SMALL_GPT = (
    "data_config.path=data/input.txt data_config.truncate=0.01 gpt_config.n_layer=2 gpt_config.n_head=2 "
    "gpt_config.n_embd=64 trainer_config.max_epochs=1 trainer_config.batch_size=64 trainer_config.save_every=1 "
    "trainer_config.data_loader_workers=0 trainer_config.use_amp=False"
).split()

# Folder, program, processes, arguments. The same program again continues from its checkpoint.
PROGRAMS: list[tuple[str, str, int, list[str]]] = [
    ("ddp", "example.py", 2, []),
    ("ddp-tutorial-series", "multigpu.py", 2, ["2", "1"]),
    ("ddp-tutorial-series", "multigpu_torchrun.py", 2, ["2", "1"]),
    ("ddp-tutorial-series", "multigpu_torchrun.py", 2, ["4", "1"]),
    ("ddp-tutorial-series", "multinode.py", 2, ["2", "1"]),
    ("tensor_parallelism", "tensor_parallel_example.py", 2, []),
    ("tensor_parallelism", "sequence_parallel_example.py", 2, []),
    ("FSDP2", "example.py", 2, []),
    ("FSDP2", "example.py", 2, []),
    ("FSDP2", "example.py", 2, ["--dcp-api"]),
    ("FSDP2", "example.py", 2, ["--dcp-api"]),
    ("FSDP2", "example.py", 2, ["--mixed-precision", "--explicit-prefetching"]),
    ("minGPT-ddp/mingpt", "main.py", 2, SMALL_GPT),
]


# ---- Inside each process ----------------------------------------------------------------------------


def show_cpu_as_accelerator(count: int) -> None:
    import torch

    cpu = torch.device("cpu")

    def show(name: str, value: Any) -> None:
        """To the program; PyTorch itself goes on as without an accelerator."""
        plain = getattr(torch.accelerator, name)

        def instead(*args: Any, **named: Any) -> Any:
            caller = sys._getframe(1).f_globals["__name__"]
            return plain(*args, **named) if caller.startswith("torch.") else value

        setattr(torch.accelerator, name, instead)

    show("is_available", True)
    show("device_count", count)
    show("current_accelerator", cpu)
    torch.accelerator.set_device_index = torch.accelerator.device_index = lambda index: None
    torch.cuda.set_device = lambda index: None
    torch.cuda.device_count = lambda: count

    def on_cpu(plain: Any) -> Any:
        def to(self: Any, *args: Any, **named: Any) -> Any:
            if args and isinstance(args[0], int):
                args = (cpu, *args[1:])
            return plain(self, *args, **named)

        return to

    torch.Tensor.to = on_cpu(torch.Tensor.to)
    torch.nn.Module.to = on_cpu(torch.nn.Module.to)

    def change(kind: Any, **fixed: Any) -> None:
        plain = kind.__init__

        def init(self: Any, *args: Any, **named: Any) -> None:
            plain(self, *args, **{**named, **fixed})

        kind.__init__ = init

    change(torch.nn.parallel.DistributedDataParallel, device_ids=None)
    change(torch.utils.data.DataLoader, pin_memory=False)
    plain_load = torch.load

    def load(*args: Any, **named: Any) -> Any:
        return plain_load(*args, **{**named, "map_location": cpu})

    torch.load = load


def give_backend(backend: str) -> None:
    import torch.distributed as dist

    plain = dist.init_process_group

    def init(*args: Any, **named: Any) -> None:
        named.pop("device_id", None)  # binds an accelerator's communicator
        plain(backend, **{k: v for k, v in named.items() if k != "backend"})

    dist.init_process_group = init
    dist.get_default_backend_for_device = lambda device: backend
    dist.Backend.default_device_backend_map["cpu"] = backend


def tell_parameters(out: str) -> None:
    """Writes, when the group ends, which backend it had and the sum of the absolute values of this rank's parameters."""
    import torch
    import torch.distributed as dist
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    used: list[Optimizer] = []

    def remember(optimizer: Optimizer, args: Any, named: Any) -> None:
        used[:] = [optimizer]

    register_optimizer_step_post_hook(remember)
    plain = dist.destroy_process_group

    def destroy(*args: Any, **named: Any) -> None:
        parameters = [p for group in used[0].param_groups for p in group["params"]]
        local = [p.to_local() if hasattr(p, "to_local") else p for p in parameters]
        total = sum(float(p.detach().double().abs().sum()) for p in local)
        name = dist.group.WORLD._get_backend(torch.device("cpu")).name()
        Path(out, str(dist.get_rank())).write_text(f"{name} {len(local)} parameters {total!r}")
        plain(*args, **named)

    dist.destroy_process_group = destroy


def stand_in() -> None:
    """What sitecustomize calls in each process of an example."""
    import torch

    show_cpu_as_accelerator(int(os.environ["EXAMPLES_WORLD"]))
    give_backend(os.environ["EXAMPLES_BACKEND"])
    tell_parameters(os.environ["EXAMPLES_OUT"])
    torch.manual_seed(int(os.environ.get("RANK", "0")))


# ---- Outside ------------------------------------------------------------------------------------------

SITE = """
import os, sys, traceback
try:
    import pytorch_examples
    pytorch_examples.stand_in()
except BaseException:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(70)
"""


@dataclass
class Program:
    folder: str
    name: str
    world: int
    arguments: list[str]

    def command(self) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.world}"]
        if self.name == "multigpu.py":  # starts its ranks itself
            launcher = []
        return [sys.executable, *launcher, self.name, *self.arguments]


def run_one(program: Program, work: Path, backend: str) -> tuple[str, float]:
    """How it ended (each rank's line, or the end of what it said), and the seconds."""
    site = Path(tempfile.mkdtemp(dir=work))
    (site / "sitecustomize.py").write_text(SITE)
    out = site / "out"
    out.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(HERE), os.environ.get("PYTHONPATH", "")]),
        "EXAMPLES_WORLD": str(program.world),
        "EXAMPLES_BACKEND": backend,
        "EXAMPLES_OUT": str(out),
        "OMP_NUM_THREADS": "1",
    }
    began = time.monotonic()
    done = subprocess.run(
        program.command(),
        cwd=work / backend / program.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    took = time.monotonic() - began
    lines = [path.read_text() for path in sorted(out.iterdir())]
    if done.returncode or len(lines) != program.world:
        return f"exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}", took
    return "\n".join(lines), took


def compare(program: Program, work: Path) -> bool:
    """Runs it with both backends, and prints what came of it."""
    ends = {backend: run_one(program, work, backend) for backend in BACKENDS}
    plain = [text.replace(backend, "", program.world) for backend, (text, _) in ends.items()]
    same = plain[0] == plain[1] and not plain[0].startswith("exit")
    title = f"{program.folder}/{program.name} {' '.join(program.arguments[:2])}"
    print(f"{'same' if same else 'DIFFERENT'}  {title} x {program.world}", flush=True)
    for backend, (text, took) in ends.items():
        text = text.replace("\n", "\n" + " " * 17)
        print(f"    {backend:6}{took:6.1f} s  {text}", flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a clone of pytorch/examples")
    parser.add_argument("-k", default="", help="only programs with this in their name")
    args = parser.parse_args()
    good, before = True, ("", "")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for program in (Program(*row) for row in PROGRAMS):
            if args.k not in f"{program.folder}/{program.name}":
                continue
            if before != (program.folder, program.name):
                for backend in BACKENDS:
                    shutil.rmtree(work / backend, ignore_errors=True)
                    shutil.copytree(args.folder / "distributed", work / backend)
            before = program.folder, program.name
            good = compare(program, work) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
