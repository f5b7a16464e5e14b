# test_launch.py -- the ways to start a program, and which implementation it gets.   SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import conftest
import pytest
from releases import RELEASE, needs

PROGRAM = """
import torch, torch.distributed as dist
IMPORT
dist.init_process_group("tutti")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print(f"SUM {x.item()} {dist.get_world_size()}\\n", end="", flush=True)
dist.destroy_process_group()
"""
TUTTI = os.environ.get("TUTTI") or str(conftest.HERE.parents[1] / "build" / "tutti")


def is_found() -> bool:
    """Whether PyTorch finds the backend without an import."""
    return RELEASE >= (2, 5) and any(e.name == "tutti" for e in entry_points(group="torch.backends"))


def program(folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(PROGRAM.replace("IMPORT", "" if is_found() else "import tutti_torch"))
    return str(path)


def start(command: list[str], implementation: str) -> str:
    environment = {**os.environ, **conftest._environment(implementation)}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=conftest.LIMIT_S)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_torchrun(implementation, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", "0", "--standalone"]
    (tmp_path / "nothing.py").write_text("")
    if subprocess.run([*command, str(tmp_path / "nothing.py")], capture_output=True).returncode:
        pytest.skip("torchrun of this PyTorch fails with a program that does nothing")
    out = start([*command, program(tmp_path)], implementation)
    assert out.count("SUM 3.0 2") == 2, out


@pytest.mark.skipif(not shutil.which(TUTTI), reason="no command `tutti`: set TUTTI to its path")
def test_tutti_run(implementation, tmp_path):
    out = start([TUTTI, "run", "-n", "2", sys.executable, program(tmp_path)], implementation)
    assert out.count("SUM 3.0 2") == 2, out


def test_one_process_without_a_launcher(implementation, tmp_path):
    text = "import tutti_torch, torch.distributed as dist\n" + (
        "store = dist.HashStore()\n"
        "dist.init_process_group('tutti', store=store, rank=0, world_size=1)\n"
        "dist.barrier()\n"
        "print(tutti_torch.implementation(), dist.get_backend())\n"
    )
    assert start([sys.executable, "-c", text], implementation) == f"{implementation} tutti\n"


@needs(RELEASE >= (2, 0), "check_invariants")
def test_a_sum_of_sparse_tensors_does_not_warn(implementation):
    text = (
        "import torch, torch.distributed as dist, tutti_torch\n"
        "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
        "x = torch.sparse_coo_tensor([[1]], torch.ones(1), (3,), check_invariants=True)\n"
        "dist.all_reduce(x)\n"
        "print(x.to_dense().tolist())\n"
    )
    assert start([sys.executable, "-W", "error::UserWarning", "-c", text], implementation)


@needs(RELEASE >= (2, 0), "different backends for different devices")
def test_with_another_backend_for_other_devices(implementation, tmp_path):
    text = (
        "import tutti_torch, torch, torch.distributed as dist\n"
        "store = dist.HashStore()\n"
        "dist.init_process_group('cpu:tutti,cuda:gloo', store=store, rank=0, world_size=1)\n"
        "dist.all_reduce(x := torch.ones(1))\n"
        "print(dist.group.WORLD._get_backend(torch.device('cpu')).name())\n"
    )
    assert "tutti" in start([sys.executable, "-c", text], implementation)


def test_a_wrong_choice_says_so(implementation):
    environment = {**os.environ, **conftest._environment("fastest")}
    done = subprocess.run(
        [sys.executable, "-c", "import tutti_torch; tutti_torch.implementation()"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert 'TUTTI_TORCH_IMPLEMENTATION="fastest"' in done.stderr


@pytest.mark.skipif(not is_found(), reason="tutti_torch is not installed, or PyTorch older than 2.5")
def test_entry_points(implementation):
    text = (
        "import torch.distributed as dist\n"
        "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(dist.get_backend())\n"
    )
    assert start([sys.executable, "-c", text], implementation).strip() == "tutti"


@pytest.mark.parametrize("argument", ["0", "two"])
def test_the_self_test_refuses_what_is_no_number_of_processes(argument):
    command = [sys.executable, "-m", "tutti_torch", argument]
    environment = {**os.environ, **conftest._environment("")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and argument in done.stderr and "usage" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
