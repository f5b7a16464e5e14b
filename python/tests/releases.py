# releases.py -- what older releases of PyTorch lack, for the tests.   SPDX-License-Identifier: MIT
"""Tests skip what the installed PyTorch cannot do itself, with the reason. Functions that run on several processes may call
skip() too: all ranks do so at the same place, since all have the same PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])

# What tells in older releases that the group is dead is a RuntimeError.
GroupError = getattr(dist, "DistBackendError", RuntimeError)

# Until 2.0, what coalesces calls gave their works one by one.
COALESCES = "async_ops" in inspect.signature(dist.distributed_c10d._coalescing_manager).parameters


def skip(why: str) -> None:
    pytest.skip(f"PyTorch {torch.__version__}: {why}")


def needs(there: object, what: str) -> Any:
    return pytest.mark.skipif(not there, reason=f"PyTorch {torch.__version__} has no {what}")


@contextmanager
def skip_on(*errors: type[Exception], text: str = "") -> Iterator[None]:
    """Skips the test if PyTorch refuses what is inside with such an error and text."""
    try:
        yield
    except errors as error:
        if text not in str(error):
            raise
        skip(" ".join(str(error).split()))


def types_of(*names: str) -> list[torch.dtype]:
    """Those of the element types that there are."""
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def at_once(opts: Any, value: bool = False) -> Any:
    """Options whose caller waits at once, where they can say so."""
    if hasattr(opts, "asyncOp"):
        opts.asyncOp = value
    return opts
