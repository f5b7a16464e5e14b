# record.py -- the record of a PyTorch program's steps, for `tutti diff`.   SPDX-License-Identifier: MIT
"""What a step of a PyTorch program computes, in the form that `tutti train --trace-digests` writes (docs/diff.md):

    record = Record(model, optimizer, "runs/torch")
    for x, y in loader:
        with record.step(input=x, target=y) as step:
            loss = loss_of(model(x), y)
            step.loss(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    $ tutti diff runs/mine runs/torch --tolerance 1e-5

This file needs nothing but PyTorch, and may be copied beside a program. With libxxhash, or Python's xxhash, it writes digests;
without, only norms and projections, which `tutti diff` then compares.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

__all__ = ["Record", "fingerprint"]

FORMAT = 1
BLOCK = 1024  # signs are products of two, of which one changes with each element and the other with each block
_signs: list[float] = []


def _splitmix64(number: int) -> int:
    mask = (1 << 64) - 1
    z = ((number + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def _first_signs(n: int) -> torch.Tensor:
    while len(_signs) < n:
        bits = _splitmix64(len(_signs) // 64)
        _signs.extend(-1.0 if bits >> k & 1 else 1.0 for k in range(64))
    return torch.tensor(_signs[:n], dtype=torch.float64)


def _find_hash() -> Callable[[bytes], str]:
    try:
        import xxhash  # noqa: PLC0415

        return lambda data: f"{xxhash.xxh3_64_intdigest(data):016x}"
    except ImportError:
        pass
    try:
        xxh3 = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0").XXH3_64bits
    except (OSError, AttributeError):
        return lambda _: ""
    xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return lambda data: f"{xxh3(data, len(data)):016x}"


_hash = _find_hash()


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.reshape(-1).contiguous()
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def fingerprint(tensor: torch.Tensor) -> tuple[str, float, float]:
    """Digest, norm and projection of a tensor's elements, row-major."""
    host = tensor.detach().cpu()
    x = host.reshape(-1).to(torch.float64)
    blocks = -(-x.numel() // BLOCK)
    signs = _first_signs(BLOCK + blocks)
    padded = torch.nn.functional.pad(x, (0, blocks * BLOCK - x.numel())).reshape(blocks, BLOCK)
    dot = float((padded @ signs[:BLOCK]) @ signs[BLOCK:])
    return _hash(_bytes(host)), math.sqrt(float((x * x).sum())), dot


def _samples_digest(step: int, samples: Iterable[int]) -> str:
    lanes = [0, 0]
    for sample in samples:
        for lane in range(2):
            words = step.to_bytes(8, "little") + int(sample).to_bytes(8, "little")
            digest = _hash(words + lane.to_bytes(8, "little"))
            if not digest:
                return ""
            lanes[lane] = (lanes[lane] + int(digest, 16)) % (1 << 64)
    return f"{lanes[0]:016x}{lanes[1]:016x}"


def _first_tensor(value: Any) -> torch.Tensor | None:
    while isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None


class Record:
    """Writes FOLDER/digests/rank-R.jsonl; what was there is continued. `every`: steps between recorded ones. rank and
    world_size: those of torch.distributed, if it is in use. Steps count from 1; `first`: the number of the next one."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        folder: str | Path,
        *,
        every: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        first: int = 1,
    ) -> None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = rank if rank is not None else torch.distributed.get_rank() if distributed else 0
        self.world_size = world_size or (torch.distributed.get_world_size() if distributed else 1)
        parallel = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self.model: torch.nn.Module = model.module if parallel else model
        self.optimizer, self.every, self.number = optimizer, every, first - 1
        self._entries: list[list[Any]] | None = None  # of the step that is being recorded
        self._batch = -1  # of an accumulation
        self._reduced = False
        self._rate: float | None = None
        self._own_rates: list[list[Any]] = []  # [rate, name, ...] of parameters that have others
        self._outputs: dict[int, tuple[torch.Tensor, list[tuple[str, int]]]] = {}
        path = Path(folder) / "digests" / f"rank-{self.rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._handles: list[Any] = []
        self._hook()
        self._write_beginning()

    # ---- Lines ------------------------------------------------------------------------------------

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")
        self._file.flush()

    def _write_beginning(self) -> None:
        self._write(
            {
                "format": FORMAT,
                "version": torch.__version__,
                "step": self.number,
                "rank": self.rank,
                "world_size": self.world_size,
                "isa": torch.backends.cpu.get_cpu_capability()
                if hasattr(torch.backends, "cpu")
                else "",
                "kernels": "torch",
                "framework": "torch",
            }
        )
        self._entries = []
        self._add_weights("initial", "initial")
        self._write({"step": self.number, "rank": self.rank, "entries": self._entries})
        self._entries = None

    def _add(self, kind: str, name: str, tensor: torch.Tensor, batch: int = -1) -> None:
        if self._entries is None or tensor.is_complex() or tensor.is_sparse:
            return
        digest, norm, dot = fingerprint(tensor)
        numbers = [value if math.isfinite(value) else str(value) for value in (norm, dot)]
        self._entries.append([kind, name, digest, *numbers, *([batch] if batch >= 0 else [])])

    def _add_weights(self, parameters: str, buffers: str) -> None:
        for name, parameter in self.model.named_parameters():
            self._add(parameters, name, parameter)
        for name, buffer in self.model.named_buffers():
            if name in self.model.state_dict():
                self._add(buffers, name, buffer)

    # ---- Hooks ------------------------------------------------------------------------------------

    def _hook(self) -> None:
        for name, module in self.model.named_modules():
            hook = self._on_forward(name)
            self._handles.append(module.register_forward_hook(hook))
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_hook(self._on_gradient(name)))
        self._handles.append(self.optimizer.register_step_pre_hook(self._before_update))
        self._handles.append(self.optimizer.register_step_post_hook(self._after_update))

    def _on_forward(self, name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            tensor = _first_tensor(output)
            if self._entries is None or tensor is None or not module.training:
                return
            self._add("forward", name, tensor, self._batch)
            if not tensor.requires_grad:
                return
            # a container returns the tensor of its last module: the gradient comes once
            known = self._outputs.get(id(tensor))
            if known is None:
                names: list[tuple[str, int]] = []
                known = self._outputs[id(tensor)] = (tensor, names)
                tensor.register_hook(lambda gradient: self._on_backward(names, gradient))
            known[1].append((name, self._batch))

        return hook

    def _on_backward(self, names: list[tuple[str, int]], gradient: torch.Tensor) -> None:
        for name, batch in reversed(names):
            self._add("backward", name, gradient, batch)

    def _on_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(gradient: torch.Tensor) -> None:
            self._add("gradient", name, gradient)

        return hook

    def _add_gradients(self, kind: str) -> None:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self._add(kind, name, parameter.grad)

    def _before_update(self, *_: Any) -> None:
        self._add_gradients("clipped" if self._reduced else "reduced")
        self._rate = float(self.optimizer.param_groups[0]["lr"])
        self._own_rates = self._find_own_rates(self._rate)

    def _find_own_rates(self, rate: float) -> list[list[Any]]:
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        lists: dict[float, list[Any]] = {}
        for group in self.optimizer.param_groups:
            own = float(group["lr"])
            if own != rate:
                known = [names[p] for p in group["params"] if p in names and p.requires_grad]
                lists.setdefault(own, [own]).extend(known)
        return list(lists.values())

    def _after_update(self, *_: Any) -> None:
        if self._entries is None:
            return
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, states in self.optimizer.state.items():
            for key, value in states.items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    self._add("state", f"{names.get(parameter, '?')}.{key}", value)
        self._add_weights("parameter", "buffer")

    # ---- For the program ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, samples: Iterable[int] | None = None, **inputs: torch.Tensor) -> Iterator[Record]:
        """Around forward, backward and optimizer.step(). inputs: tensors of the batch, by the names that the other run has;
        samples: their indices in the data set."""
        self.number += 1
        if self.number % self.every == 0:
            self._entries, self._reduced, self._rate = [], False, None
        self._batch = -1
        for name, tensor in inputs.items():
            self._add("input", name, tensor)
        try:
            yield self
        finally:  # also of a step that fails: what it has computed may tell why
            if self._entries is not None:
                line: dict[str, Any] = {"step": self.number, "rank": self.rank}
                if self._rate is not None:
                    line.update(lr=self._rate, lrs=self._own_rates)
                if samples is not None:
                    line["samples"] = _samples_digest(self.number, samples)
                self._write({**line, "entries": self._entries})
            self._entries = None
            self._outputs.clear()

    def batch(self, **inputs: torch.Tensor) -> None:
        """With gradient accumulation, before each batch of a step."""
        self._batch += 1
        for name, tensor in inputs.items():
            self._add("input", name, tensor, self._batch)

    def loss(self, loss: torch.Tensor) -> None:
        self._add("loss", "", loss, self._batch)

    def reduced(self) -> None:
        """Before gradients are clipped, if they are: what the optimizer gets is then recorded as clipped."""
        self._add_gradients("reduced")
        self._reduced = True

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._file.close()
