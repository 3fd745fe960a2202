"""Readings taken a thousand at once give what they give one by one, to the last digit."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kdwatch.ledger import stretch
from kdwatch.ledger.core import Ledger

MANIFEST: dict[str, Any] = {
    "imported": {"files": []},
    "clock": {},
    "stages": [{"name": "a", "kind": "teacher"}, {"name": "b", "kind": "student"}],
    "devices": [
        {"key": "d0", "kind": "gpu", "source": "imported", "refresh_s": 1e-4, "average_window_s": 0.0},
        {"key": "d1", "kind": "gpu", "source": "imported", "refresh_s": 1e-4, "average_window_s": 0.0},
    ],
}


def readings(seed: int, step: float, oddities: float) -> tuple[list[float], list[float | None], list[float | None]]:
    """Times, joules by the trapezoid and watts of 2000 readings; `oddities` is the share that is not regular."""
    dice = random.Random(seed)
    times, joules, watts = [0.0], [0.0], [300.0]
    for _ in range(2000):
        dt = step * dice.uniform(0.95, 1.05)
        level = dice.choice([0.0, 300.25, 512.5, dice.uniform(1, 700)])
        if dice.random() < oddities:
            dt = dice.choice([30.0 * step, 3.0, 0.01])
        times.append(round(times[-1] + dt, 6))
        joules.append(joules[-1] + dt * (watts[-1] + level) / 2)
        watts.append(round(level, 3))
    found: list[float | None] = [round(value, 3) for value in joules]
    powers: list[float | None] = list(watts)
    for at in range(len(times)):
        if dice.random() < oddities:
            (found if dice.random() < 0.5 else powers)[at] = None
        elif dice.random() < oddities:
            powers[at] = dice.choice([1e6, -5.0])
        elif dice.random() < oddities:
            found[at] = 0.0
    return times, found, powers


def answers(ledger: Ledger) -> Any:
    """All accounts, and the totals at several moments."""
    end = ledger.last_t
    accounts = [track.accounts_at(end) for track in ledger.devices.values()]
    return accounts, [ledger.totals(now) for now in (end, end + 1.0)]


@pytest.mark.parametrize("oddities", [0.0, 0.0005, 0.01])
@pytest.mark.parametrize("step", [0.007, 0.1, 0.5, 5.0])
def test_a_thousand_at_once_is_one_by_one(monkeypatch, step: float, oddities: float) -> None:
    taken = 0

    def counted(*args: Any) -> int:
        nonlocal taken
        found = stretch.take_stretch(*args)
        taken += found
        return found

    monkeypatch.setattr("kdwatch.ledger.core.take_stretch", counted)
    columns = {"d0": readings(1, step, oddities), "d1": readings(2, step, oddities)}
    end = min(times[-1] for times, *_ in columns.values())
    edges = [
        (0.0, {"type": "stage_started", "stage": "a"}), (0.4 * end, {"type": "stage_ended", "stage": "a"}),
        (0.4 * end + 0.3, {"type": "stage_started", "stage": "b"}), (0.97 * end, {"type": "stage_ended", "stage": "b"}),
        (end + 1e3, {}),
    ]  # fmt: skip
    many, one = Ledger(MANIFEST), Ledger(MANIFEST)
    at = dict.fromkeys(columns, 0)
    for number, (t, event) in enumerate(edges):
        for key, (times, joules, watts) in columns.items():
            part = slice(at[key], sum(1 for value in times if value < t))
            many.samples(key, times[part], joules[part], watts[part])
            for reading in zip(times[part], joules[part], watts[part], strict=True):
                one.sample(reading[0], key, reading[1], reading[2], None)
            at[key] = part.stop
        assert answers(many) == answers(one)
        for ledger in (many, one):
            if event:
                ledger.event({"t": t, "status": "completed", **event})
        many = Ledger.from_state(MANIFEST, json.loads(json.dumps(many.state()))) if number == 2 else many
    assert answers(many) == answers(one)
    assert taken > (2000 if step in (0.1, 0.5) and oddities == 0.0 else -1)
