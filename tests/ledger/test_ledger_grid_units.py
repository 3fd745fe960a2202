"""Units at the edges; grid factors: a number with its source, or a clear no."""

from __future__ import annotations

import math

import naive
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.ledger.grid import intensity, near_matches, table
from kdwatch.ledger.units import (
    format_duration,
    format_energy,
    format_number,
    parse_duration,
    parse_energy,
    three_digits,
)
from kdwatch.rundir.errors import UsageProblem


@pytest.mark.parametrize(
    ("text", "joules"),
    [("20kWh", 72e6), ("72MJ", 72e6), ("500 Wh", 1.8e6), ("1J", 1.0), ("5mJ", 0.005), ("2.5e3 kJ", 2.5e6), 
     ("1MWh", 3.6e9), ("0.5 kwh", 1.8e6), ("3GJ", 3e9)],
)  # fmt: skip
def test_energies(text: str, joules: float) -> None:
    assert parse_energy(text) == pytest.approx(joules)


@pytest.mark.parametrize("text", ["", "20", "kWh", "-5kWh", "0J", "5 furlongs", "1e999J", "nan J", "5kWh 3", "٣kWhx"])
def test_what_is_no_energy_says_so(text: str) -> None:
    with pytest.raises(UsageProblem, match="energy"):
        parse_energy(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("10s", 10), ("2h", 7200), ("1h30m", 5400), ("30d", 2592000), ("1.5 min", 90), ("250ms", 0.25)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "1h x", "5 kWh", "inf", "nan"])
def test_what_is_no_duration_says_so(text: str) -> None:
    with pytest.raises(UsageProblem, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("joules", "shown"),
    [(None, "n/a"), (math.nan, "n/a"), (0, "0 J"), (0.01234, "0.0123 J"), (999.4, "999 J"), (999.6, "1000 J"),
     (12345, "12.3 kJ"), (1.5e6, "1.50 MJ"), (3.6e6, "1.00 kWh"), (7.02e7, "19.5 kWh"), (-1234.0, "-1.23 kJ")],
)  # fmt: skip
def test_energy_text(joules: float | None, shown: str) -> None:
    assert format_energy(joules).replace("\u00a0", " ") == shown


def test_energy_text_in_a_chosen_unit() -> None:
    assert format_energy(3.6e6, "kWh").replace("\u00a0", " ") == "1.00 kWh"
    assert format_energy(3600.0, "J").replace("\u00a0", " ") == "3600 J"


@given(st.floats(1e-6, 1e15))
def test_three_digits_keep_three_digits(value: float) -> None:
    assert float(three_digits(value)) == pytest.approx(value, rel=0.0051)
    assert "e" not in three_digits(value)


def test_whole_digits_stay() -> None:
    """40 698 J are no 40 700 J: reports agree with the screens to the joule."""
    assert [three_digits(x) for x in (40698.4, 1234.6, 999.6, 9.999, 0.012345)] == [
        "40698", "1235", "1000", "10.0", "0.0123"]  # fmt: skip


def test_duration_and_number_text() -> None:
    shown = [format_duration(s) for s in (None, 0, 0.00671, 0.5, 12.34, 187.4, 7387, 266587)]
    assert shown == ["n/a", "0 s", "6.71 ms", "0.500 s", "12.3 s", "3:07", "2:03:07", "3 d 2:03:07"]
    assert [format_number(v) for v in (None, 5, 1234, 5.6e7)] == ["n/a", "5.00", "1.23k", "56.0M"]


def test_the_table_is_large_and_each_row_has_its_origin() -> None:
    rows = table()
    assert len(rows) >= 200
    assert all(0 < r.g_per_kwh < 1500 and 2000 <= r.year <= 2100 and r.source and r.licence for r in rows.values())
    assert all(len(code) == 3 and code.isupper() for code in rows)


@pytest.mark.parametrize(
    ("region", "grams"),
    [("FRA", 56.039), ("pol", 661.926), ("Canada", 170.043), (" germany ", 380.95), ("USA", 369.473)],
)  # fmt: skip
def test_known_regions(region: str, grams: float) -> None:
    """Values of the Our World in Data country table as CodeCarbon 3.3.2 ships it."""
    found = intensity(region)
    assert found is not None and found.g_per_kwh == grams and found.licence == "CC-BY-4.0"


@pytest.mark.fault(65)
def test_fault_65_grams_and_kilograms() -> None:
    """1 kWh x 170.043 g/kWh = 0.170043 kg; the unit is in the key."""
    from kdwatch.ledger.report import facility

    found = facility({"region": "CAN", "pue": 1.0}, 3.6e6)
    right = pytest.approx(0.170043)
    assert found["co2e_kg"] == right and found["grid_g_per_kwh"] == 170.043
    assert naive.emissions_kg(1.0, 170.043) != right


@pytest.mark.fault(66)
def test_fault_66_the_factor_comes_with_source_and_year() -> None:
    from kdwatch.ledger.report import facility

    found = facility({"region": "FRA"}, 3.6e6)
    assert (found["grid_year"], found["region"]) == (2023, "FRA")
    assert naive.world_mean_kg(1.0, "FRA") != pytest.approx(found["co2e_kg"], rel=1.0)
    assert "Our World in Data" in found["grid_source"] and "2023" in found["grid_source"]
    own = facility({"intensity_g_per_kwh": 100.0}, 3.6e6)
    assert (own["co2e_kg"], own["grid_source"], own["grid_year"]) == (pytest.approx(0.1), "given by the user", None)


@pytest.mark.fault(67)
def test_fault_67_without_a_region_there_is_no_co2_and_no_guess() -> None:
    from kdwatch.ledger.report import facility

    found = facility({}, 3.6e6)
    assert naive.guessed_country_kg(1.0, None) > 0
    assert found["co2e_kg"] is None and found["grid_g_per_kwh"] is None and found["facility_kwh"] == pytest.approx(1.0)
    assert intensity(None) is None


def test_pue_multiplies_facility_energy_only() -> None:
    from kdwatch.ledger.report import facility

    found = facility({"region": "FRA", "pue": 1.5}, 7.2e6)
    assert found["facility_kwh"] == pytest.approx(3.0)
    assert found["co2e_kg"] == pytest.approx(3.0 * 0.056039)


@pytest.mark.parametrize(
    ("region", "near"), [("FRN", "FRA"), ("Polnd", "POL"), ("Germny", "DEU"), ("United Stat", "USA")]
)
def test_an_unknown_region_is_an_error_with_near_matches(region: str, near: str) -> None:
    with pytest.raises(UsageProblem, match=near):
        intensity(region)


@pytest.mark.parametrize("region", ["", "\x1b[31m", "zzzzzz", "12"])
def test_a_hopeless_region_is_an_error_too(region: str) -> None:
    with pytest.raises(UsageProblem, match="unknown region") as caught:
        intensity(region)
    assert "\x1b" not in str(caught.value)
    assert isinstance(near_matches(region), list)


@pytest.mark.parametrize("grams", [-1.0, math.nan, math.inf])
def test_an_impossible_intensity_is_an_error(grams: float) -> None:
    with pytest.raises(UsageProblem, match="intensity"):
        intensity(None, grams)
