"""The design rules as code: for each its source, the condition that fires it, and the numbers in it.

Rules 1 to 6 are the study's (K. Lambert, S. Luccioni, ICML 2026, arXiv 2605.13981). `size_dominates` and
`marginal_gain` are arithmetic on the table. `raise_teacher_batch` is our extrapolation from a decode law and is
marked so until a run has measured it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planners.frontier import Point, marginal_quality
from planners.pairing import DISTILLED, baseline_of
from planners.request import PlanRequest
from planners.result import BreakEven, Reason
from planners.whatif import ASSUMED_BATCH, LONGER_THAN_LINEAR, batch_factor
from planners.wording import energy

Row = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """What the rules may look at."""

    chosen: Row
    rows: Sequence[Row]
    """All candidates in scope, scored."""
    request: PlanRequest
    break_even: Sequence[BreakEven]
    frontier: Sequence[Point]

    def point_of(self, name: str) -> BreakEven | None:
        return next((entry for entry in self.break_even if entry.id == name), None)

    @property
    def distilled(self) -> list[Row]:
        """Distilled candidates whose energy at this reuse is known."""
        return [row for row in self.rows if row["regime"] in DISTILLED and row["per_student_kwh"] is not None]


Rule = Callable[[Context], Iterator[Reason]]


def reuse_before_regenerate(c: Context) -> Iterator[Reason]:
    """Study, rule 1. Fires where the chosen candidate pays for a teacher's output."""
    teacher, n = c.chosen["teacher_kwh"], c.request.n
    if c.chosen["regime"] in DISTILLED and teacher and c.request.teacher_outputs == "compute":
        text = (
            f"the teacher's output costs {energy(teacher)} once and {energy(teacher / n)} per student at N = {n}: "
            "store and version it"
        )
        yield Reason(
            "reuse_before_regenerate", text, {"teacher_kwh": teacher, "n": n, "share_kwh": teacher / n}, "study"
        )


def one_off_sft(c: Context) -> Iterator[Reason]:
    """Study, rule 2. Fires for a single run where plain SFT of a size needs less energy than every distilled one."""
    if c.request.n != 1 or c.chosen["regime"] != "sft" or c.request.teacher_outputs == "cached":
        return
    for row in sorted(c.distilled, key=lambda r: _distance(r, c.chosen)):
        base = baseline_of(row, c.rows)
        if base is None or base["per_student_kwh"] is None or base["per_student_kwh"] >= row["per_student_kwh"]:
            continue
        text = (
            f"for a single run plain SFT costs less than distilling: {base['id']} {energy(base['per_student_kwh'])}, "
            f"{row['id']} {energy(row['per_student_kwh'])}{_as_it_is(row)}, of it {energy(row['teacher_kwh'])} for the "
            "teacher's output"
        )
        values = {
            "sft": base["id"],
            "sft_kwh": base["per_student_kwh"],
            "distilled": row["id"],
            "distilled_kwh": row["per_student_kwh"],
        }
        yield Reason("one_off_sft", text, values, "study")
        return


def _as_it_is(row: Row) -> str:
    return "" if row["basis"] == "measured" else " (predicted)"


def _distance(row: Row, chosen: Row) -> tuple[bool, bool, float, float]:
    """Rated ones first, measured ones, of like size, the cheapest."""
    sizes = row["student_params_b"], chosen["student_params_b"]
    apart = abs(sizes[0] - sizes[1]) if None not in sizes else float("inf")
    return row["quality"] is None, row["basis"] != "measured", apart, row["per_student_kwh"]


