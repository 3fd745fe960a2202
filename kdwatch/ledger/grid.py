"""Carbon intensity of the grid by country, from a table that comes with the package. No network, no guess."""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean


@dataclass(frozen=True, slots=True)
class GridFactor:
    """Grams of CO2 equivalent per kilowatt-hour, and where the number comes from."""

    region: str
    """ISO 3166 alpha-3 code, or `custom` for a number that the user gave."""
    name: str
    g_per_kwh: float
    year: int | None
    source: str
    scope: str
    licence: str


@cache
def table() -> dict[str, GridFactor]:
    """All rows by code."""
    with (resources.files("kdwatch.ledger") / "data" / "grid_factors.csv").open(encoding="utf-8") as f:
        rows = [
            GridFactor(
                r["iso3"], r["name"], float(r["g_per_kwh"]), int(r["year"]), r["source"], r["scope"], r["licence"]
            )
            for r in csv.DictReader(f)
        ]
    return {row.region: row for row in rows}


def intensity(region: str | None, g_per_kwh: float | None = None) -> GridFactor | None:
    """The factor of a region (alpha-3 code or English name, in any case), or the user's own number, which wins.

    None without either: there is no CO2 number then. Raises UsageProblem for an unknown region, with near
    matches, and for a number that is negative or not finite.
    """
    if g_per_kwh is not None:
        if isinstance(g_per_kwh, bool) or not 0.0 <= float(g_per_kwh) < 1e5:
            raise UsageProblem(f"intensity {clean(g_per_kwh, 30)}: give grams of CO2e per kWh, 0 or more")
        return GridFactor("custom", "given by the user", float(g_per_kwh), None, "given by the user", "as given", "")
    if region is None:
        return None
    wanted = str(region).strip()
    found = table().get(wanted.upper()) or _by_name().get(wanted.casefold())
    if found is None:
        raise UsageProblem(_unknown(wanted))
    return found


def _by_name() -> dict[str, GridFactor]:
    return {row.name.casefold(): row for row in table().values()}


def _unknown(wanted: str) -> str:
    shown = clean(wanted, 40)
    near = near_matches(wanted)
    hint = f"did you mean {', '.join(near)}?" if near else "no name is near."
    return f"unknown region '{shown}': {hint} Use a three-letter country code such as FRA, or --intensity in g/kWh"


def near_matches(wanted: str, count: int = 3) -> list[str]:
    """Up to `count` regions that look like what was meant: `FRA (France)`."""
    rows, text = table(), wanted.strip().casefold()
    if not text:
        return []
    scored = []
    for row in rows.values():
        code, name = row.region.casefold(), row.name.casefold()
        score = max(
            difflib.SequenceMatcher(None, text, code).ratio(), difflib.SequenceMatcher(None, text, name).ratio()
        )
        if name.startswith(text) or code.startswith(text):
            score = max(score, 0.95)
        scored.append((score, row))
    best = sorted((s for s in scored if s[0] >= 0.6), key=lambda s: (-s[0], s[1].region))[:count]
    return [f"{row.region} ({row.name})" for _, row in best]
