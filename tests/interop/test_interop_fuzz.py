"""Mutated files: every import ends in a value or in one clear line, quickly, with no silent wrong total.

By default a few hundred files; `-m slow` tries 100 000.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kdwatch.interop.load import load_log
from kdwatch.interop.model import ImportOptions
from kdwatch.interop.summary import log_json
from kdwatch.rundir.errors import UsageProblem

LOGS = Path(__file__).parents[1] / "data" / "logs"
SEEDS = [path.read_bytes()[:6000] for path in sorted(LOGS.rglob("*")) if path.is_file() and path.name != "index.json"]
TOKENS = [
    b"\0", b"\0\0\0\0", b"\r\n", b"\n\n", b",", b";", b"|", b'"', b"'", b"-1", b"1e999", b"nan", b"[N/A]",
    b"65535", b"4294967295", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"\xe2\x80\xae", b"=1+1",
    b"99999999999999999999", b"timestamp", b"power.draw", b"{", b"}", b"[", b"]", b"Joules", b"# gpu pwr",
    b"Time,", b"energy=", b"\t", b" ", b"0", b"9" * 400, b"T", b"Z", b"+08:00",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A published log with a few cuts, copies, swaps and strange pieces."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        size = max(1, len(data))
        at, to = draw(st.integers(0, size)), draw(st.integers(0, size))
        at, to = min(at, to), min(max(at, to), min(at, to) + 400)
        match draw(st.integers(0, 5)):
            case 0:
                del data[at:to]
            case 1:
                data[at:at] = data[at:to]
            case 2:
                data[at:at] = draw(st.sampled_from(TOKENS))
            case 3:
                data[at:to] = draw(st.sampled_from(TOKENS))
            case 4:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 5:
                data = data[:to] if to > 10 else data
    return bytes(data)


def check(data: bytes, interval: float | None) -> None:
    """Read the bytes as a file and check what comes out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.txt")
        path.write_bytes(data)
        try:
            log = load_log(path, ImportOptions(interval_s=interval))
        except UsageProblem as problem:
            text = str(problem)
            assert text and "\n" not in text and "\r" not in text, repr(text)
            assert len(text) < 5000
            return
        consistent(log_json(log))


def consistent(out: dict[str, Any]) -> None:
    """Laws of every result: finite numbers, no negative energy, a total that is the sum of the known devices."""
    text = json.dumps(out, allow_nan=False)
    assert "NaN" not in text
    for device in out["devices"]:
        for key in ("energy_j", "duration_s", "peak_w", "min_w", "mean_w_samples"):
            value = device.get(key)
            assert value is None or (math.isfinite(value) and value >= 0), (key, value)
        energy, span, peak = device["energy_j"], device["duration_s"], device.get("peak_w")
        by_power = device["n_samples"] and "energy_counter_j" not in device
        if by_power and energy is not None and span is not None and peak is not None and not out["stages"]:
            assert energy <= peak * span * (1 + 1e-6) + 1e-6, "no trapezoid exceeds peak power times time"
    known = [device["energy_j"] for device in out["devices"] if device["energy_j"] is not None]
    total = out["total_energy_j"]
    codes = {warning["code"] for warning in out["warnings"]}
    if total is None:
        assert not known or codes & {"overlapping_windows", "one_scrape"}, "a known energy and no total needs a reason"
    elif out["format"] != "codecarbon-emissions-csv":
        assert math.isclose(total, math.fsum(known), rel_tol=1e-6, abs_tol=1e-6) or "partial_total" in codes
    elif not math.isclose(total, math.fsum(known), rel_tol=1e-6, abs_tol=1e-6):
        assert codes & {"parts_differ", "parts_unknown"}


BASE = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@settings(BASE, max_examples=250)
@given(mutated(), st.sampled_from([None, None, 0.5]))
def test_mutated_files_end_in_a_value_or_one_line(data: bytes, interval: float | None) -> None:
    check(data, interval)


@pytest.mark.slow  # 100 000 files take about ten minutes
@settings(BASE, max_examples=100_000)
@given(mutated(), st.sampled_from([None, None, 0.5]))
def test_a_hundred_thousand_mutated_files(data: bytes, interval: float | None) -> None:
    check(data, interval)


@settings(BASE, max_examples=80)
@given(st.binary(max_size=3000))
def test_random_bytes_end_in_a_value_or_one_line(data: bytes) -> None:
    check(data, None)


samples = st.lists(
    st.tuples(
        st.floats(0, 1e4, allow_nan=False).map(lambda t: round(t, 3)), st.floats(0.001, 2000).map(lambda w: round(w, 3))
    ),
    min_size=2,
    max_size=60,
    unique_by=lambda pair: pair[0],
)

BURSTS = [(tick + late, watts) for tick in range(10) for late, watts in ((0.0, 100.0), (0.01, 200.0))]


@settings(BASE, max_examples=80)
@given(samples, st.randoms(use_true_random=False))
@example(BURSTS, random.Random(0))
def test_order_of_rows_does_not_matter(rows: list[tuple[float, float]], order: random.Random) -> None:
    """Law: the energy is that of the sorted samples, in any order in the file; bursts as of two devices have none."""
    ordered = sorted(rows)
    expected = math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(ordered))
    shuffled = list(rows)
    order.shuffle(shuffled)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.csv")
        path.write_text("elapsed_s,power_w\n" + "".join(f"{t},{w}\n" for t, w in shuffled))
        log = load_log(path)
    if log.total_j is None:
        assert "devices_indistinct" in {warning["code"] for warning in log_json(log)["warnings"]}
    else:
        assert log.total_j == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(BASE, max_examples=60)
@given(samples)
def test_series_larger_than_memory_gives_the_same(rows: list[tuple[float, float]]) -> None:
    """Law: spilling to disk in blocks of 8 changes nothing."""
    from kdwatch.interop import spool
    from kdwatch.interop.series import PowerSeries

    def stats(block: int):
        before, spool.BLOCK = spool.BLOCK, block
        try:
            series = PowerSeries()
            for t, w in rows:
                series.add(t, w)
            return series.stats()
        finally:
            spool.BLOCK = before

    assert stats(8) == stats(1 << 20)


SAID = {"parts_differ", "total_missing", "stage_left_out"}
"""Warnings of a run that explain why its total is not the file's."""


@settings(BASE, max_examples=60)
@given(mutated(), st.sampled_from([None, None, 0.5]))
def test_run_of_a_mutated_file_has_the_energy_of_the_file(data: bytes, interval: float | None) -> None:
    """Law: what the import says is what the report of its run says, or a warning says why not."""
    from kdwatch.interop.importing import check_options, import_paths
    from kdwatch.ledger.report import build_report

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.txt")
        path.write_bytes(data)
        try:
            result = import_paths([path], check_options(None, interval, None))
        except UsageProblem as problem:
            assert "\n" not in str(problem)
            return
    json.dumps(result.to_json(), allow_nan=False)
    if result.run is None:
        return
    report = build_report(result.run)
    ours, theirs = report["total_j"], result.files[0]["total_energy_j"]
    if not SAID & {warning["code"] for warning in report["warnings"]}:
        assert (ours is None) == (theirs is None)
        assert ours is None or math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=0.01)
