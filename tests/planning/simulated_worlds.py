"""Worlds with a known truth: do the planner's 90 % intervals hold what they promise? By family of worlds.

    python tests/planning/simulated_worlds.py --worlds 500

A world has a plain SFT and a KD method whose students cost a + b·P, a teacher, preprocessing and evaluation; its runs
are drawn with noise, the planner sees only those, and its intervals are held against the truth: the
energy of one further run, N* of the true means, and the quality of one further run. Two families break the model.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from planners import PlanRequest
from planners.observations import Observations
from planners.pairing import break_even
from planners.predicted import predicted_of
from planners.recommend import scored
from planners.schema import make_table

LEVEL = 0.9


@dataclass(frozen=True)
class Family:
    """How the worlds of a family are made."""

    name: str
    sizes: tuple[float, ...]
    repeats: int
    cv: float
    target: float
    holds: bool = True
    """Whether the cost model's assumptions hold."""
    curve: float = 0.0
    """Exponent of a power law that replaces the affine student energy; 0: affine."""
    growth: float = 0.0
    """Noise grows with size to this power."""
    lognormal: bool = False
    quality_sd: float = 0.02


FAMILIES = (
    Family("affine, 4 sizes x 3 runs, 3 % noise", (1, 3, 7, 13), 3, 0.03, 5),
    Family("affine, 3 sizes x 3 runs, 6 % noise", (1, 7, 13), 3, 0.06, 4),
    Family("affine, 4 sizes x 2 runs, 1 % noise", (1, 3, 7, 13), 2, 0.01, 10),
    Family("affine, log-normal noise 5 %", (1, 3, 7, 13), 3, 0.05, 5, lognormal=True),
    Family("measured size, 4 sizes x 3 runs, 3 % noise", (1, 3, 7, 13), 3, 0.03, 13),
    Family("broken: power law in size", (0.5, 3, 13), 3, 0.02, 6, holds=False, curve=0.4),
    Family("broken: noise grows with size", (1, 3, 7, 13), 4, 0.01, 9, holds=False, growth=1.0),
)


@dataclass(frozen=True)
class World:
    """The truth."""

    family: Family
    overhead: float
    slope: float
    saved: tuple[float, float]
    teacher: float
    preprocess: float
    quality: tuple[float, float]

    def student(self, size: float, distilled: bool) -> float:
        """True mean energy of a student, kWh."""
        a, b = self.saved if distilled else (1.0, 1.0)
        if self.family.curve:
            return (self.overhead + self.slope) * size**self.family.curve * b
        return self.overhead * a + self.slope * size * b

    def evaluation(self, size: float) -> float:
        """True mean energy of an evaluation, kWh."""
        return 0.25 + 0.06 * size

    def true_quality(self, size: float, distilled: bool) -> float:
        """True mean Q."""
        return self.quality[0] + self.quality[1] * math.log(size) - 0.03 * distilled


def draw_world(family: Family, source: random.Random) -> World:
    """A random truth of a family."""
    return World(
        family,
        overhead=source.uniform(2, 5),
        slope=source.uniform(1.5, 3),
        saved=(source.uniform(0.7, 0.85), source.uniform(0.7, 0.85)),
        teacher=source.uniform(6, 14),
        preprocess=source.uniform(0.2, 0.6),
        quality=(source.uniform(0.6, 0.7), source.uniform(0.05, 0.1)),
    )


def draw_run(world: World, regime: str, size: float, source: random.Random) -> dict[str, Any]:
    """One run as the planner would see it."""
    cv = world.family.cv * (size**world.family.growth)
    distilled = regime == "kd"

    def noisy(mean: float) -> float:
        return mean * (math.exp(source.gauss(-cv * cv / 2, cv)) if world.family.lognormal else source.gauss(1, cv))

    stages = {
        "preprocess_kwh": noisy(world.preprocess),
        "teacher_kwh": noisy(world.teacher) if distilled else 0.0,
        "student_kwh": noisy(world.student(size, distilled)),
        "eval_kwh": noisy(world.evaluation(size)),
    }
    quality = source.gauss(world.true_quality(size, distilled), world.family.quality_sd)
    return stages | {
        "id": f"{regime}-{size:g}",
        "regime": regime,
        "student_params_b": float(size),
        "total_kwh": sum(stages.values()),
        "quality": quality,
        "basis": "measured",
        "hardware": "simulated",
        "scope": "gpu",
        "source": "simulated",
    }


