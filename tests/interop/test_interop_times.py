"""Times as people's tools write them: 100 W over one second is 100 J, or unknown with the right reason."""

from __future__ import annotations

import pytest
from interop_helpers import codes

from kdwatch.interop.dates import month_of, order_of


def two(first: str, second: str) -> str:
    return f"timestamp;power_w\n{first};100\n{second};100\n"


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("2026-01-03 15:36:53 CET", "2026-01-03 15:36:54 CET", "epoch"),
        ("2026-03-29 01:59:59 CET", "2026-03-29 03:00:00 CEST", "epoch"),
        ("2026-01-03 15:36:53 UTC+01:00", "2026-01-03 15:36:54 UTC+1", "epoch"),
        ("2026-01-03T15:36:53+01:00[Europe/Paris]", "2026-01-03T15:36:54+01:00[Europe/Paris]", "epoch"),
        ("Sat Jan  3 15:36:53 CET 2026", "Sat Jan  3 15:36:54 CET 2026", "epoch"),
        ("Sat  3 Jan 15:36:53 GMT 2026", "Sat  3 Jan 15:36:54 GMT 2026", "epoch"),
        ("Sat 03 Jan 2026 03:36:53 PM EST", "Sat 03 Jan 2026 03:36:54 PM EST", "epoch"),
        ("sam. 03 janv. 2026 15:36:53 CET", "sam. 03 janv. 2026 15:36:54 CET", "epoch"),
        ("mar. 05 sept. 2023 10:26:24", "mar. 05 sept. 2023 10:26:25", "local"),
        ("Sa 3. Jan 15:36:53 CET 2026", "Sa 3. Jan 15:36:54 CET 2026", "epoch"),
        ("3 février 2026 15:36:53", "3 février 2026 15:36:54", "local"),
        ("31. Dezember 2025 23:59:59", "01. Januar 2026 00:00:00", "local"),
        ("03/Jan/2026:15:36:53 +0100", "03/Jan/2026:15:36:54 +0100", "epoch"),
        ("2026年 01月 03日 星期六 15:36:53", "2026年 01月 03日 星期六 15:36:54", "local"),
        ("20260103153653", "20260103153654", "local"),
        ("26/01/03 15:36:53", "26/01/03 15:36:54", "local"),
        ("0 days 23:59:59.5", "1 days 00:00:00.5", "elapsed"),
        ("25:00:00", "25:00:01", "elapsed"),
    ],
)
def test_a_second_apart(read, first: str, second: str, kind: str) -> None:
    entry = read(two(first, second))
    assert (entry["total_energy_j"], entry["time"]) == (pytest.approx(100.0), kind)
    assert not codes(entry) - {"no_date"}


def test_a_zone_name_that_means_several_zones_asks_for_one(read) -> None:
    text = two("Sat Jan  3 15:36:53 CST 2026", "Sat Jan  3 15:36:54 CST 2026")
    entry = read(text)
    assert (entry["time"], entry["total_energy_j"]) == ("local", pytest.approx(100.0))
    assert any("CST" in w["text"] and "--tz" in w["text"] for w in entry["warnings"] if w["code"] == "zone_name")
    assert read(text, zone="Asia/Shanghai")["time"] == "epoch"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("11-03-2026 23:59:59", "11-04-2026 00:00:00"),
        ("03-11-2026 23:59:59", "04-11-2026 00:00:00"),
        ("03/11/26 23:59:59", "04/11/26 00:00:00"),
        ("11/03/26 23:59:59", "11/04/26 00:00:00"),
        ("10/11/12 23:59:59", "10/11/13 00:00:00"),
        ("01/31/2026 23:59:59", "02/01/2026 00:00:00"),
    ],
)
def test_the_next_day_tells_the_order_of_a_date(read, first: str, second: str) -> None:
    """Over midnight a log goes on with the next day, not with the next month."""
    entry = read(two(first, second))
    assert entry["total_energy_j"] == pytest.approx(100.0)
    assert "ambiguous_date" not in codes(entry) and "gap" not in codes(entry)


def test_a_day_that_changes_after_the_first_rows(read, monkeypatch) -> None:
    """The rows from which the layout is learned know one date only; the second one settles the order."""
    import kdwatch.interop.formats.power_csv as power_csv

    monkeypatch.setattr(power_csv, "BUFFER", 20)
    clocks = [(23, 50 + k // 60, k % 60, "11-03-2026") for k in range(600)]
    clocks += [(0, k // 60, k % 60, "11-04-2026") for k in range(600)]
    rows = [f"{day} {h:02d}:{m:02d}:{s:02d},100" for h, m, s, day in clocks]
    entry = read("\n".join(["timestamp,power_w", *rows]) + "\n")
    assert (entry["duration_s"], entry["total_energy_j"]) == (1199.0, pytest.approx(119_900.0))


def test_order_of_dates() -> None:
    assert order_of([("03", "11", "2026")]) == ("dmy", True)
    assert order_of([("13", "11", "2026")]) == ("dmy", False)
    assert order_of([("11", "13", "2026")]) == ("mdy", False)
    assert order_of([("26", "01", "03")]) == ("ymd", False)
    assert order_of([]) == ("dmy", False)


def test_months_by_the_beginning_of_their_names() -> None:
    names = "janvier févr. März avril mai juin juil. août septiembre Oktober novembro diciembre"
    assert [month_of(name) for name in names.split(" ")] == list(range(1, 13))


def test_days_as_numbers_are_not_taken_for_seconds(read) -> None:
    """Excel's serial dates: one second is 0.0000116 of a day."""
    entry = read(two("46025.650613", "46025.650625"))
    assert entry["total_energy_j"] is None and "time_unit_unknown" in codes(entry)


def test_milliseconds_without_a_unit_are_named_whatever_the_first_step(read) -> None:
    entry = read("time,power_w\n" + "".join(f"{t},100\n" for t in (0, 10, 110, 210, 310)))
    texts = [w["text"] for w in entry["warnings"] if w["code"] == "time_unit_unknown"]
    assert entry["total_energy_j"] is None and len(texts) == 1 and "may be ms" in texts[0]


def test_elapsed_clock_goes_on_after_a_day(read) -> None:
    rows = [f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d},100" for s in range(86_390, 86_420)]
    entry = read("\n".join(["elapsed,power_w", *rows]) + "\n")
    assert (entry["n_samples"], entry["total_energy_j"]) == (30, pytest.approx(2900.0))
