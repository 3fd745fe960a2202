"""Checkpoints that make a killed training end as an undisturbed one: weights, optimizer, counters; no pickle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from kdwatch.stages.files import read_json, sha256_file, write_json
from kdwatch.stages.nn.optim import optimizer_tensors, restore_optimizer
from kdwatch.stages.problem import StageProblem

FOLDER = ".resume"
KEEP = 2


class Checkpoints:
    """Directory of checkpoints of one training; the newest whole one is taken up."""

    def __init__(self, output: Path, fingerprint: str) -> None:
        self.folder = output / FOLDER
        self.fingerprint = fingerprint
        """Of settings, data, cache and student: checkpoints of another training are thrown away."""

    def save(self, update: int, model: Any, optimizer: torch.optim.Optimizer, counters: dict[str, Any]) -> None:
        """Write one checkpoint; older ones beyond the second are removed."""
        from safetensors.torch import save_file

        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{update:09d}"
        part = self.folder / f".part-{update}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        tensors, numbers = optimizer_tensors(optimizer)
        save_file(weights_of(model), part / "weights.safetensors")
        save_file(tensors, part / "optimizer.safetensors")
        files = {p.name: sha256_file(p) for p in sorted(part.iterdir())}
        state = {"fingerprint": self.fingerprint, "update": update, "files": files, "optimizer": numbers, **counters}
        write_json(part / "state.json", state)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        for old in self._steps()[:-KEEP]:
            shutil.rmtree(old)

    def resume(self, model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Load the newest whole checkpoint of this training; its counters, or None where there is none."""
        from safetensors.torch import load_file

        for step in reversed(self._steps()):
            state = self._whole(step)
            if state is None:
                shutil.rmtree(step)
                continue
            load_weights(model, step / "weights.safetensors")
            restore_optimizer(optimizer, load_file(step / "optimizer.safetensors"), state["optimizer"])
            return state
        return None

    def keep_best(self, model: Any) -> None:
        """Keep these weights as the best so far."""
        from safetensors.torch import save_file

        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / ".best"
        save_file(weights_of(model), part)
        part.replace(self.folder / "best.safetensors")

    def load_best(self, model: Any) -> bool:
        """Put the best weights back; False where none were kept."""
        path = self.folder / "best.safetensors"
        if not path.is_file():
            return False
        load_weights(model, path)
        return True

    def remove(self) -> None:
        """The training is whole: nothing to resume."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def _whole(self, step: Path) -> dict[str, Any] | None:
        try:
            state = read_json(step / "state.json", "checkpoint")
            same = all(sha256_file(step / name) == digest for name, digest in state["files"].items())
        except (StageProblem, OSError, KeyError):
            return None
        return state if same and state.get("fingerprint") == self.fingerprint else None


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """Trained tensors by name; tied ones once."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters()}


def load_weights(model: Any, path: Path) -> None:
    """Copy tensors of a file into the model."""
    from safetensors.torch import load_file

    saved = load_file(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(saved[name])