@dataclass(frozen=True)
class Verdict:
    """Whether each interval held; None where the planner declined to answer."""

    energy: bool | None
    n_star: bool | None
    quality: bool | None
    energy_width: float | None


def judge(world: World, source: random.Random) -> Verdict:
    """Draw the runs, ask the planner, draw the truth."""
    family = world.family
    measured_target = family.target in family.sizes
    runs = [
        draw_run(world, regime, size, source)
        for regime in ("sft", "kd")
        for size in family.sizes
        for _ in range(family.repeats)
    ]
    sizes = () if measured_target else (float(family.target),)
    request = PlanRequest(predict=bool(sizes), sizes=sizes, interval_level=LEVEL)
    rows = list(scored(request, Observations(make_table(runs))).iter_rows(named=True))
    row = next((r for r in rows if r["regime"] == "kd" and r["student_params_b"] == family.target), None)
    if row is None:
        return Verdict(None, None, None, None)
    shown = predicted_of(replace_unknown_quality(row), request)
    run = draw_run(world, "kd", family.target, source)
    energy = shown.total_kwh_low <= run["total_kwh"] <= shown.total_kwh_high
    quality = None if row["quality"] is None else shown.quality_low <= run["quality"] <= shown.quality_high
    width = (shown.total_kwh_high - shown.total_kwh_low) / shown.total_kwh
    return Verdict(energy, _n_star_held(world, rows, row, request), quality, width)


def replace_unknown_quality(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose unknown quality does not stop its energy from being shown."""
    return row if row["quality"] is not None else row | {"quality": 0.0, "quality_sd": 0.0}


def _n_star_held(world: World, rows: list[dict[str, Any]], row: dict[str, Any], request: PlanRequest) -> bool | None:
    entry = next(e for e in break_even(rows, request) if e.id == row["id"])
    if entry.n_verdict is None:
        return None
    size = row["student_params_b"]
    truth = world.teacher / (world.student(size, False) - world.student(size, True))
    low, high = entry.n_star_low or 0.0, entry.n_star_high if entry.n_star_high is not None else math.inf
    return low <= truth <= high


@dataclass(frozen=True)
class Coverage:
    """Shares of worlds in which the intervals held, of those answered; share declined; mean relative width."""

    energy: float
    n_star: float
    quality: float
    declined: float
    width: float


def coverage(family: Family, worlds: int, seed: int = 20260) -> Coverage:
    """Coverage of one family over `worlds` simulated worlds."""
    source = random.Random(f"{seed} {family.name}")
    verdicts = [judge(draw_world(family, source), source) for _ in range(worlds)]

    def share(pick: Callable[[Verdict], bool | None]) -> float:
        known = [value for v in verdicts if (value := pick(v)) is not None]
        return sum(known) / len(known) if known else math.nan

    widths = [v.energy_width for v in verdicts if v.energy_width is not None]
    return Coverage(
        share(lambda v: v.energy),
        share(lambda v: v.n_star),
        share(lambda v: v.quality),
        sum(v.energy is None for v in verdicts) / worlds,
        sum(widths) / len(widths) if widths else math.nan,
    )


def straight_twin(family: Family) -> Family:
    """The same family with the model's assumptions restored."""
    return replace(family, curve=0.0, growth=0.0, holds=True)


def main() -> None:
    """Print the table of docs/planning.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=500)
    worlds = parser.parse_args().worlds
    print(f"{'family':<44}{'energy':>9}{'N*':>9}{'Q':>9}{'declined':>9}{'width':>9}")
    rows = []
    for family in FAMILIES:
        rows.append((family.name, family))
        if not family.holds:
            rows.append(("  its worlds with the model's assumptions", straight_twin(family)))
    for name, family in rows:
        c = coverage(family, worlds)
        shares = [
            f"{'-' if math.isnan(v) else f'{v:.1%}':>8}" for v in (c.energy, c.n_star, c.quality, c.declined, c.width)
        ]
        print(f"{name:<44}{''.join(shares)}")


if __name__ == "__main__":
    main()
