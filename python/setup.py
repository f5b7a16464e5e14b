# setup.py -- builds libtutti_comm.so and, where PyTorch and a C++ compiler are found, the compiled backend.
# SPDX-License-Identifier: MIT
"""pip builds packages apart from what is installed, so PyTorch cannot be imported here: the interpreter that pip serves is
asked instead, without pip's paths. Variables:

    TUTTI_COMM_LIBRARY       a libtutti_comm.so that is there already
    TUTTI_TORCH_PYTHON       the interpreter whose PyTorch the extension is for (default: the one that runs this)
    TUTTI_TORCH_COMPILED     0: do not build the extension; 1: fail if it cannot be built, as with PyTorch before 2.14,
                             for which there is none in Python
    CXX, CMAKE, CXXFLAGS     as usual
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent
LIBRARY = "libtutti_comm.so.0.1"
PACKAGE = "tutti_torch"
OPTIONS = ["-D", "CMAKE_BUILD_TYPE=RelWithDebInfo", "-D", "TUTTI_CUDA=OFF", "-D", "TUTTI_MPI=OFF"]
CSRC = [
    "types", "store", "group", "work", "messages", "join", "backend", "collectives", "lists", "p2p", "reconfigure", "group_memory",
    "module",
]

ASK = """
import json, os, sysconfig
import torch
import torch.utils.cpp_extension as e
print(json.dumps({
    "version": torch.__version__,
    "includes": e.include_paths(),
    "libraries": os.path.join(os.path.dirname(torch.__file__), "lib"),
    "cxx11_abi": int(torch._C._GLIBCXX_USE_CXX11_ABI),
    "python_include": sysconfig.get_paths()["include"],
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
}))
"""


def say(text: str) -> None:
    print(f"tutti_torch: {text}", file=sys.stderr)


def run(*command: Any, **options: Any) -> None:
    print("+", shlex.join(map(str, command)), flush=True)
    subprocess.run(list(map(str, command)), check=True, **options)


# ---- The library --------------------------------------------------------------------------------


def needs_of(library: Path) -> list[str]:
    """The libraries that it needs besides those of every Linux."""
    out = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True)
    lines = [line.split() for line in out.stdout.splitlines()]
    names = [words[1] for words in lines if words and words[0] == "NEEDED"]
    usual = ("libc.", "libm.", "libpthread.", "libdl.", "librt.", "ld-linux", "libgcc_s.")
    return [name for name in names if not name.startswith(usual)]


def build_library(folder: Path) -> Path:
    given = os.environ.get("TUTTI_COMM_LIBRARY")
    if given:
        return Path(given).resolve()
    if not (SOURCE / "CMakeLists.txt").exists():
        raise SystemExit(
            "tutti_torch: the folder above has no CMakeLists.txt: install from Tutti's repository, "
            "or name a libtutti_comm.so in TUTTI_COMM_LIBRARY"
        )
    cmake = os.environ.get("CMAKE", "cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(cmake, "-S", SOURCE, "-B", folder, *generator, *OPTIONS, *static_libraries())
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    run(cmake, "--build", folder, "--target", "tutti_comm_shared", "--parallel", jobs)
    return (folder / "libtutti_comm.so").resolve()


def static_libraries() -> list[str]:
    """Settings for CMake that take libsodium and xxHash into the library, where their archives are."""
    settings = []
    for prefix, name in (("SODIUM", "sodium"), ("XXHASH", "xxhash")):
        try:
            out = subprocess.run(
                ["pkg-config", "--variable=libdir", f"lib{name}"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        archive = Path(out.stdout.strip()) / f"lib{name}.a"
        if archive.exists():  # the variable in which CMake's pkg_check_modules looks first
            settings += ["-D", f"pkgcfg_lib_{prefix}_{name}={archive}"]
    return [*settings, "-D", "CMAKE_SHARED_LINKER_FLAGS=-Wl,--exclude-libs,ALL"]


def place_library(library: Path, package: Path) -> None:
    """Copies it, and beside it what else it needs, so that the wheel can be moved to another machine."""
    target = package / LIBRARY
    shutil.copyfile(library, target)
    target.chmod(0o755)
    missing = needs_of(target)
    if not missing:
        return
    if not shutil.which("patchelf"):
        say(f"{', '.join(missing)}: not in the package (no archives, no patchelf); users need them")
        return
    out = subprocess.run(["ldd", target], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name in missing:
            shutil.copyfile(path.split()[0], package / name)
    run("patchelf", "--set-rpath", "$ORIGIN", target)


# ---- The extension ------------------------------------------------------------------------------


def ask_torch() -> dict[str, Any] | None:
    python = os.environ.get("TUTTI_TORCH_PYTHON", sys.executable)
    pips = ("PYTHONPATH", "PYTHONNOUSERSITE")
    environment = {k: v for k, v in os.environ.items() if k not in pips}
    out = subprocess.run(
        [python, "-c", ASK], capture_output=True, text=True, cwd="/", env=environment
    )
    return json.loads(out.stdout) if out.returncode == 0 else None


def release_of(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split("+")[0].split(".")
    return int(major), int(minor)


def build_extension(torch: dict[str, Any], package: Path, objects: Path) -> None:
    major, minor = release_of(torch["version"])
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    flags = [
        "-O2", "-fPIC", "-fvisibility=hidden", "-Wall",
        "-std=c++20" if (major, minor) >= (2, 12) else "-std=c++17",
        f"-D_GLIBCXX_USE_CXX11_ABI={torch['cxx11_abi']}",
        "-DTORCH_EXTENSION_NAME=_C",
        f"-DTUTTI_TORCH_VERSION={100 * major + minor}",
        f'-DTUTTI_TORCH_BUILT_FOR="{torch["version"]}"',
        f"-I{SOURCE / 'include'}",
        *(f"-isystem{path}" for path in [*torch["includes"], torch["python_include"]]),
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    objects.mkdir(parents=True, exist_ok=True)
    for name in CSRC:
        run(*compiler, *flags, "-c", HERE / "csrc" / f"{name}.cpp", "-o", objects / f"{name}.o")
    run(*compiler, "-shared", "-o", package / f"_C{torch['suffix']}",
        *(objects / f"{name}.o" for name in CSRC),
        f"-L{torch['libraries']}", "-ltorch_python", "-ltorch_cpu", "-lc10",
        package / LIBRARY, "-Wl,-rpath,$ORIGIN", "-Wl,--as-needed")
    (package / "_built_for.py").write_text(
        f"# Written by setup.py.\nTORCH_VERSION = {torch['version']!r}\n"
    )


def missing_headers(torch: dict[str, Any]) -> list[str]:
    """Debian's python3-torch comes without its headers, and with links that lead to them once they are installed."""
    packages = {
        "torch/csrc/distributed/c10d/ProcessGroup.hpp": "libtorch-dev",
        "pybind11/pybind11.h": "pybind11-dev",
    }
    folders = [*map(Path, torch["includes"]), Path("/usr/include"), Path("/usr/local/include")]
    return [
        f"{header} (Debian's package {package})"
        for header, package in packages.items()
        if not any((folder / header).exists() for folder in folders)
    ]


