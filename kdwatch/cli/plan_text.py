"""A plan as text for 80 columns: the card, why, who lost, the frontier as a chart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from kdwatch.rundir.text import clean
from planners.carbon import UNCERTAINTY
from planners.limits import NAMES
from planners.picture import budget_line, staircase
from planners.result import BreakEven, PlanResult, Recommendation
from planners.wording import axis, basis_text, energy, setting

WIDTH = 80
MOST_TOLD = 20


def plan_lines(result: PlanResult) -> Iterator[str]:
    """The lines that `kdwatch plan` prints."""
    if result.recommendation is None:
        yield from _infeasible(result)
    else:
        yield from _card(result, result.recommendation)
    yield from _beside(result)
    yield from _rejected(result)
    yield from _break_even(result)
    yield from chart_lines(result)
    for note in result.warnings:
        yield from _wrapped(f"! {note.code}: {note.text}", "  ")


def _wrapped(text: str, indent: str = "") -> list[str]:
    start = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(clean(text, 600), WIDTH, initial_indent=start, subsequent_indent=indent or "    ") or [""]


def _q(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _card(result: PlanResult, best: Recommendation) -> Iterator[str]:
    p = best.predicted
    level = f"{result.interval_level:.0%}"
    basis = basis_text(best.basis, best.scope)
    yield from _wrapped(f"RECOMMENDED  {clean(best.id, 60)}   ({basis}, {clean(best.source, 40)})", " " * 13)
    told = f"{energy(p.per_student_kwh)} per student at N = {result.reuse_n}{_fits(result)}"
    yield from _wrapped(f"  energy     {told}", " " * 13)
    low, high = energy(p.per_student_kwh_low), energy(p.per_student_kwh_high)
    yield f"  {level} of runs {low} to {high} (spread {p.spread})"
    yield f"  quality    {_q(p.quality)} ({_q(p.quality_low)} to {_q(p.quality_high)})"
    if result.limits["program_budget_kwh"] is not None:
        whole, paid = p.per_student_kwh * result.reuse_n, result.limits["program_budget_kwh"]
        yield f"  programme  {energy(whole)} of {energy(paid)} for {result.reuse_n} students"
    stages = ", ".join(f"{name} {energy(value)}" for name, value in p.stages_kwh.items() if value is not None)
    unknown = [name for name, value in p.stages_kwh.items() if value is None and name != "prerun"]
    if unknown:
        stages += f"{'; ' if stages else ''}{', '.join(unknown)} n/a"
    yield from _wrapped(f"  stages     {stages or 'n/a'}", " " * 13)
    yield from _money_and_carbon(result, p)
    if result.binding_limit is not None:
        yield f"  decided by {NAMES.get(result.binding_limit, 'quality floor')}"
    settings = ", ".join(f"{name}={setting(value)}" for name, value in best.hyperparameters.items() if name != "source")
    yield from _wrapped(
        f"  settings   {settings or 'n/a'} (from {best.hyperparameters.get('source', 'n/a')})", " " * 13
    )
    yield ""
    yield "WHY"
    for reason in best.reasons:
        yield from _wrapped(f"  - {reason.text} [{reason.source}]")


def _fits(result: PlanResult) -> str:
    best = result.recommendation
    if best is None or result.slack_kwh is None:
        return ""
    p = best.predicted.p_within
    sure = f", P(within) {p:.2f}" if p is not None else ""
    return f"; {energy(result.slack_kwh)} left{sure}"


def _money_and_carbon(result: PlanResult, p: Any) -> Iterator[str]:
    if p.co2e_kg is not None and result.grid is not None:
        main = result.grid["main"]
        where = f"{main['region'] or 'given'} {main['g_per_kwh']:.0f} g/kWh"
        year = f", {main['year']}" if main["year"] else ""
        yield f"  carbon     {p.co2e_kg:.3g} kg CO2e ±{UNCERTAINTY:.0%} ({where}{year}, PUE {main['pue_applied']:g})"
    parts = [
        f"{name} {value:.2f}"
        for name, value in (("electricity", p.electricity_cost), ("rental", p.rental_cost))
        if value is not None
    ]
    if parts:
        yield f"  cost       {', '.join(parts)} {clean(result.limits['currency'] or '', 10)}"
    if p.gpu_hours is not None:
        gpus = result.limits["gpus"]
        yield f"  GPU-hours  {p.gpu_hours:.2f} ({p.gpu_hours / gpus:.2f} h on {gpus:g} GPU)"
    if p.lifecycle_kwh is not None:
        yield f"  lifecycle  {energy(p.lifecycle_kwh)} with {result.serve_tokens:.3g} tokens served"


def _infeasible(result: PlanResult) -> Iterator[str]:
    yield "NOTHING FITS"
    if result.cheapest is not None:
        short = f"; {energy(result.shortfall_kwh)} short" if result.shortfall_kwh is not None else ""
        name, needed = clean(result.cheapest["id"], 60), energy(result.cheapest["per_student_kwh"])
        yield f"  cheapest   {name}  {needed} per student{short}"
    for step in result.relaxations:
        if step["limit"] == "together":
            joint = " and ".join(one["text"] for one in step["limits"])
            yield from _wrapped(f"  relax all  {joint}: then {step['candidate']}", " " * 13)
        else:
            yield from _wrapped(f"  relax      {step['text']}: then {step['candidate']}", " " * 13)


def _beside(result: PlanResult) -> Iterator[str]:
    yield ""
    if result.runner_up is not None:
        second = result.runner_up
        yield from _wrapped(
            f"RUNNER-UP    {second['id']}  {energy(second['per_student_kwh'])}, "
            f"Q {_q(second['quality'])}: {second['why']}",
            " " * 13,
        )
    if result.tie is not None:
        yield f"TIE          {', '.join(result.tie)}: {result.tie_break}"
    if result.choice_at_confidence is not None:
        other = result.choice_at_confidence
        how = "by the mean" if other["confidence"] is None else f"at {other['confidence']:.0%} confidence"
        text = (
            "nothing fits"
            if other["id"] is None
            else f"{other['id']}  {energy(other['per_student_kwh'])}, Q {_q(other['quality'])}"
        )
        yield f"BESIDE IT    {how}: {text}"
    for flip in result.flips:
        yield from _wrapped(f"WOULD FLIP   {flip['text']}", " " * 13)


def _rejected(result: PlanResult) -> Iterator[str]:
    if not result.rejected:
        return
    yield ""
    yield "NOT CHOSEN"
    yield from _grouped([(entry["id"], entry["why"]) for entry in result.rejected])


def _grouped(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """(name, text) of candidates; those of the same text share a line."""
    alike: dict[str, list[str]] = {}
    for name, text in entries:
        alike.setdefault(text, []).append(name)
    for text, names in list(alike.items())[:MOST_TOLD]:
        named = f"  {clean(', '.join(names), None):<10} "
        yield from textwrap.wrap(named + clean(text, 600), WIDTH, subsequent_indent=" " * 13)
    if len(alike) > MOST_TOLD:
        yield f"  and {sum(len(names) for names in list(alike.values())[MOST_TOLD:])} more (--json lists them)"


def _break_even(result: PlanResult) -> Iterator[str]:
    entries = [entry for entry in result.break_even if entry.n_verdict is not None]
    if not entries:
        return
    yield ""
    yield f"BREAK-EVEN REUSE against plain SFT of the same size ({result.interval_level:.0%} interval)"
    yield from _grouped([(clean(entry.id, 40), _n_star(entry, result.scope)) for entry in entries])


def _n_star(entry: BreakEven, scope: str | None) -> str:
    if entry.n_verdict != "finite":
        return str(entry.n_verdict)
    high = f"{entry.n_star_high:.1f}" if entry.n_star_high is not None else "no upper end: never cannot be excluded"
    better = f"strictly better from {entry.first_n_strictly_better}"
    return (
        f"N* = {entry.n_star:.2f} ({entry.n_star_low or 0:.1f} to {high}); {better}, {basis_text(entry.basis, scope)}"
    )


def chart_lines(result: PlanResult, width: int = WIDTH, height: int = 16) -> list[str]:
    """The candidates, the frontier's staircase and the budget as a plotext chart; empty with fewer than two points."""
    points = [c for c in result.candidates if c["quality"] is not None and c["per_student_kwh"] is not None]
    if len(points) < 2:
        return []
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    dearest = max(point["per_student_kwh"] for point in points)
    unit, scale = axis(dearest)
    line, budget = budget_line(result.allowed_kwh, dearest, scale)
    xs, ys = staircase([(point["per_student_kwh"], point["quality"]) for point in result.frontier])
    plotext.plot([x * scale for x in xs], ys, marker="dot")
    names = {point["id"] for point in result.frontier}
    for label, marker, chosen in (("frontier", "●", True), ("dominated", "○", False)):
        some = [c for c in points if (c["id"] in names) is chosen]
        if some:
            at = [c["per_student_kwh"] * scale for c in some]
            plotext.scatter(at, [c["quality"] for c in some], marker=marker, label=label)
    if result.recommendation is not None:
        p = result.recommendation.predicted
        plotext.scatter([p.per_student_kwh * scale], [p.quality], marker="★", label=clean(result.recommendation.id, 30))
    if line is not None:
        plotext.vline(line)
    plotext.xlabel(f"{unit} per student" + (f"   ({budget})" if budget else ""))
    plotext.ylabel("Q")
    return ["", *(line.rstrip() for line in plotext.uncolorize(plotext.build()).splitlines())]
