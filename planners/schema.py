"""The one table of observations: its columns, their units, and what an unknown value is (null).

A row is one finished run, or one row of a published table. Energies are kWh of the whole pipeline for one student
at reuse 1; `teacher_kwh` is the full cost of the teacher's output, whoever paid for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

REGIMES = ("sft", "kd", "synthetic_sft", "custom")
BASES = ("measured", "interpolated", "extrapolated")
STAGES = ("prerun", "preprocess", "teacher", "student", "eval")
"""Stages of a pipeline; the table holds `<stage>_kwh` of each."""
SCOPES = ("gpu", "gpu+cpu", "cpu", "gpu+cpu_estimated", "cpu_estimated", "other")
"""What the energy covers. Two scopes are never compared."""

COLUMNS: dict[str, tuple[Any, str]] = {
    "id": (pl.String, "name of the candidate; rows of one id are repeats of it"),
    "regime": (pl.String, f"one of {', '.join(REGIMES)}"),
    "student_params_b": (pl.Float64, "student size in billions of parameters"),
    "teacher_params_b": (pl.Float64, "teacher size in billions of parameters"),
    "total_kwh": (pl.Float64, "energy of all stages, kWh"),
    "prerun_kwh": (pl.Float64, "energy of the prerun, kWh"),
    "preprocess_kwh": (pl.Float64, "energy of the preprocessing, kWh"),
    "teacher_kwh": (pl.Float64, "energy of the teacher's output, in full, kWh"),
    "student_kwh": (pl.Float64, "energy of the student's training, kWh"),
    "eval_kwh": (pl.Float64, "energy of the evaluation, kWh"),
    "quality": (pl.Float64, "Q: mean over benchmarks of student's score / teacher's score"),
    "j_per_token": (pl.Float64, "energy of all stages per token, J"),
    "tokens": (pl.Float64, "tokens that the student trained on, all epochs"),
    "teacher_tokens": (pl.Float64, "tokens that the teacher generated or scored"),
    "teacher_input_tokens": (pl.Float64, "prompt tokens that the teacher read"),
    "teacher_batch": (pl.Float64, "batch size of the teacher's pass"),
    "max_new_tokens": (pl.Float64, "longest generation allowed, tokens"),
    "prompts": (pl.Float64, "number of prompts"),
    "alpha": (pl.Float64, "weight of the hard labels' loss"),
    "temperature": (pl.Float64, "softmax temperature of distillation"),
    "data": (pl.String, "what the pipeline was fed; rows of other data are no repeats"),
    "hyperparameters": (pl.String, "other settings, as a JSON object"),
    "total_sd_kwh": (pl.Float64, "standard deviation over repeats, where a row is a mean, kWh"),
    "quality_sd": (pl.Float64, "standard deviation of Q over repeats, where a row is a mean"),
    "repeats": (pl.Int64, "runs that the row is the mean of"),
    "duration_s": (pl.Float64, "time of the whole run, s"),
    "gpu_hours": (pl.Float64, "GPU-hours of the whole run"),
    "mean_gpu_w": (pl.Float64, "mean power of one GPU while it worked, W"),
    "j_per_served_token": (pl.Float64, "energy per token served by the finished student, J"),
    "hardware": (pl.String, "what it ran on"),
    "scope": (pl.String, f"what the energy covers: {', '.join(SCOPES)}"),
    "basis": (pl.String, f"{BASES[0]}, {BASES[1]} or {BASES[2]}"),
    "derived": (pl.Boolean, "the total is a sum of stages, not a published cell"),
    "source": (pl.String, "where the row comes from"),
    "run_dir": (pl.String, "directory of the run that the row is"),
}
"""Column: (type, meaning). All but `regime` may be null."""

SCHEMA: dict[str, Any] = {name: dtype for name, (dtype, _) in COLUMNS.items()}
STAGE_COLUMNS = tuple(f"{stage}_kwh" for stage in STAGES)
CORE_STAGES = ("preprocess_kwh", "teacher_kwh", "student_kwh", "eval_kwh")
"""A total may be derived where all of these are known; prerun counts where it is known."""

_LABELS = {"sft": "SFT", "kd": "KD", "synthetic_sft": "Syn", "custom": "Custom"}
_ALIASES = {"sft": "sft", "kd": "kd", "syn": "synthetic_sft", "synsft": "synthetic_sft", "custom": "custom"}


def regime_of(name: str) -> str | None:
    """`KD`, `SynSFT`, `synthetic_sft` … as the regime's name, or None."""
    key = name.strip().lower().replace("-", "_")
    return key if key in REGIMES else _ALIASES.get(key.replace("_", ""))


def size_label(params_b: float) -> str:
    """`7B`, `1.5B`, `135M`, `101k` for a number of billions of parameters."""
    for scale, unit in ((1.0, "B"), (1e-3, "M"), (1e-6, "k")):
        if params_b >= 0.9995 * scale:
            return f"{params_b / scale:.3g}{unit}"
    return f"{params_b * 1e9:.3g}"


def candidate_id(regime: str, params_b: float | None) -> str:
    """The study's way of naming: `KD-1B`, `Syn-13B`."""
    return _LABELS.get(regime, regime) + (f"-{size_label(params_b)}" if params_b is not None else "")


def make_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows with any of the columns as a table with all of them."""
    full = [{name: row.get(name) for name in SCHEMA} for row in rows]
    return pl.DataFrame(full, schema=SCHEMA, strict=False)
