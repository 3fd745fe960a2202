"""Energy to kg CO2e and money: which grid, which PUE, counted once.

facility kWh = IT kWh x PUE (1 where the table is metered at the facility)
kg CO2e = facility kWh x g/kWh / 1000
cost = facility kWh x price + GPU-hours x rate
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from kdwatch.rundir.errors import UsageProblem
from planners.notes import Note
from planners.request import PlanRequest

UNCERTAINTY = 0.10
"""Relative spread between public tables of grid intensity for large grids; more for small ones."""
OLD_YEARS = 2
"""Age of a grid factor, in years, above which it is said."""


@dataclass(frozen=True)
class Grid:
    """Carbon intensity that a stage's energy is counted with, and its PUE as applied."""

    g_per_kwh: float | None
    pue: float
    region: str | None = None
    year: int | None = None
    source: str | None = None

    @property
    def kg_per_kwh(self) -> float | None:
        """kg CO2e per kWh of the table."""
        return None if self.g_per_kwh is None else self.g_per_kwh * self.pue / 1000.0

    def allowed_kwh(self, co2e_kg: float) -> float | None:
        """kWh of the table that emit `co2e_kg`."""
        return co2e_kg / self.kg_per_kwh if self.kg_per_kwh else None

    def as_dict(self) -> dict[str, object]:
        return {
            "region": self.region,
            "g_per_kwh": self.g_per_kwh,
            "year": self.year,
            "source": self.source,
            "pue_applied": self.pue,
        }


@dataclass(frozen=True)
class Grids:
    """The grid of the teacher's stage and of all the others."""

    main: Grid
    teacher: Grid
    notes: tuple[Note, ...] = ()


def grids(request: PlanRequest) -> Grids:
    """Resolve regions and intensities. Raises UsageProblem for an unknown region, with near matches."""
    notes = []
    facility = request.energy_scope == "facility"
    if facility and (request.pue or request.teacher_pue):
        notes.append(Note("pue_in_energy", "treats the table as facility kWh: PUE is in it and is not applied again"))
    pue = 1.0 if facility else float(request.pue or 1.0)
    teacher_pue = 1.0 if facility else float(request.teacher_pue or pue)
    main = _grid(request.region, request.intensity, pue)
    if request.teacher_region is None and request.teacher_intensity is None:
        teacher = Grid(main.g_per_kwh, teacher_pue, main.region, main.year, main.source)
    else:
        teacher = _grid(request.teacher_region, request.teacher_intensity, teacher_pue)
    if main.g_per_kwh is None and teacher.g_per_kwh is not None:
        raise UsageProblem("teacher-region: needs region or intensity for the other stages too")
    return Grids(main, teacher, (*notes, *_age_notes(main, teacher)))


def _age_notes(*found: Grid) -> list[Note]:
    """A note for each grid table year that is more than two years old."""
    this_year = datetime.now(UTC).year
    old = sorted({(grid.region, grid.year) for grid in found if grid.year and this_year - grid.year > OLD_YEARS})
    return [
        Note("grid_factor_old", f"the grid intensity of {region} is of {year}: it may have changed since")
        for region, year in old
    ]


def _grid(region: str | None, intensity: float | None, pue: float) -> Grid:
    if intensity is not None:
        return Grid(float(intensity), pue, None, None, "given")
    if region is None:
        return Grid(None, pue)
    from kdwatch.ledger.grid import intensity as look_up

    factor = look_up(region)
    assert factor is not None  # a region was given
    return Grid(factor.g_per_kwh, pue, factor.region, factor.year, factor.source)


def emissions_kg(parts: Iterable[tuple[float, float]], pue: float = 1.0) -> float:
    """Sum over (kWh, g/kWh) parts, times PUE, in kg CO2e: intensity may differ by stage or by hour."""
    return sum(kwh * g for kwh, g in parts) * pue / 1000.0


def gpu_hours(kwh: float, mean_gpu_w: float) -> float:
    """GPU-hours of an energy that is the GPUs' own: kWh / kW of one GPU."""
    return kwh / (mean_gpu_w / 1000.0)


def allowed_kwh_of_gpu_hours(hours: float, mean_gpu_w: float) -> float:
    """kWh that `hours` GPU-hours at `mean_gpu_w` watts come to."""
    return hours * mean_gpu_w / 1000.0
