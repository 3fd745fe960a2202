"""Modelled candidates: methods at sizes that nobody ran, marked interpolated or extrapolated, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from planners.candidates import source_kind, unique_ids
from planners.costmodel import (
    Declined,
    Observed,
    Prediction,
    StageModel,
    fit_stage,
    mean_of_runs,
    one_size,
    straight_line,
)
from planners.decode import SMALLEST_B, applies, decode_j_per_token
from planners.flops import training_prior_kwh
from planners.notes import Note
from planners.pairing import COMPUTE_SOURCE
from planners.probed import Probes, narrower, of_group, probed_student, student_sizes
from planners.probes import Probe
from planners.qualitymodel import predict_quality
from planners.schema import candidate_id
from planners.teachermodel import KWH_J, plus
from planners.whatif import ASSUMED_BATCH

Row = dict[str, Any]
PREDICTED_SOURCE = "cost model"
PROBED_SOURCE = "cost model and probes"
COMPUTE_SD = 0.5
"""Relative sd of a teacher's stage that is known from compute alone."""
_GROUP = ("scope", "hardware", "source_kind")


def with_predictions(
    table: pl.DataFrame,
    runs: pl.DataFrame,
    sizes: Sequence[float] = (),
    tokens: float | None = None,
    found: Sequence[Probes] = (),
) -> tuple[pl.DataFrame, list[Note]]:
    """The candidates with predicted ones for every method at `sizes` (empty: all sizes observed or probed), from single
    runs and from probes.

    A method is fitted on its own hardware and scope. What the model declines is named in the notes.
    """
    rows = list(runs.with_columns(source_kind()).iter_rows(named=True))
    added: list[Row] = []
    notes: list[Note] = []
    for group in _groups(rows):
        probes = of_group(found, group)
        seen = {row["student_params_b"] for row in group if row["student_params_b"]}
        wanted = sorted(set(sizes) or _with_probed(seen, probes))
        for regime in ("sft", "kd", "synthetic_sft"):
            mine = [row for row in group if row["regime"] == regime]
            if not mine and tokens is None:
                continue
            if regime == "sft":
                table = _with_modelled_students(table, mine)
            for size in wanted:
                if any(_same_size(row["student_params_b"], size) for row in mine):
                    continue
                try:
                    known = mine or [unmeasured(regime, group, tokens or 0.0)]
                    added.append(predict_candidate(known, group, size, tokens, probes))
                except Declined as why:
                    notes.append(Note("prediction_declined", f"{candidate_id(regime, size)}: {why}"))
    if not added:
        return table, notes or [Note("nothing_to_predict", "every method is measured at every size asked for")]
    names = ", ".join(row["id"] for row in added)
    notes.append(Note("predicted", f"{names}: predicted, not measured; one run at that size would settle it"))
    full = [{name: row.get(name) for name in table.columns} for row in added]
    return unique_ids(pl.concat([table, pl.DataFrame(full, schema=table.schema, strict=False)])), notes


def _with_probed(seen: set[float], probes: Sequence[Probe]) -> set[float]:
    return seen | {size for size in student_sizes(probes) if not any(_same_size(size, old) for old in seen)}


def _same_size(a: float | None, b: float) -> bool:
    return a is not None and math.isclose(a, b, rel_tol=1e-3)


def _with_modelled_students(table: pl.DataFrame, mine: Sequence[Row]) -> pl.DataFrame:
    """Baselines whose student energy is unknown get a modelled one beside it, for break-even only."""
    unknown = [row for row in mine if row["student_kwh"] is None and row["student_params_b"]]
    for row in unknown:
        try:
            found = _student(mine, row["student_params_b"], None, row["hardware"])
        except Declined:
            continue
        here = (pl.col("id") == row["id"]) & pl.col("student_kwh").is_null()
        table = table.with_columns(
            pl.when(here).then(found.mean).otherwise("modelled_student_kwh").alias("modelled_student_kwh"),
            pl.when(here).then(found.se).otherwise("student_sd_kwh").alias("student_sd_kwh"),
            pl.when(here).then(found.dof).otherwise("student_dof").alias("student_dof"),
        )
    return table


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _GROUP), []).append(row)
    return list(groups.values())


def predict_candidate(
    mine: Sequence[Row], group: Sequence[Row], size: float, tokens: float | None = None, probes: Sequence[Probe] = ()
) -> Row:
    """One predicted candidate of the method of `mine`. Raises Declined."""
    fixed = _fixed(mine)
    evaluation = _evaluation(group, size)
    student, probed = _student_or_probe(mine, size, tokens, fixed["hardware"], probes)
    teacher, before = (mean_of_runs(_known(mine, name)) for name in ("teacher_kwh", "preprocess_kwh"))
    if mine[0].get("from_compute"):
        sd = COMPUTE_SD * teacher.mean
        teacher = Prediction(teacher.mean, sd, sd, math.inf, "extrapolated")
    total = plus([before, teacher, student, evaluation])
    quality = _quality(mine, size)
    return fixed | {
        "id": candidate_id(mine[0]["regime"], size),
        "student_params_b": size,
        "student_kwh": student.mean,
        "student_sd_kwh": student.se,
        "student_dof": student.dof,
        "teacher_sd_kwh": teacher.se,
        "teacher_dof": teacher.dof,
        "eval_kwh": evaluation.mean,
        "total_kwh": total.mean + (fixed["prerun_kwh"] or 0.0),
        "total_sd_kwh": _as_one_run(total.run_sd, total.dof),
        "sd_dof": total.dof,
        "quality": quality.mean if quality else None,
        "quality_sd": _as_one_run(quality.run_sd, quality.dof) if quality else 0.0,
        "quality_dof": quality.dof if quality else math.inf,
        "n": 1,
        "basis": total.basis,
        "derived": False,
        "source": COMPUTE_SOURCE if mine[0].get("from_compute") else PROBED_SOURCE if probed else PREDICTED_SOURCE,
    }


