"""Where and in which number format a stage computes."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

from kdwatch.stages.cpu import asked_threads, usable_cores
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import ModelSettings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(settings: ModelSettings) -> torch.device:
    """The device that the settings ask for; `auto` takes a GPU if there is one.

    Raises StageProblem where a device is asked for that torch cannot see.
    """
    if settings.threads is not None or settings.device in ("auto", "cpu"):
        torch.set_num_threads(settings.threads or asked_threads() or usable_cores())
    name = settings.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        raise StageProblem(f"device {name} cannot be used ({text}): take device: auto or cpu") from None
    return device


def autocast(device: torch.device, dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Compute in `dtype` with weights as they are; nothing to do for float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[dtype])


def free_bytes(device: torch.device) -> int:
    """Memory that a batch may take on this device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**31
