"""A comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdwatch.ledger.units import format_energy
from kdwatch.rundir.text import clean

COLUMN = 24


def compare_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Runs, then stages side by side; the second line of a cell is the ratio to the first run."""
    runs = found["runs"]
    for number, run in enumerate(runs, 1):
        quality = "" if run["quality"] is None else f", Q {run['quality']:.3f}"
        about = f"{clean(run['name'] or '', 40)}, {clean(run['status'], 20)}{quality}"
        yield f"[{number}] {clean(run['run_id'], 60)}  {about}"
    yield f"compared: {', '.join(found['components']) or 'nothing'}"
    yield ""
    head = "".join(f"{f'[{number}]':>{COLUMN}}" for number in range(1, len(runs) + 1))
    yield f"{'STAGE':<20}{head}"
    for stage in found["stages"]:
        names = {name for name in stage["names"] if name is not None}
        label = stage["name"] if len(names) == 1 else stage["kind"]
        yield f"{clean(label, 20):<20}{_cells(stage)}"
        if any(value is not None for value in stage["j_per_token"]):
            per_token = (f"{'n/a' if v is None else f'{v:.4g} J/token':>{COLUMN}}" for v in stage["j_per_token"])
            yield f"{'':<20}{''.join(per_token)}"
    yield f"{'total':<20}{_cells(found['total'])}"
    if found["warnings"]:
        yield ""
    for warning in found["warnings"]:
        yield f"{clean(warning['code'], 24)}: {clean(warning['text'], 300)}"


def _cells(row: Mapping[str, Any]) -> str:
    cells = []
    for number, energy in enumerate(row["energy_j"]):
        text = format_energy(energy)
        ratio = row["ratio"][number]
        if number and ratio is not None:
            mark = "" if row["beyond_bounds"][number] in (True, None) else " ~"
            text += f" x{ratio:.3g}{mark}"
        cells.append(f"{text:>{COLUMN}}")
    return "".join(cells)