def reuse_break_even(c: Context) -> Iterator[Reason]:
    """Study, rules 1 and 3. Fires where the chosen candidate's N* is known: which side of it N lies on."""
    entry = c.point_of(c.chosen["id"])
    if entry is None or entry.n_verdict is None or entry.baseline is None:
        return
    n = c.request.n
    values = {
        "n": n,
        "n_star": entry.n_star,
        "low": entry.n_star_low,
        "high": entry.n_star_high,
        "baseline": entry.baseline,
    }
    if entry.n_verdict == "finite":
        high = f"{entry.n_star_high:.1f}" if entry.n_star_high is not None else "no upper end"
        side = "at or above" if n >= (entry.n_star or 0) else "below"
        interval = f"{entry.n_star_low or 0:.1f} to {high}"
        text = f"N = {n} is {side} N* = {entry.n_star:.2f} ({interval}) against {entry.baseline}"
    else:
        text = _VERDICTS[entry.n_verdict].format(baseline=entry.baseline)
    yield Reason("reuse_break_even", text, values, "study")


_VERDICTS = {
    "never": "however often the teacher's output is reused, it never pays back against {baseline}",
    "always": "the teacher's output costs nothing more: distilling needs less than {baseline} from the first student",
    "indifferent": "the teacher's output costs nothing more, and the student trains with as much as {baseline}",
}
"""Verdicts of `planners.breakeven` that have no N*."""


def small_students_amortise_slowest(c: Context) -> Iterator[Reason]:
    """Study, rule 3. Fires where one method has a finite N* at two sizes and N* falls with size."""
    if c.chosen["regime"] not in DISTILLED and c.request.n == 1:
        return
    by_id = {row["id"]: row for row in c.rows}

    def size(entry: BreakEven) -> float:
        return float(by_id[entry.id]["student_params_b"])

    for regime in DISTILLED:
        if c.chosen["regime"] in DISTILLED and c.chosen["regime"] != regime:
            continue
        known = [e for e in c.break_even if e.n_star and e.id in by_id and by_id[e.id]["regime"] == regime]
        known.sort(key=lambda e: (size(e), e.n_star))
        if not known or size(known[0]) == size(known[-1]):
            continue
        first, last = known[0], known[-1]
        if (first.n_star or 0) > (last.n_star or 0):
            text = (
                "small students pay the teacher back slowest: "
                f"N* {first.n_star:.1f} for {first.id}, {last.n_star:.1f} for {last.id}"
            )
            yield Reason(
                "small_students_amortise_slowest", text, {first.id: first.n_star, last.id: last.n_star}, "study"
            )


def alpha_before_temperature(c: Context) -> Iterator[Reason]:
    """Study, rule 4. Fires for KD."""
    if c.chosen["regime"] == "kd":
        text = "in KD alpha moves energy and quality most: sweep alpha (0.3, 0.5, 0.8) before temperature (1, 2, 4)"
        yield Reason("alpha_before_temperature", text, {"alpha": [0.3, 0.5, 0.8], "temperature": [1, 2, 4]}, "study")


def shorter_generations(c: Context) -> Iterator[Reason]:
    """Study, rule 5. Fires for synthetic SFT."""
    if c.chosen["regime"] == "synthetic_sft":
        exponent = LONGER_THAN_LINEAR
        text = (
            f"generation energy rises faster than its length (about L^{exponent}): keep max_new_tokens at a medium "
            "length, and cut the number and length of prompts before lengthening answers"
        )
        yield Reason("shorter_generations", text, {"exponent": exponent, "half_length_factor": 0.5**exponent}, "study")


def faster_convergence(c: Context) -> Iterator[Reason]:
    """Study, rule 6. Fires where the chosen distilled student trained with less energy than its SFT baseline, and early
    stopping could have made it so: with a fixed number of steps there must be another cause."""
    base = baseline_of(c.chosen, c.rows)
    student = c.chosen["student_kwh"]
    if c.chosen["regime"] not in DISTILLED or base is None or student is None or base["student_kwh"] is None:
        return
    early = c.chosen["source_kind"] == "paper" or "early_stop" in (c.chosen["hyperparameters"] or "")
    if early and student < base["student_kwh"]:
        text = (
            f"the student trains with {energy(student)} instead of {energy(base['student_kwh'])} ({base['id']}), as it "
            "converges in fewer steps: keep early stopping on"
        )
        yield Reason("faster_convergence", text, {"student_kwh": student, "baseline_kwh": base["student_kwh"]}, "study")


