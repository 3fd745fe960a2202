"""The manifest of a new run: what it is, on what it runs. Nothing secret: names of variables, masked words and URLs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdwatch import __version__
from kdwatch.meters.base import Meter
from kdwatch.rundir.process import identity
from kdwatch.rundir.redact import mask_args, mask_mapping, mask_url, mask_values, secret_values

NOTED_PACKAGES = (
    "torch",
    "transformers",
    "safetensors",
    "tokenizers",
    "datasets",
    "vllm",
    "lm_eval",
    "nvidia-ml-py",
    "codecarbon",
)


def build_manifest(
    *,
    run_id: str,
    name: str,
    regime: str,
    stages: Sequence[Mapping[str, Any]],
    recipe: Mapping[str, Any],
    meters: Sequence[Meter],
    sensors: Sequence[Any],
    environment: Mapping[str, str],
    workdir: Path,
    accounting: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest's object. `accounting`: budget_j, pue, region, intensity_g_per_kwh."""
    devices = [{**asdict(d), "stream": m.name} for m in meters for d in m.devices]
    manifest = {
        "kdwatch_version": __version__,
        "run_id": run_id,
        "name": name,
        "regime": regime,
        "recorder": identity(),
        "recipe": mask_mapping(recipe),
        "folder": str(workdir),
        "stages": [dict(s) for s in stages],
        "devices": devices,
        "sensors": [sensor_entry(s) for s in sensors],
        "hardware": hardware([d["name"] for d in devices if d["kind"] == "gpu"]),
        "versions": versions(),
        "git": git_state(workdir),
        "environment": sorted(environment),
        "protocol": "default",
        **accounting,
    }
    secrets = secret_values(environment)
    # the environment is there by its names alone
    return {k: v if k == "environment" else mask_values(v, secrets) for k, v in manifest.items()}


def sensor_entry(status: Any) -> dict[str, Any]:
    """One line of the manifest's `sensors`."""
    return {name: getattr(status, name, None) for name in ("stream", "status", "text", "fix")}


def stage_entry(
    name: str,
    kind: str,
    uses: str | None = None,
    command: Sequence[str] = (),
    gpus: Any = None,
    needs: Sequence[str] = (),
) -> dict[str, Any]:
    """One line of the manifest's `stages`."""
    return {
        "name": name,
        "kind": kind,
        "uses": uses,
        "command": mask_args(command),
        "gpus": gpus,
        "needs": list(needs),
    }


def hardware(gpus: Sequence[str]) -> dict[str, Any]:
    """CPU model, logical cores, memory in bytes, names of GPUs."""
    try:
        memory_b: int | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory_b = None
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "memory_b": memory_b, "gpus": list(gpus)}


def cpu_model() -> str | None:
    """What the CPU calls itself."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or None


def versions() -> dict[str, str]:
    """Versions of Python, kdwatch, the system, and of the packages that stages use, without importing them."""
    found = {
        "python": platform.python_version(),
        "kdwatch": __version__,
        "system": f"{platform.system()} {platform.release()}",
    }
    for package in NOTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, whether it is dirty, masked remote; None where there is no repository or no git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    remote = _git(folder, "remote", "get-url", "origin")
    return {
        "commit": commit,
        "dirty": None if status is None else bool(status),
        "remote": mask_url(remote) if remote else None,
    }


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2.0,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
