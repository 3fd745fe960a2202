"""Probes on simulated boards: at most 5 % of the full run's energy, each stage within 15 %, intervals that cover."""

from __future__ import annotations

import random

import pytest
from simulated_boards import draw_board

from planners.costmodel import Declined, Prediction
from planners.probes import (
    Probe,
    predict_evaluation,
    predict_forward,
    predict_generation,
    predict_student,
    rate_of,
)

STUDENT_B, TEACHER_B = 1.5, 8.0
TOKENS, SAMPLES, BATCH, LENGTH = 30e6, 7000.0, 16.0, 512.0


def one_board(seed: int) -> tuple[list[Probe], dict[str, tuple[Prediction, float]]]:
    """Probe a random board, predict a full run of settings that were not probed, and run it."""
    source = random.Random(f"board {seed}")
    board = draw_board(source)
    probes = [board.run("student", size, 8, 0, 1e9, source, stop=True) for size in (1.0, 3.0)]
    probes += [board.run("forward", TEACHER_B, batch, 0, 1e9, source, stop=True) for batch in (4, 16)]
    probes += [
        board.run("generate", TEACHER_B, batch, length, 1e9, source, stop=True)
        for batch in (4, 32)
        for length in (128, 1024)
    ]
    full = {
        "student": board.run("student", STUDENT_B, 8, 0, TOKENS, source, stop=False),
        "forward": board.run("forward", TEACHER_B, 8, 0, TOKENS, source, stop=False),
        "generate": board.run("generate", TEACHER_B, BATCH, LENGTH, SAMPLES * LENGTH, source, stop=False),
    }
    predicted = {
        "student": predict_student(probes, STUDENT_B, TOKENS),
        "forward": predict_forward(probes, TOKENS, 8),
        "generate": predict_generation(probes, SAMPLES, BATCH, LENGTH, TEACHER_B),
    }
    return probes, {name: (predicted[name], full[name].total_j) for name in full}


@pytest.mark.parametrize("seed", range(12))
def test_each_stage_within_15_percent_for_5_percent_of_the_energy(seed: int) -> None:
    probes, stages = one_board(seed)
    assert sum(p.total_j for p in probes) <= 0.05 * sum(truth for _, truth in stages.values())
    for name, (predicted, truth) in stages.items():
        assert predicted.mean == pytest.approx(truth, rel=0.15), name


def test_the_intervals_cover_the_full_runs() -> None:
    covered, total, widths = 0, 0, []
    for seed in range(40):
        for predicted, truth in one_board(1000 + seed)[1].values():
            low, high = predicted.interval(0.9)
            covered, total = covered + (low <= truth <= high), total + 1
            widths.append((high - low) / predicted.mean)
    assert covered / total >= 0.86
    assert sum(widths) / len(widths) < 0.4, "intervals that say something"


def test_power_alone_would_be_wrong() -> None:
    """Mean watts of the cheapest probe times the full run's seconds: what a model of TDP and clock amounts to."""
    source = random.Random("phases")
    board = draw_board(source)
    _, decode_w = board.speed_and_power("generate", TEACHER_B, 4, 128)
    _, train_w = board.speed_and_power("student", STUDENT_B, 8, 0)
    assert train_w > 1.3 * decode_w


def test_warm_up_in_the_first_interval_is_not_multiplied() -> None:
    points = [(0.0, 0.0), (10.0, 500.0), *[(10.0 * n, 500.0 + 20.0 * (n - 1)) for n in range(2, 12)]]
    found = rate_of(points)
    assert found is not None and found.j_per_token == pytest.approx(2.0)
    assert rate_of(points[:1]) is None


def test_nothing_probed_is_declined() -> None:
    silent = Probe("student", ((0.0, 0.0),), 10.0, 10.0, 1.0)
    with pytest.raises(Declined, match="no student probe"):
        predict_student([silent], 1.0, 1e6)
    with pytest.raises(Declined, match="no generate probe"):
        predict_generation([silent], 10, 4, 128)


def test_an_evaluation_carried_farther_is_trusted_less() -> None:
    probe = Probe("evaluate", tuple((250.0 * n, 50.0 * n) for n in range(5)), 50.0, 250.0)
    near, far = (predict_evaluation([probe], prompts) for prompts in (2000.0, 40_000.0))
    assert near.mean == pytest.approx(50 + 2000 * 0.2) and far.mean == pytest.approx(50 + 40_000 * 0.2)
    assert far.run_sd / far.mean > 1.5 * near.run_sd / near.mean
    with pytest.raises(Declined, match="not probed"):
        predict_evaluation([], 2000.0)


def test_what_is_written_behind_the_last_count_grows_with_the_tokens() -> None:
    points = tuple((1000.0 * n, 200.0 * n) for n in range(8))
    whole, stopped = Probe("forward", points, 50.0, 0.0, tail_j=70.0), Probe("forward", points, 50.0, 0.0)
    assert predict_forward([stopped], 70_000.0).mean == pytest.approx(50 + 14_000)
    assert predict_forward([whole, stopped], 70_000.0).mean == pytest.approx(50 + 14_000 + 700)


def test_a_probe_is_never_called_measured() -> None:
    points = tuple((1000.0 * n, 200.0 * n) for n in range(8))
    assert predict_student([Probe("student", points, 50.0, 0.0, 1.0)], 1.0, 1e5).basis == "interpolated"
