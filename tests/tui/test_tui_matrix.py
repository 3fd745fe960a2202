"""All factors of the Run screen against each other: GPUs, sensors, estimates, sizes, glyphs, live or replay.

By default a pairwise selection: each pair of values of two factors meets at least once. The full matrix is slow.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from tui_pilot import part, rows_of, running
from tui_runs import Shape, make_run

from kdwatch.settings import load

FACTORS: dict[str, list[Any]] = {
    "gpus": [0, 1, 8, 16],
    "cpu": [True, False],
    "dram": [True, False],
    "estimated": [False, True],
    "power_missing": [False, True],
    "until": [None, 100.0],
    "size": [(40, 10), (80, 24), (120, 40), (200, 60)],
    "glyphs": ["braille", "block", "ascii"],
    "replay": [False, True],
}


def pairwise_selection(factors: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """A small set of rows in which each pair of values of two factors occurs; greedy, always the same."""
    names = list(factors)
    left = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in range(len(factors[a]))
        for y in range(len(factors[b]))
    }
    rows = []
    while left:
        row: dict[str, int] = dict(min(left))
        for name in names:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])),
                    key=lambda v, n=name: sum(_pair(names, (n, v), item) in left for item in row.items()),
                )
        left -= {_pair(names, p, q) for p, q in itertools.combinations(row.items(), 2)}
        rows.append({n: factors[n][row[n]] for n in names})
    return rows


def _pair(names: list[str], p: tuple[str, int], q: tuple[str, int]) -> Any:
    return (p, q) if names.index(p[0]) < names.index(q[0]) else (q, p)


PAIRWISE = pairwise_selection(FACTORS)


def test_the_selection_holds_every_pair() -> None:
    """The selection itself, by counting."""
    for a, b in itertools.combinations(FACTORS, 2):
        met = {(repr(row[a]), repr(row[b])) for row in PAIRWISE}
        assert len(met) == len(FACTORS[a]) * len(FACTORS[b])
    assert len(PAIRWISE) < 40


async def check(directory: Path, row: dict[str, Any]) -> None:
    """Open, press the keys that change the picture, look at every row."""
    options = dict(row)
    size, glyphs, replay = options.pop("size"), options.pop("glyphs"), options.pop("replay")
    run = make_run(directory / "run", Shape(hz=0.5, gap=None, **options))
    async with running(run, size, settings=load({"glyphs": glyphs}), replay=replay) as (app, pilot):
        for key in ("d", "z", "u", "down", "space"):
            await pilot.press(key)
        rows = rows_of(app)
        assert len(rows) == size[1] and all(cell_len(text) == size[0] for text in rows)
        text = "\n".join(rows)
        if glyphs == "ascii":
            assert not any("\u2500" <= c <= "\u28ff" for c in text)
        if not (row["gpus"] or row["cpu"] or row["dram"]):
            assert "n/a" in part(app, "energy")
        assert app._exception is None


@pytest.mark.parametrize("row", PAIRWISE, ids=lambda r: "-".join(str(v).replace(" ", "") for v in r.values()))
async def test_pairs_of_factors(tmp_path: Path, row: dict[str, Any], quick_keys) -> None:
    """0, 1, 8 and 16 GPUs, each sensor missing, all sizes and glyphs, pairwise."""
    await check(tmp_path, row)


@pytest.mark.slow  # 4*2*2*2*2*2*4*3*2 = 3072 screens, about half an hour
@pytest.mark.parametrize("gpus", FACTORS["gpus"])
async def test_the_full_matrix(tmp_path: Path, gpus: int, quick_keys) -> None:
    """Every combination."""
    others = {k: v for k, v in FACTORS.items() if k != "gpus"}
    for n, values in enumerate(itertools.product(*others.values())):
        await check(tmp_path / str(n), {"gpus": gpus, **dict(zip(others, values, strict=True))})