def _student_or_probe(
    mine: Sequence[Row], size: float, tokens: float | None, hardware: str | None, probes: Sequence[Probe]
) -> tuple[Prediction, bool]:
    """The student's energy from full runs or from probes, whichever is surer; and whether it is that of probes."""
    from_probes = None
    if probes:
        with suppress(Declined):
            from_probes = probed_student(probes, mine, size, tokens)
    try:
        from_runs = _student(mine, size, tokens, hardware)
    except Declined:
        if from_probes is None:
            raise
        return from_probes, True
    best = narrower(from_probes, from_runs) or from_runs
    return best, best is from_probes


def unmeasured(regime: str, group: Sequence[Row], tokens: float) -> Row:
    """A row that stands for a method of which nothing was measured: the teacher's output from compute alone.

    Logits are a forward pass, a third of the FLOPs of training, generation is the decode law at the usual small batch.
    Raises Declined where the teacher's size or the preprocessing energy is unknown, or off the H100.
    """
    first = group[0]
    size = next((row["teacher_params_b"] for row in group if row["teacher_params_b"]), None)
    before = _known(group, "preprocess_kwh")
    if not before or (regime != "sft" and size is None):
        raise Declined(f"nothing of {regime} was measured here, and the teacher's size or preprocessing is unknown")
    if not applies(size or SMALLEST_B, first["hardware"]):
        raise Declined(f"nothing of {regime} was measured here, and compute alone is known for the H100 only")
    teacher = 0.0
    if regime == "kd":
        teacher = training_prior_kwh("sft", size or 0.0, tokens, first["hardware"]).mean / 3.0
    elif regime == "synthetic_sft":
        teacher = tokens * decode_j_per_token(size or 0.0, ASSUMED_BATCH) / KWH_J
    return dict.fromkeys(first) | {
        "regime": regime,
        "hardware": first["hardware"],
        "scope": first["scope"],
        "source_kind": first["source_kind"],
        "teacher_params_b": size,
        "preprocess_kwh": sum(before) / len(before),
        "teacher_kwh": teacher,
        "from_compute": True,
    }


def _known(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _as_one_run(run_sd: float, dof: float) -> float:
    """The sd whose interval for a next run, sqrt(1 + 1/n) at n = 1, is the prediction's."""
    return run_sd if math.isinf(dof) else run_sd / math.sqrt(2.0)


def _fixed(mine: Sequence[Row]) -> Row:
    """What does not depend on the student's size: preprocessing and the teacher, as means over the method's runs."""
    first = mine[0]
    found: Row = {name: first[name] for name in ("regime", "hardware", "scope", "source_kind", "teacher_params_b")}
    for name in ("preprocess_kwh", "teacher_kwh", "prerun_kwh"):
        known = _known(mine, name)
        found[name] = sum(known) / len(known) if known else None
    if found["preprocess_kwh"] is None or found["teacher_kwh"] is None:
        raise Declined("preprocessing or teacher energy of this method is unknown")
    return found


def _student(mine: Sequence[Row], size: float, tokens: float | None, hardware: str | None) -> Prediction:
    observed = [
        Observed(row["student_params_b"], row["student_kwh"], row["tokens"])
        for row in mine
        if row["student_params_b"] and row["student_kwh"] is not None
    ]
    sizes = {o.params_b for o in observed}
    if len(sizes) >= 2:
        return student_model(mine, observed).predict(size, tokens)
    if observed:
        return one_size(observed, size)
    if tokens is None:
        raise Declined(
            "no student of this method has a known energy; give --tokens for the compute prior, or measure two sizes"
        )
    return training_prior_kwh(mine[0]["regime"], size, tokens, hardware)


def student_model(mine: Sequence[Row], observed: Sequence[Observed]) -> StageModel:
    """The method's student model; sizes known only as totals check the line and widen the interval."""
    residuals = []
    stage_points = [(o.params_b, o.energy_kwh) for o in observed]
    evaluations = [
        (r["student_params_b"], r["eval_kwh"]) for r in mine if r["eval_kwh"] is not None and r["student_params_b"]
    ]
    for row in mine:
        if (
            row["student_kwh"] is None
            and row["total_kwh"]
            and row["teacher_kwh"] is not None
            and row["student_params_b"]
        ):
            if len({p for p, _ in evaluations}) < 2:
                continue
            known = _fixed(mine)
            expected = straight_line(stage_points, row["student_params_b"]) + straight_line(
                evaluations, row["student_params_b"]
            )
            expected += known["preprocess_kwh"] + row["teacher_kwh"]
            residuals.append(expected / row["total_kwh"] - 1.0)
    return fit_stage(observed, residuals)


def _evaluation(group: Sequence[Row], size: float) -> Prediction:
    """Evaluation costs the same whatever the method: all methods of the group are fitted together."""
    points = [
        (row["student_params_b"], row["eval_kwh"])
        for row in group
        if row["student_params_b"] and row["eval_kwh"] is not None
    ]
    if not points:
        raise Declined("evaluation energy is unknown at every size")
    observed = sorted({Observed(size_b, energy) for size_b, energy in points})
    if len({o.params_b for o in observed}) == 1:
        return one_size(observed, size)
    return fit_stage(observed).predict(size)


def _quality(mine: Sequence[Row], size: float) -> Prediction | None:
    points = [
        (row["student_params_b"], row["quality"])
        for row in mine
        if row["student_params_b"] and row["quality"] is not None
    ]
    try:
        return predict_quality(points, size)
    except Declined:
        return None
