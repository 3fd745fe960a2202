"""The decision: from a request and observations to a recommendation with its reasons. Pure; milliseconds.

observations -> candidates -> what-ifs and predictions -> scope -> score -> rank -> explain
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from planners import explain, limits, ranking
from planners.candidates import candidates
from planners.carbon import Grids, grids
from planners.flips import flips
from planners.frontier import Point, frontier, frontier_table, hypervolume, knee
from planners.noise import Uncertain, membership
from planners.notes import Note
from planners.observations import Observations
from planners.pairing import break_even
from planners.predicted import recommendation_of
from planners.program import students_under_program_budget
from planners.request import PlanRequest
from planners.result import PlanResult
from planners.rules import Context, fire
from planners.scope import Scoped, in_scope
from planners.scoring import score
from planners.serving import with_lifecycle
from planners.whatif import apply as apply_what_ifs

DEFAULT_CONFIDENCE = 0.9
"""Level of the choice that stands beside the one by the mean."""
MEMBERSHIP_POINTS = 60
"""Candidates nearest to the frontier for which membership is drawn."""

Row = dict[str, Any]


def plan(request: PlanRequest, observations: Observations) -> PlanResult:
    """Recommend within the limits, or say what is missing. Raises UsageProblem for a bad request."""
    request = request.checked()
    grid = grids(request)
    table, notes = prepare(request, observations)
    scoped = in_scope(table, request)
    scored = with_lifecycle(score(scoped.table, request, grid), request.serve_tokens, request.serve_batch)
    limits.check_known(scored, request)
    notes = [*observations.notes, *notes, *scoped.notes, *grid.notes]
    return _answer(_facts(request, scored, grid), scoped, notes, observations.sources)


def scored(request: PlanRequest, observations: Observations) -> pl.DataFrame:
    """All candidates of all scopes with what each uses under the request; the table behind a plan."""
    table, _ = prepare(request.checked(), observations)
    return with_lifecycle(score(table, request, grids(request)), request.serve_tokens, request.serve_batch)


def prepare(request: PlanRequest, observations: Observations) -> tuple[pl.DataFrame, list[Note]]:
    """Candidates, with predictions and what-ifs where they are asked for."""
    table = candidates(observations.table)
    notes: list[Note] = []
    if request.predict:
        from planners.predict import with_predictions

        table, notes = with_predictions(table, observations.table, request.sizes, request.tokens, observations.probes)
    table, more = apply_what_ifs(table, request)
    return table, notes + more


@dataclass(frozen=True)
class _Facts:
    """What the parts of an answer are made from."""

    request: PlanRequest
    scored: pl.DataFrame
    ranked: pl.DataFrame
    grid: Grids
    told: pl.DataFrame
    """Candidates that are told one by one: all, or of a large table those that matter."""
    rows: list[Row]
    """The same."""
    points: list[Point]
    on_frontier: list[Point]
    chosen: Row | None
    cheapest: Row | None

    def rescored(self, request: PlanRequest) -> pl.DataFrame:
        """The candidates told under another request of the same grids."""
        base = self.told.select([name for name in self.told.columns if not name.startswith("over_")])
        return with_lifecycle(score(base, request, self.grid), request.serve_tokens, request.serve_batch)


def _facts(request: PlanRequest, scored: pl.DataFrame, grid: Grids) -> _Facts:
    ranked = ranking.rank(scored, request)
    told = _told(scored, ranked)
    rows = list(told.iter_rows(named=True))
    points = _points(rows)
    return _Facts(
        request,
        scored,
        ranked,
        grid,
        told,
        rows,
        points,
        frontier(points, request.quality_tolerance),
        ranked.row(0, named=True) if ranked.height else None,
        limits.cheapest(scored, request),
    )


def _told(scored: pl.DataFrame, ranked: pl.DataFrame) -> pl.DataFrame:
    """All candidates; of more than a thousand the frontier, the best ranked and the first of the rest."""
    if scored.height <= explain.MOST_REJECTED:
        return scored
    wanted = pl.concat([frontier_table(scored)["id"], ranked["id"].head(200), scored["id"].head(500)]).unique()
    return scored.filter(pl.col("id").is_in(wanted.implode()))


def _decision(f: _Facts) -> dict[str, Any]:
    """What is chosen, what binds, what is left or missing."""
    request, chosen, best = f.request, f.chosen, f.cheapest
    tie = ranking.tied(f.ranked, request)
    cheapest = {key: best[key] for key in ("id", "per_student_kwh", "co2e_kg")} if best else None
    return {
        "feasible": chosen is not None,
        "objective": request.goal,
        "limits": explain.limits_object(request),
        "binding_limit": limits.binding(f.scored, request, chosen["id"] if chosen else None),
        "slack_kwh": limits.slack_kwh(chosen) if chosen else None,
        "tie": tie[0] if tie else None,
        "tie_break": tie[1] if tie else None,
        "runner_up": explain.runner_up(f.ranked, request),
        "unrated": f.scored.filter(pl.col("quality").is_null())["id"].to_list(),
        "cheapest": cheapest,
        "shortfall_kwh": None if chosen else limits.shortfall_kwh(best),
        "relaxations": [] if chosen else limits.relaxations(f.scored, request),
        "allowed_kwh": _allowed_kwh(request, chosen or best),
        "choice_at_confidence": _choice_at_confidence(request, f.scored, f.grid, chosen),
    }


def _frontier_parts(f: _Facts) -> dict[str, Any]:
    """The frontier and the numbers drawn from it."""
    curve = knee(f.on_frontier)
    reference = f.request.hypervolume_reference
    return {
        "frontier": _frontier_object(f.on_frontier, f.rows),
        "frontier_j_per_token": _per_token(f.rows),
        "knee": asdict(curve) if curve else None,
        "hypervolume": hypervolume([(p.energy, p.quality) for p in f.points], reference),
        "hypervolume_reference": reference,
        "candidates": explain.candidate_points(f.rows, f.request.interval_level),
    }


def _answer(f: _Facts, scoped: Scoped, notes: list[Note], sources: tuple[str, ...]) -> PlanResult:
    request, chosen, grid = f.request, f.chosen, f.grid
    entries = break_even(f.rows, request)
    context = Context(chosen, f.rows, request, entries, f.on_frontier) if chosen else None
    reasons = explain.reasons(context, f.ranked, fire(context)) if context else ()
    grids_object = {"main": grid.main.as_dict(), "teacher": grid.teacher.as_dict()}
    budget = request.program_budget_kwh
    return PlanResult(
        **_decision(f),
        **_frontier_parts(f),
        reuse_n=request.n,
        serve_tokens=request.serve_tokens,
        interval_level=request.interval_level,
        warnings=(*notes, *explain.notes(f.scored, f.ranked, chosen, request)),
        recommendation=recommendation_of(chosen, request, reasons) if chosen else None,
        rejected=explain.rejected(f.rows, chosen, request, f.points) + scoped.rejected,
        break_even=entries,
        flips=flips(f.told, request, chosen, f.rescored),
        grid=grids_object if grid.main.g_per_kwh is not None else None,
        scope=scoped.name,
        sources=sources,
        program=None if budget is None else students_under_program_budget(f.rows, budget),
    )


def _points(rows: list[Row]) -> list[Point]:
    return [
        Point(row["id"], row["per_student_kwh"], row["quality"])
        for row in rows
        if row["per_student_kwh"] is not None and row["quality"] is not None
    ]


def _per_token(rows: list[Row]) -> list[dict[str, Any]]:
    """The frontier of J per token, at the reuse of the plan, against quality."""
    points = [
        Point(row["id"], row["j_per_token"] * row["per_student_kwh"] / row["total_kwh"], row["quality"])
        for row in rows
        if None not in (row["j_per_token"], row["per_student_kwh"], row["quality"])
    ]
    return [{"id": p.id, "j_per_token": p.energy, "quality": p.quality} for p in frontier(points)]


def _frontier_object(on_frontier: list[Point], rows: list[Row]) -> list[dict[str, Any]]:
    """The frontier's points with the share of bootstrap draws in which each belongs to it."""
    by_id = {row["id"]: row for row in rows}
    names = {point.id for point in on_frontier}
    near = sorted(_points(rows), key=lambda p: (p.id not in names, p.energy))[:MEMBERSHIP_POINTS]
    shares = membership([_uncertain(by_id[point.id]) for point in near])
    return [
        {"id": p.id, "per_student_kwh": p.energy, "quality": p.quality, "membership": shares.get(p.id)}
        for p in on_frontier
    ]


