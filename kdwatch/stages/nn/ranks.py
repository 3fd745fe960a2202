"""One process, or several started by a launcher: who does which rows, and how gradients meet."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass
class Ranks:
    """This process among its peers; alone by default."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Ranks:
        """Meet the peers that the launcher's variables name; alone where there are none."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls()
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(torch.distributed.get_rank(), world)

    @property
    def first(self) -> bool:
        """True in the process that writes and reports."""
        return self.rank == 0

    def wrap(self, model: Any, device: torch.device) -> Any:
        """The model as it is called: gradients are averaged over processes in its backward pass."""
        if self.world == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    @contextmanager
    def hold_gradients(self, model: Any, *, last: bool) -> Iterator[None]:
        """Exchange gradients only in an update's last pass."""
        with model.no_sync() if self.world > 1 and not last else contextlib.nullcontext():
            yield

    def share(self, group: np.ndarray) -> tuple[np.ndarray, float]:
        """(this process's rows of a group, their weight); without a row of its own it takes one with weight 0, since
        every process must join in each backward pass."""
        mine = group[self.rank :: self.world]
        return (mine, 1.0) if len(mine) else (group[:1], 0.0)

    def ask(self, stop: bool, save: bool, ahead: int, device: torch.device) -> tuple[bool, bool, int]:
        """(whether some process is told to stop, the first one's `save`, the first one's `ahead`), in one exchange."""
        told = torch.tensor([float(stop), *((float(save), float(ahead)) if self.first else (0.0, 0.0))], device=device)
        stopping, saving, ahead_of_first = self.total(told).tolist()
        return stopping > 0, saving > 0, int(ahead_of_first)

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over processes."""
        if self.world > 1:
            torch.distributed.all_reduce(value)
        return value

    def wait(self) -> None:
        """Wait for the peers."""
        if self.world > 1:
            torch.distributed.barrier()

    def leave(self) -> None:
        """End this process once all peers have come here; alone it goes on. At Python's own end threads of gloo abort a
        process now and then, after all work is done."""
        if self.world > 1:
            self.wait()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