def size_dominates(c: Context) -> Iterator[Reason]:
    """Arithmetic. Fires where distilled candidates stay dominated by the chosen one at any reuse."""
    quality, cost = c.chosen["quality"], c.chosen["per_student_kwh"]
    for size in sorted({row["student_params_b"] for row in c.distilled if row["student_params_b"] is not None}):
        if size == c.chosen["student_params_b"]:
            continue
        rows = [
            row
            for row in c.distilled
            if row["student_params_b"] == size and row["quality"] is not None and row["teacher_kwh"] is not None
        ]
        floors = [row["total_kwh"] - row["teacher_kwh"] for row in rows]
        if rows and all(floor >= cost and row["quality"] < quality for floor, row in zip(floors, rows, strict=True)):
            figure = f"{cost:.2f}" if cost >= 0.1 else energy(cost)
            scores = "/".join(f"{row['quality']:.2f}" for row in rows)
            text = (
                f"even with an unlimited reuse the {size:g}B distilled students cost more than {c.chosen['id']} "
                f"({figure}) and score lower ({scores} < {quality:.2f})"
            )
            yield Reason(
                "size_dominates",
                text,
                {row["id"]: floor for row, floor in zip(rows, floors, strict=True)},
                "arithmetic",
            )


def marginal_gain(c: Context) -> Iterator[Reason]:
    """Arithmetic. Fires where the frontier goes on beyond the chosen point: what the next step would bring per kWh."""
    names = [point.id for point in c.frontier]
    if c.chosen["id"] not in names or len(names) < 2:
        return
    at = names.index(c.chosen["id"])
    gains = marginal_quality(c.frontier)
    if at + 1 < len(names):
        step, following = gains[at], c.frontier[at + 1]
        text = (
            f"the next step up, {following.id}, brings {following.quality - c.frontier[at].quality:+.2f} Q for "
            f"{energy(following.energy - c.frontier[at].energy)} more ({step:.4g} Q per kWh)"
        )
        yield Reason(
            "marginal_gain",
            text,
            {"next": following.id, "q_per_kwh": step, "step_before": gains[at - 1] if at else None},
            "arithmetic",
        )


def raise_teacher_batch(c: Context) -> Iterator[Reason]:
    """Ours, an extrapolation. Fires where a synthetic candidate generates at a small batch, known or assumed."""
    if c.request.teacher_outputs == "cached":
        return
    for row in c.distilled:
        batch = row["teacher_batch"] or ASSUMED_BATCH
        if row["regime"] != "synthetic_sft" or not row["teacher_kwh"] or batch >= 16 or not row["teacher_params_b"]:
            continue
        factor = batch_factor(row["teacher_params_b"], batch, 16)
        saved = row["teacher_kwh"] * (1 - factor) / c.request.n
        known = "" if row["teacher_batch"] else " (assumed)"
        text = (
            f"extrapolation, not measured: generating at batch 16 instead of {batch:g}{known} would cut {row['id']}'s "
            f"teacher stage to {factor:.0%}, {energy(row['per_student_kwh'] - saved)} per student; "
            "raise the batch before reuse, length or alpha"
        )
        values = {"id": row["id"], "batch": batch, "factor": factor, "saved_kwh": saved}
        yield Reason("raise_teacher_batch", text, values, "extrapolation")
        return


RULES: tuple[Rule, ...] = (
    one_off_sft,
    reuse_before_regenerate,
    reuse_break_even,
    small_students_amortise_slowest,
    size_dominates,
    faster_convergence,
    alpha_before_temperature,
    shorter_generations,
    marginal_gain,
    raise_teacher_batch,
)
"""In the order in which a person reads them."""


def fire(context: Context) -> list[Reason]:
    """Every reason that applies."""
    return [reason for rule in RULES for reason in rule(context)]
