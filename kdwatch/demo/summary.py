"""What the demo's three runs came to, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdwatch.ledger.marks import marked

ABOUT = """\
Three pipelines distil a 1M-parameter teacher into a small student on five exact-match tasks:
plain fine-tuning, distillation from cached logits, and fine-tuning on the teacher's answers.
A quarter of the training labels carries one wrong character, as labels that people write do:
without that noise the three come out alike."""

REGIMES = {"sft": "SFT on noisy labels", "kd": "KD, cached top-20", "synthetic_sft": "SFT on teacher's answers"}


def summary(reports: Sequence[dict[str, Any]]) -> str:
    """A table of the runs and what each reused, from their report objects."""
    lines = [f"{'pipeline':<26}{'time':>7}{'energy':>10}{'teacher':>10}{'student':>10}{'Q':>8}   status"]
    lines += [_line(report) for report in reports]
    lines += [text for report in reports for text in _reused(report)]
    if any(w["code"] == "estimated" for report in reports for w in report["warnings"]):
        lines.append("Energy of a part that no sensor measures here is estimated from a model: see kdwatch doctor.")
    lines.append("Q: the student's score over the teacher's, mean of five benchmarks.")
    return "\n".join(lines)


def _line(report: dict[str, Any]) -> str:
    quality = (report["quality"] or {}).get("q")
    shown = "n/a" if quality is None else format(quality, ".3f")
    estimated = any(stage["energy_j"]["estimated"] for stage in report["stages"])
    joules = (report["total_j"], _of_kind(report, "teacher"), _of_kind(report, "student"))
    energies = "".join(f"{marked(j, j and estimated):>10}" for j in joules)
    return (
        f"{REGIMES.get(report['regime'], report['name']):<26}{report['duration_s'] or 0:>6.0f}s"
        f"{energies}{shown:>8}   {report['status']}"
    )


def _of_kind(report: dict[str, Any], kind: str) -> float | None:
    known = [s["energy_j"]["total"] for s in report["stages"] if s["kind"] == kind]
    return sum(e for e in known if e is not None) if known else 0.0


def _reused(report: dict[str, Any]) -> list[str]:
    return [
        f"{report['name']}: {stage['name']} was reused from run {stage['reused_from']['run']}; "
        f"making it took {marked(stage['reused_from']['energy_j'], stage['reused_from'].get('estimated'))}"
        for stage in report["stages"]
        if stage["reused_from"]
    ]
