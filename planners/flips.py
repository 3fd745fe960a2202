"""What change of a limit, or of the reuse N, would give another answer: found by asking again, not by a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import polars as pl

from planners.checks import LARGEST
from planners.limits import NAMES, amount, kept_without
from planners.ranking import rank
from planners.request import PlanRequest
from planners.rounding import down, up
from planners.scoring import SLACK, USED, limit_values
from planners.wording import energy

Row = dict[str, Any]
Rescore = Callable[[PlanRequest], pl.DataFrame]
"""The candidates told, scored under another request."""
ENERGY = "per_student_kwh"
TRIED = 12
"""Values of a limit that are tried in each direction, nearest first."""
TRIED_N = 8
"""Values of N that are tried, smallest first."""
MOST_N = 3
"""Changes of N that are told."""


def flips(scored: pl.DataFrame, request: PlanRequest, chosen: Row | None, rescore: Rescore) -> list[dict[str, Any]]:
    """What change would give another answer: each limit up and down, and the reuse N."""
    found = []
    if chosen is not None:
        for name in limit_values(request):
            found += _limit_flips(scored, request, chosen, name)
        if request.min_quality is not None:
            found += _floor_flips(scored, request, chosen)
    return found + reuse_flips(scored, request, chosen, rescore)


def _first(table: pl.DataFrame, request: PlanRequest) -> Row | None:
    ranked = rank(table, request)
    return ranked.row(0, named=True) if ranked.height else None


def _keeping(table: pl.DataFrame, condition: pl.Expr, request: PlanRequest) -> Row | None:
    """Who is chosen of the feasible ones that meet a condition."""
    return _first(table.with_columns(pl.col("feasible") & condition), request)


def _limit_flips(table: pl.DataFrame, request: PlanRequest, chosen: Row, name: str) -> list[dict[str, Any]]:
    """The smallest increase of a limit that changes the choice, and the value below which it changes."""
    if request.goal != "max_quality":
        return []
    need = (pl.col(USED[name]) * pl.col("upper_factor")).alias("_need")
    free = kept_without(table, request, {name}).with_columns(need)
    kept = free.filter(pl.col("feasible") & pl.col("_need").is_not_null())
    now = limit_values(request)[name] * (1 + SLACK)
    more, less = kept.filter(pl.col("_need") > now), kept.filter(pl.col("_need") <= now)
    if not request.quality_tolerance:  # only a better one changes the choice, and only without the choice a lesser one
        more = more.filter(pl.col("quality") > chosen["quality"])
        less = less.filter(pl.col("_need") <= chosen[USED[name]] * chosen["upper_factor"])
    found = []
    for value in more["_need"].unique().sort().head(TRIED):
        row = _keeping(free, pl.col("_need") <= value * (1 + SLACK), request)
        if row is not None and row["id"] != chosen["id"]:
            found.append(_flip(name, value, request, row, "of"))
            break
    for value in less["_need"].unique().sort(descending=True).head(TRIED):
        row = _keeping(free, pl.col("_need") < value * (1 - SLACK), request)
        if row is not None and row["id"] != chosen["id"]:
            found.append(_flip(name, value, request, row, "below"))
            break
    return found


def _flip(name: str, to: float, request: PlanRequest, row: Row, how: str) -> dict[str, Any]:
    shown = amount(to, request, name, up if how == "of" else down)
    text = f"a {NAMES[name]} {how} {shown} gives {row['id']}, quality {row['quality']:.2f}"
    return {"change": name, "to": to, "by": to - limit_values(request)[name], "id": row["id"], "text": text}


def _floor_flips(table: pl.DataFrame, request: PlanRequest, chosen: Row) -> list[dict[str, Any]]:
    """For the lowest energy: the next quality floor above the choice, and the floor that a cheaper one would meet."""
    if request.goal != "min_energy":
        return []
    floor, free = float(request.min_quality or 0.0), kept_without(table, request, {"min_quality"})
    known = free.filter(pl.col("feasible"))["quality"].unique().sort().to_list()
    found = []
    for how, condition, values in (
        ("a quality floor above", lambda q: pl.col("quality") > q + SLACK, [q for q in known if q >= floor - SLACK]),
        ("a quality floor of", lambda q: pl.col("quality") >= q - SLACK, [q for q in known if q < floor][::-1]),
    ):
        for to in values[:TRIED]:
            row = _keeping(free, condition(to), request)
            if row is not None and row["id"] != chosen["id"]:
                text = f"{how} {to:.4g} gives {row['id']}, {energy(row['per_student_kwh'])} per student"
                found.append({"change": "min_quality", "to": to, "by": to - floor, "id": row["id"], "text": text})
                break
    return found


def reuse_flips(
    scored: pl.DataFrame, request: PlanRequest, chosen: Row | None, rescore: Rescore
) -> list[dict[str, Any]]:
    """The numbers N above the present one from which on another candidate is chosen, at most three."""
    if request.teacher_outputs == "cached" or request.program_budget_kwh is not None:
        return []
    found: list[dict[str, Any]] = []
    last = chosen["id"] if chosen is not None else None
    for n in _critical_n(scored, request, chosen, rescore):
        row = _first(rescore(_at(request, n)), request)
        if row is None or row["id"] == last:
            continue
        earlier = _first(rescore(_at(request, n - 1)), request) if n - 1 > request.n else None
        if earlier is not None and earlier["id"] == row["id"]:  # a spread that grows with N moved it by one
            row, n = earlier, n - 1
        last = row["id"]
        text = f"from N = {n} on {row['id']}: {energy(row['per_student_kwh'])}, quality {row['quality']:.2f}"
        found.append({"change": "reuse_n", "to": n, "by": n - request.n, "id": row["id"], "text": text})
    return found[:MOST_N]


def _at(request: PlanRequest, n: int) -> PlanRequest:
    return replace(request, reuse_n=n, students=None)


def _critical_n(scored: pl.DataFrame, request: PlanRequest, chosen: Row | None, rescore: Rescore) -> list[int]:
    """Numbers above the present one at which a candidate begins to keep a limit, or to need no more than the chosen.

    Whatever a candidate uses is a + b/N; two values of N give both.
    """
    if not scored.filter((pl.col("teacher_kwh") > 0) & pl.col("quality").is_not_null()).height:
        return []
    now, twice = scored, rescore(_at(request, 2 * request.n))
    found = set[int]()
    for name, limit in limit_values(request).items():
        for a, b in _lines(now, twice, USED[name], request.n):
            found |= _reached(a, b, limit, 0.0)
    if chosen is not None:
        is_chosen = pl.col("id") == chosen["id"]
        for limit, limit_b in _lines(now.filter(is_chosen), twice.filter(is_chosen), ENERGY, request.n):
            for a, b in _lines(now, twice, ENERGY, request.n):
                found |= _reached(a, b, limit, limit_b)
    return sorted(n for n in found if n > request.n)[:TRIED_N]


def _lines(now: pl.DataFrame, twice: pl.DataFrame, column: str, n: int) -> Iterable[tuple[float, float]]:
    """(a, b) of each rated candidate's use a + b/N of the limited thing, with the safety that a confidence asks for."""
    first, second = (
        table.select("id", "quality", (pl.col(column) * pl.col("upper_factor")).alias("use")) for table in (now, twice)
    )
    both = first.join(second.select("id", pl.col("use").alias("half")), on="id").drop_nulls()
    for use, half in both.select("use", "half").iter_rows():
        yield 2 * half - use, 2 * n * (use - half)


def _reached(a: float, b: float, limit: float, limit_b: float) -> set[int]:
    """The smallest whole N with a + b/N <= limit + limit_b/N; where that is a tie the next one too."""
    room, need = limit - a, b - limit_b
    if not need > 0 or not room > 1e-12 * max(1.0, abs(limit)) or not need / room < LARGEST:
        return set()
    exact = round(need / room, 9)
    first = max(1, math.ceil(exact))
    return {first, first + 1} if first == exact else {first}
