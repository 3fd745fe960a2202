"""Constants of CodeCarbon's power models for this machine, asked for in a short-lived process of their own.

Importing codecarbon takes over a second and brings pandas; neither the recorder nor a stage should carry that.
The answer is kept in `$XDG_CACHE_HOME/kdwatch` (default ~/.cache/kdwatch) for as long as CPU, memory and CodeCarbon
stay the same.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kdwatch.meters.processes import read_text

HELPER_LIMIT_S = 30.0

HELPER = """
import json, logging, sys
logging.disable(logging.CRITICAL)
out, sys.stdout = sys.stdout, sys.stderr
from codecarbon._version import __version__
from codecarbon.core.cpu import TDP
from codecarbon.core.util import count_cpus, count_physical_cpus
from codecarbon.external.ram import RAM
tdp = TDP()
known = bool(tdp.model) and tdp._get_cpu_power_from_registry(tdp.model) is not None
sockets = count_physical_cpus()
json.dump({
    "version": __version__, "cpu_model": tdp.model or "", "tdp_w": float(tdp.tdp or 85.0) * sockets,
    "tdp_known": known, "sockets": sockets, "cpus": count_cpus(), "ram_w": float(RAM().total_power().W),
}, out)
"""


@dataclass(frozen=True, slots=True)
class PowerModel:
    """What CodeCarbon assumes of this machine."""

    version: str
    """CodeCarbon's."""
    cpu_model: str
    tdp_w: float
    """Thermal design power of all sockets together, W."""
    tdp_known: bool
    """Whether the CPU is in CodeCarbon's table; otherwise 4 W a thread are assumed."""
    sockets: int
    cpus: int
    """Logical CPUs."""
    ram_w: float
    """Constant power of the memory, W."""

    @property
    def tdp_source(self) -> str:
        """Where the TDP came from, for the manifest."""
        what = "cpu_power.csv" if self.tdp_known else "CPU not in cpu_power.csv, 4 W a thread assumed"
        return f"codecarbon {self.version}: {what}"


class NoModel(Exception):
    """CodeCarbon gave no answer; the text says why, in one line."""


def cache_path() -> Path:
    """File that keeps the answer."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kdwatch" / "power_model.json"


def machine_key() -> str:
    """Changes when an answer kept would no longer hold."""
    try:
        package = version("codecarbon")
    except PackageNotFoundError:
        raise NoModel("codecarbon is not installed; pip install codecarbon") from None
    cpu = [x for x in (read_text("/proc/cpuinfo") or platform.processor()).splitlines() if x.startswith("model name")]
    memory = (read_text("/proc/meminfo") or "").partition("\n")[0]
    return "|".join([package, cpu[0] if cpu else platform.processor(), str(os.cpu_count()), " ".join(memory.split())])


def power_model() -> PowerModel:
    """The constants, from the cache where they still hold. Raises NoModel."""
    key = machine_key()
    kept = _kept(key)
    if kept is not None:
        return kept
    model = _ask()
    _keep(key, model)
    return model


def _kept(key: str) -> PowerModel | None:
    try:
        data = json.loads(cache_path().read_bytes())
        return PowerModel(**data["model"]) if data["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(key: str, model: PowerModel) -> None:
    path = cache_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": key, "model": asdict(model)}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        pass


def _ask() -> PowerModel:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CODECARBON_"))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", HELPER],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=HELPER_LIMIT_S,
            env=environment,
            cwd="/",
            check=True,
        )
        return PowerModel(**json.loads(done.stdout))
    except subprocess.CalledProcessError as problem:
        last = problem.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoModel(f"codecarbon failed: {last[0] if last else problem.returncode}") from None
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as problem:
        raise NoModel(f"codecarbon gave no answer: {type(problem).__name__}") from None
