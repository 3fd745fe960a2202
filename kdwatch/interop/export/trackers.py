"""A run's stages in TensorBoard, Weights & Biases, MLflow or Trackio, through their public functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem

Report = Mapping[str, Any]


def stage_scalars(report: Report) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Number, name and known numbers of each stage; energy in joules, time in seconds."""
    for number, stage in enumerate(report["stages"]):
        energy = stage["energy_j"]
        values = {
            "energy_j": energy["total"],
            **{f"{part}_j": energy[part] for part in ("gpu", "cpu", "dram", "ram_estimated", "other")},
            "duration_s": stage["duration_s"],
            "mean_w": stage["mean_w"],
            "tokens": stage["tokens"],
            "j_per_token": stage["j_per_token"],
        }
        yield number, str(stage["name"]), {key: float(v) for key, v in values.items() if v is not None}


def run_scalars(report: Report) -> dict[str, float]:
    """Known numbers of the whole run."""
    values = {name: report[name] for name in ("total_j", "unattributed_j", "duration_s", "co2e_kg")}
    return {name: float(value) for name, value in values.items() if value is not None}


def _module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UsageProblem(
            f"{package} is not installed here: pip install {package}, or choose another --format"
        ) from None


def to_tensorboard(report: Report, target: Path | None) -> str:
    """Scalars into an event directory, one step a stage. Returns what was done."""
    summary = _module("tensorboard.summary", "tensorboard")
    folder = target or Path("runs") / str(report["run_id"])
    writer = summary.Writer(str(folder))
    try:
        for number, name, values in stage_scalars(report):
            for key, value in values.items():
                writer.add_scalar(f"kdwatch/{name}/{key}", value, number)
        for key, value in run_scalars(report).items():
            writer.add_scalar(f"kdwatch/run/{key}", value, 0)
    finally:
        writer.close()
    return f"scalars in {folder}: tensorboard --logdir {folder}"


def to_wandb(report: Report, target: Path | None) -> str:
    """A Weights & Biases run of its own, one step a stage; offline mode is the user's setting (WANDB_MODE)."""
    wandb = _module("wandb", "wandb")
    return _log_run(wandb.init, report, "Weights & Biases")


def to_trackio(report: Report, target: Path | None) -> str:
    """The same in Trackio, which has the same functions."""
    trackio = _module("trackio", "trackio")
    return _log_run(trackio.init, report, "Trackio")


def _log_run(init: Callable[..., Any], report: Report, shown: str) -> str:
    run = init(
        project="kdwatch", name=str(report["run_id"]), config={"name": report["name"], "regime": report["regime"]}
    )
    for number, name, values in stage_scalars(report):
        run.log({f"{name}/{key}": value for key, value in values.items()}, step=number)
    run.log({f"run/{key}": value for key, value in run_scalars(report).items()}, step=len(report["stages"]))
    run.finish()
    return f"{len(report['stages'])} stages logged to {shown}, project kdwatch"


def to_mlflow(report: Report, target: Path | None) -> str:
    """An MLflow run with metrics, one step a stage."""
    mlflow = _module("mlflow", "mlflow")
    with mlflow.start_run(run_name=str(report["run_id"])):
        mlflow.set_tags({"kdwatch.name": str(report["name"]), "kdwatch.regime": str(report["regime"])})
        for number, name, values in stage_scalars(report):
            mlflow.log_metrics({f"{name}/{key}": value for key, value in values.items()}, step=number)
        mlflow.log_metrics({f"run/{key}": value for key, value in run_scalars(report).items()}, step=0)
    return f"{len(report['stages'])} stages logged to MLflow"


TRACKERS: dict[str, Callable[[Report, Path | None], str]] = {
    "tensorboard": to_tensorboard,
    "wandb": to_wandb,
    "trackio": to_trackio,
    "mlflow": to_mlflow,
}
