"""The moment of a power step between two ticks, from the energy between them. Right values by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.ledger.counter import CounterTrack
from kdwatch.ledger.power import PowerTrack
from kdwatch.ledger.transition import at_step

TICK_S = 0.02


def tracks(low: float, high: float, step_t: float) -> tuple[CounterTrack, PowerTrack]:
    """A burst of readings each millisecond over 0.1 s: a counter that ticks every 20 ms, power sampled every 20 ms at
    another phase, one step of power at `step_t`."""
    power = PowerTrack()
    counter = CounterTrack(lambda: power, lambda code, t: None, limit_w=2000.0)

    def energy(t: float) -> float:
        return low * min(t, step_t) + high * max(0.0, t - step_t)

    for i in range(101):
        t = i * 0.001
        sampled = ((t + 1e-9 + 0.007) // TICK_S) * TICK_S - 0.007
        power.add(t, low if sampled < step_t else high)
        counter.add(t, 1000.0 + energy(((t + 1e-9) // TICK_S) * TICK_S))
    return counter, power


@given(
    low=st.floats(50, 300),
    rise=st.floats(100, 600),
    step_t=st.floats(0.041, 0.059),
    at=st.floats(0.0, 1.0),
    down=st.booleans(),
)
def test_one_step_is_placed_by_energy(low: float, rise: float, step_t: float, at: float, down: bool) -> None:
    """Law: within the span the energy is right to what the readings are timed (1 ms at the higher power); samples
    alone would be off by up to 20 ms of the step."""
    first, second = (low + rise, low) if down else (low, low + rise)
    counter, power = tracks(first, second, step_t)
    t = 0.043 + 0.014 * at
    found = at_step(counter, power, t)
    if found is None:  # the sample that shows the step was read beyond what may belong to this span
        return
    true = first * min(t, step_t) + second * max(0.0, t - step_t)
    assert found[0] == pytest.approx(true, abs=0.0015 * (low + rise) + 0.05)
    assert found[1] > 0


def test_a_step_in_the_middle_is_found() -> None:
    counter, power = tracks(100.0, 700.0, 0.05)
    found = at_step(counter, power, 0.05)
    assert found is not None and found[0] == pytest.approx(5.0, abs=0.8)


@pytest.mark.parametrize("watts", [(300.0, 300.0), (300.0, 310.0)])
def test_without_a_step_nothing_is_said(watts: tuple[float, float]) -> None:
    counter, power = tracks(*watts, 0.05)
    assert at_step(counter, power, 0.05) is None


def test_energy_that_no_single_step_explains_is_left_to_the_general_rule() -> None:
    """The samples show 100 W, then 700 W, but the counter says more than 700 W all the time."""
    counter, power = tracks(100.0, 700.0, 0.05)
    counter.ticks = [t._replace(joules=t.joules + (20.0 if t.t > 0.05 else 0.0)) for t in counter.ticks]
    assert at_step(counter, power, 0.05) is None


def test_a_running_mean_shows_no_step() -> None:
    """A field that averages over a second rises for a second when power steps: its changes time nothing."""
    counter, power = tracks(100.0, 700.0, 0.05)
    power.shift_s = 0.55
    assert at_step(counter, power, 0.05) is None


def test_time_between_samples_is_looked_up_where_they_speak_of() -> None:
    """Samples of a field that speaks of 0.5 s before: read 1 s apart up to 10 s, then 10 ms apart. 9.6 to 9.8 s of
    run time lie among the dense ones, 8.0 to 8.2 s do not."""
    power = PowerTrack(shift_s=0.5)
    for t in [*map(float, range(11)), *(10.0 + k / 100 for k in range(1, 101))]:
        power.add(t, 100.0)
    assert power.unseen(9.6, 9.8) == 0.0
    assert power.unseen(8.0, 8.2) == pytest.approx(0.2)
