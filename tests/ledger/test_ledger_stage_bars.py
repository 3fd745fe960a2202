"""Bars of stages: one scale, nothing for what is unknown, never nothing for what is known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kdwatch.ledger.report_text import report_lines
from kdwatch.ledger.stage_bars import stage_bars

ENERGIES = st.lists(st.none() | st.just(0.0) | st.floats(1e-6, 1e12), max_size=20)


def test_bars_by_hand() -> None:
    """400 J fill 40 cells, 200 J half of them; unknown is no bar, and a trace of energy one cell."""
    assert [len(b) for b in stage_bars([400.0, None, 200.0, 0.0, 1e-3], 40, "#")] == [40, 0, 20, 0, 1]
    assert stage_bars([None, 0.0], 40) == ["", ""] and stage_bars([], 40) == []


@settings(max_examples=40, deadline=None)
@given(ENERGIES, st.integers(1, 70))
def test_bars_are_proportional(energies: list[float | None], width: int) -> None:
    """Within a cell; the largest fills the width, and only energies above 0 leave ink."""
    bars = stage_bars(energies, width)
    top = max((e for e in energies if e), default=None)
    assert len(bars) == len(energies) and max(map(len, bars), default=0) == (width if top else 0)
    for bar, energy in zip(bars, energies, strict=True):
        assert bool(bar) is bool(energy)
        if energy and top:
            assert abs(len(bar) - energy / top * width) <= 1.0


def test_the_report_draws_stages_that_used_energy() -> None:
    """30 J and 10 J of three stages: bars of 48 and 16 cells, none for the unknown one; one stage alone has none."""

    def stage(name: str, joules: float | None) -> dict[str, object]:
        energy = {"total": joules, "estimated": 0.0, "missing": []}
        return {
            "name": name, "status": "completed", "duration_s": 1.0, "mean_w": None, "tokens_per_s": None,
            "j_per_token": None, "energy_j": energy, "exit_code": 0, "bound_j": None, "net_energy_j": None,
            "phases_s": {},
        }  # fmt: skip

    def text(*stages: dict[str, object]) -> list[str]:
        report = {
            "run_id": "r", "status": "completed", "duration_s": 3.0, "stages": list(stages), "devices": [],
            "total_j": 40.0, "unattributed_j": 0.0, "sources": {}, "budget_j": None, "pue": None, "quality": None,
            "grid_g_per_kwh": None, "teacher_reuse": None, "warnings": [],
        }  # fmt: skip
        return [line for line in report_lines(report) if "▇" in line]

    drawn = text(stage("a", 30.0), stage("b", 10.0), stage("c", None))
    assert [line.count("▇") for line in drawn] == [48, 16] and max(map(len, drawn)) <= 80
    assert text(stage("a", 30.0)) == []
