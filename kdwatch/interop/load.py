"""One path to an `ImportedLog`: detect, read, and turn every failure into one line."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from kdwatch.interop.detect import detect
from kdwatch.interop.model import ImportedLog, ImportOptions, LogProblem
from kdwatch.interop.source import TextSource, Watch
from kdwatch.rundir.errors import UsageProblem

READERS: dict[str, str] = {
    "nvidia-smi-csv": "power_csv",
    "power-csv": "power_csv",
    "amd-smi-csv": "power_csv",
    "harness-power-csv": "power_csv",
    "nvidia-smi-dmon": "dmon",
    "nvidia-smi-pmon": "dmon",
    "codecarbon-emissions-csv": "codecarbon",
    "harness-stage-json": "harness",
    "harness-summary-json": "harness",
    "harness-stage-metrics-csv": "harness_table",
    "zeus-monitor-csv": "zeus",
    "zeus-trace-summary-csv": "zeus_trace",
    "carbontracker": "carbontracker",
    "prometheus-text": "prometheus",
    "slurm-sacct": "sacct",
    "mlperf-ptdaemon-spl": "ptdaemon",
    "perf-stat-text": "perf_text",
    "perf-stat-csv": "perf_csv",
    "intel-power-gadget-csv": "power_gadget",
    "upower-text": "upower",
    "trainer-log-jsonl": "trainer",
    "trainer-state-json": "trainer",
    "perun-json": "perun",
    "wandb-events-jsonl": "wandb_events",
}
"""Format -> module of kdwatch.interop.formats that reads it."""

Reader = Callable[[TextSource, ImportOptions], ImportedLog]


def load_log(path: Path, options: ImportOptions | None = None, watch: Watch | None = None) -> ImportedLog:
    """Read one file, or one directory of a harness. Raises UsageProblem with one line."""
    options = options or ImportOptions()
    if path.is_dir():
        from kdwatch.interop.formats.harness_dir import read_directory

        return read_directory(path, options)
    source = TextSource(path, watch)
    name = options.format or detect(source.head)
    if name not in READERS:
        raise LogProblem(
            f"{path}: JSON of no known kind (known: harness stage, trainer log, trainer state, perun)",
            no_log=True,
            format=None,
        )
    reader: Reader = import_module(f"kdwatch.interop.formats.{READERS[name]}").read
    try:
        return reader(source, options)
    except LogProblem as problem:
        text = str(problem) if str(problem).startswith(str(path)) else f"{path}: {problem}"
        facts = {"format": name, "encoding": source.encoding, **problem.facts}
        raise LogProblem(text, no_log=problem.no_log, **facts) from None
    except UsageProblem:
        raise
    except OSError as error:
        raise UsageProblem(
            f"{path}: reading stopped ({error.strerror or error}); is the temporary directory full?"
        ) from None
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise LogProblem(
            f"{path}: damaged, or not really {name} ({type(error).__name__}); try another --format", format=name
        ) from error
