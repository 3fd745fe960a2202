"""Large logs are read block by block: the same as row by row, whatever stands in the rows."""

from __future__ import annotations

import random
import weakref
from pathlib import Path
from typing import Any

import pytest

import kdwatch.interop.formats.power_csv as power_csv
import kdwatch.interop.source as source
import kdwatch.interop.table as table
from kdwatch.interop.load import load_log
from kdwatch.interop.model import ImportOptions
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.summary import log_json

NVIDIA = "timestamp, index, power.draw [W], utilization.gpu [%]"


def stamp(t: float, form: str) -> str:
    """Seconds as a written time: `/` nvidia-smi's, `T` ISO with a zone, `e` epoch, `s` seconds from the start."""
    ms = round(t * 1000)
    clock = f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"
    return {
        "/": f"2026/01/03 {clock}",
        "T": f"2026-01-03T{clock}+02:00",
        "e": f"{1_767_398_400 + t:.3f}",
        "s": f"{t:.3f}",
    }[form]


def write_log(path: Path, seed: int, form: str, gpus: int, oddities: float) -> None:
    """400 ticks of `gpus` devices; `oddities` is the share of rows that are not regular."""
    dice = random.Random(seed)
    lines = [NVIDIA]
    for tick in range(400):
        for gpu in range(gpus):
            t = 3000.0 + 0.5 * tick + 0.001 * dice.randrange(20)
            watts = f"{dice.uniform(50, 400):.2f} W"
            if dice.random() < oddities:
                watts = dice.choice(["[N/A]", "", "-3.00 W", "0.00 W", "9223372036854775807 W", "nonsense", '"12.5 W"'])
            line = f"{stamp(t, form)}, {gpu}, {watts}, 99 %"
            if dice.random() < oddities / 4:
                line = dice.choice([
                    NVIDIA, "No devices were found", line[:20], f"{stamp(t - 40, form)}, {gpu}, {watts}, 9 %",
                    "index, timestamp, power.draw [W], utilization.gpu [%]", f"later, {gpu}, {watts}, 9 %",
                ])  # fmt: skip
            lines.append(line)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("oddities", [0.0, 0.0005, 0.01])
@pytest.mark.parametrize(
    ("form", "zone"), [("/", None), ("/", "Europe/Paris"), ("T", None), ("T", "Asia/Tokyo"), ("e", None), ("s", "UTC")]
)
def test_blocks_give_what_rows_give(tmp_path: Path, monkeypatch, form: str, zone: str | None, oddities: float) -> None:
    monkeypatch.setattr(power_csv, "BUFFER", 50)
    monkeypatch.setattr(source, "CHUNK", 8192)
    taken = 0

    def counted(power, block) -> bool:
        nonlocal taken
        found = take_block(power, block)
        taken += found
        return found

    take_block = power_csv.take_block
    monkeypatch.setattr(power_csv, "take_block", counted)
    for seed, gpus in ((1, 1), (3, 5)):
        log = tmp_path / f"{seed}.csv"
        write_log(log, seed, form, gpus, oddities)

        def read(log: Path = log) -> dict[str, Any]:
            return log_json(load_log(log, ImportOptions(zone=zone)))

        blocks = read()
        with monkeypatch.context() as by_rows:
            by_rows.setattr(table, "SMALLEST_BLOCK", 10**9)
            rows = read()
        for device in rows["devices"]:
            for name in ("energy_j", "energy_j_excluding_gaps", "mean_w", "mean_w_samples", "gap_seconds"):
                device[name] = pytest.approx(device[name], rel=1e-12)
        assert blocks["devices"] == rows["devices"]
        assert blocks["warnings"] == rows["warnings"]
        assert (blocks["rows"], blocks["n_samples"]) == (rows["rows"], rows["n_samples"])
    assert taken >= (6 if oddities == 0.0 else 3 if oddities < 0.01 else 0)


def test_series_takes_many_as_one_by_one() -> None:
    dice = random.Random(7)
    times = [float(k) for k in range(300)]
    times[50:60] = times[40:50]
    watts = [dice.choice([0.0, 5.0, 7.25]) for _ in times]
    one, many = PowerSeries(), PowerSeries()
    for t, value in zip(times, watts, strict=True):
        one.add(t, value)
    for start in range(0, 300, 37):
        many.extend(times[start : start + 37], watts[start : start + 37])
    assert (one.backward, one.zeros, one.fractions) == (many.backward, many.zeros, many.fractions)
    assert list(one.points()) == list(many.points())
    assert one.stats() == many.stats()


def test_many_devices_share_one_file_and_a_bounded_memory(monkeypatch) -> None:
    """Spools that are small each, and many together, go to the file too; what they give stays the same."""
    from kdwatch.interop import spool

    monkeypatch.setattr(spool, "HELD", 3000)
    monkeypatch.setattr(spool, "SMALLEST", 16)
    dice = random.Random(3)
    pairs = [[(float(dice.randrange(40)), float(k)) for k in range(200)] for _ in range(50)]
    spools = [spool.Spool() for _ in pairs]
    pool = spools[0]._pool
    most = 0
    for k in range(200):
        for found, values in zip(spools, pairs, strict=True):
            found.add(*values[k])
            most = max(most, pool.held)
    assert pool.file is not None and most <= 3000 + 50 * 16
    for found, values in zip(spools, pairs, strict=True):
        assert len(found) == 200
        assert list(found.sorted_pairs()) == sorted(values, key=lambda pair: pair[0])
    alive = weakref.ref(pool)
    del found, spools, pool
    assert alive() is None, "the file goes with the last of them"