def _uncertain(row: Row) -> Uncertain:
    root = row["n"] ** 0.5 if row["sd_dof"] != float("inf") else 1.0
    q_root = row["n"] ** 0.5 if row["quality_dof"] != float("inf") else 1.0
    return Uncertain(
        row["id"], row["per_student_kwh"], row["quality"], row["per_student_sd_kwh"] / root, row["quality_sd"] / q_root
    )


def _choice_at_confidence(
    request: PlanRequest, scored: pl.DataFrame, grid: Grids, chosen: Row | None
) -> dict[str, Any] | None:
    """The choice at 90 % where the one by the mean differs from it; with a required confidence, the one by the mean."""
    if not request.has_energy_like_limit:
        return None
    level = DEFAULT_CONFIDENCE if request.confidence is None else None
    base = scored.select([name for name in scored.columns if not name.startswith("over_")])
    other_request = replace(request, confidence=level)
    other = ranking.rank(score(base, other_request, grid), other_request)
    row = other.row(0, named=True) if other.height else None
    if (row and row["id"]) == (chosen and chosen["id"]):
        return None
    answer: dict[str, Any] = {
        "confidence": level,
        "id": None,
        "per_student_kwh": None,
        "quality": None,
        "p_within": None,
    }
    return answer | ({key: row[key] for key in answer if key != "confidence"} if row else {})


def _allowed_kwh(request: PlanRequest, row: Row | None) -> float | None:
    """Energy that the tightest energy-like limit allows for this candidate, kWh of the table."""
    return row["tightest_kwh"] if row and request.has_energy_like_limit else None