def maybe_build_extension(package: Path, objects: Path) -> None:
    wish = os.environ.get("TUTTI_TORCH_COMPILED", "")
    torch = ask_torch() if wish != "0" else None
    compiler = shlex.split(os.environ.get("CXX", "g++"))[0]
    if wish == "0":
        why = "TUTTI_TORCH_COMPILED=0"
    elif torch is None:
        why = f"{os.environ.get('TUTTI_TORCH_PYTHON', sys.executable)} has no PyTorch"
    elif release_of(torch["version"]) < (1, 13):
        why = f"PyTorch {torch['version']} is older than 1.13"
    elif not shutil.which(compiler):
        why = f"there is no C++ compiler ({compiler})"
    elif missing_headers(torch):
        why = f"there is no {' and no '.join(missing_headers(torch))}"
    else:
        try:
            build_extension(torch, package, objects)
            return
        except subprocess.CalledProcessError as error:
            why = f"it does not compile: {error.cmd[0]} ended with {error.returncode}"
    if wish == "1" or (torch is not None and release_of(torch["version"]) < (2, 14)):
        raise SystemExit(f"tutti_torch: no compiled backend: {why}")
    say(f"without the compiled backend, because {why}; the one in Python is used")


# ---- The package --------------------------------------------------------------------------------


class Build(build_py):
    def run(self) -> None:
        super().run()
        package = Path(self.build_lib) / PACKAGE
        if getattr(self, "editable_mode", False):
            package = HERE / PACKAGE
        temporary = Path(self.get_finalized_command("build").build_temp).resolve()
        (package / "_built_for.py").unlink(missing_ok=True)  # of an earlier build
        place_library(build_library(temporary / "cmake"), package)
        maybe_build_extension(package, temporary / "objects")


class Binary(Distribution):
    """With parts for one platform, though setuptools builds none of them."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=Binary, cmdclass={"build_py": Build})
assert sysconfig.get_platform().startswith("linux"), "Tutti runs on Linux"
