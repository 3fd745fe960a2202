"""The cost model on the study's numbers, on exact worlds, and where it must decline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.costmodel import Declined, Observed, fit_stage, one_size, power_law, straight_line
from planners.flops import prior_range_kwh, training_prior_kwh
from planners.linear import Degenerate, fit, satterthwaite, solve
from planners.predict import predict_candidate
from planners.qualitymodel import predict_quality
from planners.serving import decode_j_per_token
from planners.teachermodel import Forward, Generated, fit_generation, forward_energy_kwh
from planners.whatif import batch_factor, length_factor

SFT = [Observed(1, 6.30), Observed(13, 33.15)]


def test_the_study_s_seven_billion_row_lies_inside_a_band_of_at_least_ten_percent() -> None:
    found = fit_stage(SFT).predict(7)
    assert found.mean == pytest.approx(19.725)
    low, high = found.interval(0.9)
    assert low <= 0.9 * found.mean and high >= 1.1 * found.mean
    # implied by 19.50 - 0.37 - 0.705
    assert low <= 18.43 <= high
    assert found.basis == "interpolated"


def test_a_power_law_is_three_times_as_far_off() -> None:
    points = [(o.params_b, o.energy_kwh) for o in SFT]
    line, power = straight_line(points, 7), power_law(points, 7)
    assert abs(power - 18.43) > 2.5 * abs(line - 18.43)


@pytest.mark.parametrize("left_out", [1.0, 7.0, 13.0])
def test_leave_one_out_of_the_study_s_sft_totals(left_out: float) -> None:
    totals = {1.0: 7.00, 7.0: 19.50, 13.0: 34.60}
    model = fit_stage([Observed(p, e) for p, e in totals.items() if p != left_out])
    try:
        low, high = model.predict(left_out).interval(0.9)
    except Declined:
        assert left_out == 1.0, "a seventh of the smallest size is more than it can carry"
        return
    assert low <= totals[left_out] <= high


@settings(max_examples=50, deadline=None)
@given(st.floats(0.5, 10), st.floats(0.5, 5), st.floats(1, 13))
def test_an_exact_line_is_found_exactly(overhead: float, slope: float, size: float) -> None:
    points = [Observed(p, overhead + slope * p) for p in (1.0, 3.0, 7.0, 13.0) for _ in range(2)]
    assert fit_stage(points).predict(size).mean == pytest.approx(overhead + slope * size, rel=1e-9)


def test_tokens_and_size_together() -> None:
    def energy(p: float, d: float) -> float:
        return 0.5 + d / 1e6 * (0.05 + 0.02 * p)

    points = [Observed(p, energy(p, d), d) for p in (1.0, 7.0) for d in (1e7, 3e7)]
    model = fit_stage(points)
    assert model.predict(3.0, 2e7).mean == pytest.approx(energy(3, 2e7))
    with pytest.raises(Declined, match="tokens"):
        model.predict(3.0)
    with pytest.raises(Declined, match="too far"):
        model.predict(3.0, 1e9)


def test_it_declines_what_it_cannot_defend() -> None:
    with pytest.raises(Declined, match="outside the measured 1B to 13B"):
        fit_stage(SFT).predict(40)
    with pytest.raises(Declined, match="at least two"):
        fit_stage(SFT[:1])
    with pytest.raises(Declined, match="number of tokens"):
        fit_stage(SFT).predict(7, 1e6)
    curved = [Observed(p, 10 * p**0.4 * (1 + e)) for p in (0.5, 3.0, 13.0) for e in (-0.01, 0.0, 0.01)]
    with pytest.raises(Declined, match="do not lie on a line"):
        fit_stage(curved).predict(6)
    with pytest.raises(Declined, match="do not lie on a line"):
        fit_stage(curved).predict(20)


def test_extrapolation_is_wider_and_said() -> None:
    model = fit_stage(SFT)
    inside, outside = model.predict(10), model.predict(30)
    assert outside.basis == "extrapolated"
    assert outside.run_sd / outside.mean > 1.2 * inside.run_sd / inside.mean


def test_noise_that_grows_with_size_widens_there() -> None:
    steady = [Observed(p, (3 + 2 * p) * (1 + e)) for p in (1.0, 4.0, 12.0) for e in (-0.02, 0.0, 0.01, 0.02, -0.01)]
    growing = [
        Observed(p, (3 + 2 * p) * (1 + e * p)) for p in (1.0, 4.0, 12.0) for e in (-0.02, 0.0, 0.01, 0.02, -0.01)
    ]
    a, b = fit_stage(steady).predict(10), fit_stage(growing).predict(10)
    assert b.run_sd / b.mean > 3 * a.run_sd / a.mean


def test_one_size_lies_between_all_overhead_and_all_compute() -> None:
    found = one_size([Observed(1, 10.0)], 4.0)
    low, high = found.interval(0.9)
    assert low < 10 * 4**0.75 < high and found.basis == "extrapolated"
    assert high == pytest.approx(10 * 4.0, rel=0.05)
    with pytest.raises(Declined, match="second size"):
        one_size([Observed(1, 10.0)], 20.0)


def test_compute_prior_is_wide_and_for_the_h100_only() -> None:
    # public log: SFT 13B, 9.86M tokens, 0.706 kWh on one H100
    low, high = prior_range_kwh("sft", 13, 9.86e6)
    assert low < 0.706 < high and high / low > 5
    # KD 1B, 72.6M tokens, 5.21 kWh
    low, high = prior_range_kwh("kd", 1.485, 72.6e6)
    assert low < 5.21 < high
    with pytest.raises(Declined, match="H100"):
        training_prior_kwh("sft", 1, 1e6, "2x toaster")


def test_decode_law_at_the_published_points() -> None:
    # 32B at batch 4, 8, 16, 32, 64: 3.34, 1.76, 0.98, 0.58, 0.39 J per token
    for batch, joules in ((4, 3.34), (8, 1.76), (16, 0.98), (32, 0.58), (64, 0.39)):
        assert decode_j_per_token(32.2, batch) == pytest.approx(joules, rel=0.03)
    assert batch_factor(32, 4, 8) == pytest.approx(0.53, abs=0.005)
    assert length_factor(205, 768) == pytest.approx(5.06, rel=0.01)


def test_generation_is_found_from_two_batches_and_two_lengths() -> None:
    def joules(batch: float, length: float) -> float:
        return 0.2 + 9.0 / batch + 0.001 * length

    points = [Generated(1000, b, n, 1000 * joules(b, n)) for b in (2, 8) for n in (64, 256)]
    model = fit_generation(points)
    assert model.j_per_token(4, 128).mean == pytest.approx(joules(4, 128))
    assert model.energy_kwh(1e6, 8, 256).mean == pytest.approx(1e6 * joules(8, 256) / 3.6e6)
    with pytest.raises(Declined, match="batch"):
        model.j_per_token(64, 128)


def test_one_generation_point_scales_the_law_widely() -> None:
    measured = Generated(1e4, 4, 512, 1e4 * 3.84)
    model = fit_generation([measured], teacher_params_b=32.2)
    found = model.j_per_token(16, 512)
    assert found.mean == pytest.approx(3.84 * decode_j_per_token(32.2, 16) / decode_j_per_token(32.2, 4))
    assert found.run_sd / found.mean >= 0.15
    with pytest.raises(Declined):
        fit_generation([measured]).j_per_token(16, 512)


def test_forward_passes_are_affine_in_tokens() -> None:
    found = forward_energy_kwh([Forward(1e4, 500.0), Forward(3e4, 900.0)], 1e5)
    assert found.mean == pytest.approx((300 + 0.02 * 1e5) / 3.6e6)
    with pytest.raises(Declined, match="200 times"):
        forward_energy_kwh([Forward(1e4, 500.0)], 1e8)


def test_quality_is_not_extrapolated() -> None:
    points = [(1.0, 0.70), (13.0, 0.82)]
    found = predict_quality(points, 7.0)
    assert 0.70 < found.mean < 0.82 and found.run_sd > 0.02
    with pytest.raises(Declined, match="outside"):
        predict_quality(points, 20.0)
    with pytest.raises(Declined, match="at least two"):
        predict_quality(points[:1], 1.0)


def test_least_squares_against_the_textbook() -> None:
    # y = 1 + 2x with residuals +0.1, -0.2, +0.1: slope 2, intercept 1 (residuals are orthogonal to 1 and x)
    found = fit([[1, 0], [1, 1], [1, 2]], [1.1, 2.8, 5.1], relative=False)
    assert found.coefficients == pytest.approx([1.0, 2.0])
    assert found.sd == pytest.approx(math.sqrt(0.06))
    assert found.leverage([1, 1]) == pytest.approx(1 / 3)
    with pytest.raises(Degenerate):
        fit([[1, 1], [1, 1]], [1, 2], relative=False)
    assert solve([[2.0, 0.0], [0.0, 4.0]], [[2.0], [4.0]]) == [[1.0], [1.0]]


def test_satterthwaite_of_equal_parts_adds_degrees_of_freedom() -> None:
    assert satterthwaite([(1.0, 5), (1.0, 5)]) == pytest.approx(10)
    assert satterthwaite([(1.0, math.inf)]) == math.inf


def test_a_method_without_preprocessing_energy_is_declined() -> None:
    row = {"regime": "kd", "hardware": None, "scope": None, "source_kind": "own", "teacher_params_b": None,
           "preprocess_kwh": None, "teacher_kwh": 1.0, "prerun_kwh": None}  # fmt: skip
    with pytest.raises(Declined, match="preprocessing"):
        predict_candidate([row], [row], 7.0)
