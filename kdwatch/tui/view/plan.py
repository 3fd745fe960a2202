"""A plan as text: the recommendation and why, the others, and the frontier as a chart with a letter a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdwatch.rundir.text import clean
from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view import chart
from kdwatch.tui.view.line import Line, cut, left, right, wrapped
from planners.wording import basis_text, energy, setting


def q_text(value: float | None) -> str:
    """Quality with two decimals."""
    return "n/a" if value is None else f"{value:.2f}"


def letters(plan: Mapping[str, Any]) -> dict[str, str]:
    """Letter of each candidate, by energy from the lowest; those without energy come last."""
    order = sorted(plan["candidates"], key=lambda c: (c["per_student_kwh"] is None, c["per_student_kwh"] or 0.0))
    return {c["id"]: chart.letter_of(i) for i, c in enumerate(order)}


def card_lines(plan: Mapping[str, Any], width: int, selected: str | None = None) -> list[Line]:
    """What to do and why; what it would take where nothing fits; then every candidate with its fate."""
    best = plan["recommendation"]
    lines = _recommended(plan, best, width) if best else _infeasible(plan, width)
    if plan["runner_up"]:
        second = plan["runner_up"]
        text = f"{clean(second['id'], 40)}  {energy(second['per_student_kwh'])}, Q {q_text(second['quality'])}: "
        lines += [(), *_block("runner-up", text + clean(second["why"], 200), width)]
    lines += [(), (("candidates", "head"),), *candidate_lines(plan, width, selected)]
    lines += _break_even(plan, width)
    lines += [line for w in plan["warnings"] for line in _block("note", clean(w["text"], 400), width, "warn")]
    return lines


def _block(label: str, text: str, width: int, tone: str = "") -> list[Line]:
    """A label and a wrapped text beside it."""
    texts = wrapped(text, max(width - 13, 16))
    first: Line = ((left(label, 12) + " ", "dim"), (texts[0], tone))
    return [first, *(((" " * 13 + more, tone),) for more in texts[1:])]


def _recommended(plan: Mapping[str, Any], best: Mapping[str, Any], width: int) -> list[Line]:
    p = best["predicted"]
    level = f"{plan['interval_level']:.0%}"
    lines: list[Line] = [
        (
            (f"{clean(best['id'], 40)}", "accent"),
            (f"  {clean(best['regime'], 20)}, {basis_text(best['basis'], best['scope'])}", "dim"),
        ),
        *_block("energy", f"{energy(p['per_student_kwh'])} per student at N = {plan['reuse_n']}", width, "head"),
        *_block(f"{level} range", f"{energy(p['per_student_kwh_low'])} to {energy(p['per_student_kwh_high'])}", width),
        *_block(
            "quality", f"{q_text(p['quality'])} ({q_text(p['quality_low'])} to {q_text(p['quality_high'])})", width
        ),
    ]
    if plan["slack_kwh"] is not None:
        within = "" if p["p_within"] is None else f", P(within) {p['p_within']:.2f}"
        lines += _block("left", f"{energy(plan['slack_kwh'])}{within}", width)
    if p["co2e_kg"] is not None:
        lines += _block("carbon", f"{p['co2e_kg']:.3g} kg CO2e", width)
    chosen = [(name, setting(value)) for name, value in best["hyperparameters"].items() if name != "source"]
    settings = ", ".join(f"{clean(name, 30)} {clean(value, 30)}" for name, value in chosen)
    lines += _block("settings", f"{settings or 'n/a'} (from {best['hyperparameters'].get('source', 'n/a')})", width)
    for reason in best["reasons"]:
        lines += _block("why" if reason is best["reasons"][0] else "", "- " + clean(reason["text"], 400), width)
    return lines


def _infeasible(plan: Mapping[str, Any], width: int) -> list[Line]:
    lines: list[Line] = [(("nothing fits these limits", "bad"),)]
    cheapest = plan["cheapest"]
    if cheapest:
        short = "" if plan["shortfall_kwh"] is None else f", {energy(plan['shortfall_kwh'])} short"
        lines += _block("cheapest", f"{clean(cheapest['id'], 40)}  {energy(cheapest['per_student_kwh'])}{short}", width)
    for step in plan["relaxations"]:
        one_by_one = step["limits"] if step["limit"] == "together" else [step]
        text = " and ".join(clean(one["text"], 200) for one in one_by_one)
        name = "relax all" if step["limit"] == "together" else "relax"
        lines += _block(name, f"{text}: then {clean(step['candidate'], 40)}", width)
    return lines


def candidate_lines(plan: Mapping[str, Any], width: int, selected: str | None) -> list[Line]:
    """Letter, name, energy, quality and fate of each candidate."""
    why = {r["id"]: clean(r["why"], 200) for r in plan["rejected"]}
    on_frontier = {p["id"] for p in plan["frontier"]}
    best = plan["recommendation"]["id"] if plan["recommendation"] else None
    lines: list[Line] = []
    by_id = {c["id"]: c for c in plan["candidates"]}
    for name, letter in letters(plan).items():
        c = by_id[name]
        fate = "recommended" if name == best else why.get(name, "")
        tone = "accent" if name == best else "" if name in on_frontier else "dim"
        pointer = ">" if name == selected else " "
        numbers = f"{right(energy(c['per_student_kwh']), 10)}  Q {left(q_text(c['quality']), 5)}"
        start = f"{pointer}{letter} {left(clean(name, 40), 12)} {numbers}"
        mark = "frontier  " if name in on_frontier else ""
        lines.append(((start, tone), (mark, "good"), (cut(fate, width - len(start) - len(mark)), "dim")))
    return lines


def _break_even(plan: Mapping[str, Any], width: int) -> list[Line]:
    rows = [b for b in plan["break_even"] if b["n_verdict"]]
    if not rows:
        return []
    lines: list[Line] = [(), (("students before a shared teacher pays (N*)", "head"),)]
    for row in rows:
        text = row["n_verdict"]
        if row["n_star"] is not None:
            text = f"N* {row['n_star']:.1f}, better from {row['first_n_strictly_better']}"
            if row["n_star_low"] is not None and row["n_star_high"] is not None:
                text += f" ({row['n_star_low']:.1f} to {row['n_star_high']:.1f})"
        lines += _block(clean(row["id"], 12), f"{text}, {basis_text(clean(row['basis'], 20), plan['scope'])}", width)
    return lines


def chart_lines(plan: Mapping[str, Any], width: int, height: int, glyphs: Glyphs, selected: str | None) -> list[Line]:
    """The candidates on the plane of energy and quality with their frontier and the budget as a line."""
    names = letters(plan)
    points = [p for c in plan["candidates"] if (p := _point(c, names)) is not None]
    frontier = [p for c in plan["frontier"] if (p := _point(c, names)) is not None]
    best = plan["recommendation"]["id"] if plan["recommendation"] else selected
    return chart.chart_lines(
        points,
        frontier,
        width,
        height,
        glyphs,
        of="per student",
        allowed_kwh=plan["allowed_kwh"],
        chosen=names.get(best or "", ""),
    )


def _point(candidate: Mapping[str, Any], names: Mapping[str, str]) -> chart.Point | None:
    energy_kwh, quality = candidate["per_student_kwh"], candidate["quality"]
    if energy_kwh is None or quality is None:
        return None
    return chart.Point(names[candidate["id"]], energy_kwh, quality)
