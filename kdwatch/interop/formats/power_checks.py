"""What a power log may hide: milliwatts, wrapped counters, zeros, two loggers, devices that cannot be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from kdwatch.interop.columns import Column
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.table import RowCounts

if TYPE_CHECKING:
    from kdwatch.interop.formats.power_csv import PowerTable

MAX_DEVICE_W = 2000.0
"""No single GPU or CPU package draws more (a B200 is limited to 1000-1200 W)."""
SURELY_MILLIWATTS = 20_000.0
SHORTEST_STEP, LONGEST_STEP = 1e-3, 50.0
"""Seconds between samples where the file writes no unit: other numbers are some other unit."""
LOOK = 20_000
"""Samples of a series that are looked at for patterns."""
WRAPS_J = (2.0**16, 2.0**18, 2.0**32 / 1e6, 2.0**32 / 1e3)
"""Ranges of energy counters: RAPL's 32 bits of 15.3 uJ (as 16 bits of joules) and 61 uJ, micro- and millijoules."""


def check_power_log(
    log: ImportedLog, power: PowerTable, counts: RowCounts, source: TextSource, options: ImportOptions
) -> None:
    """Settle units, compute each device's numbers, and note what a reader has to know. Raises LogProblem."""
    if not log.devices or not any(len(d.series or ()) for d in log.devices):
        raise LogProblem(
            "no power reading: every cell of the power column is missing", rows=counts.rows, columns=_headers(power)
        )
    _note_rows(log, counts, source)
    _note_units(log, power, source)
    _note_missing(log, power)
    _note_times(log, power, options)
    timed = log.time_kind is not None
    written = power.plan.devices[0].factor is not None or bool(power.units)
    for device in log.devices:
        assert device.series is not None
        _milliwatts(log, device, written, any((c.factor or 0) >= 1e3 for c in power.plan.devices))
        device.stats = device.series.stats(timed)
        _note_readings(log, device)
        if timed:
            _note_pattern(log, device, keyed=bool(power.plan.key or power.plan.host or len(log.devices) > 1))
    _note_wraps(log, power)
    _note_totals(log, power, timed)
    log.n_gpus = len(log.devices)
    finish(log)


def finish(log: ImportedLog) -> None:
    """Duration of all devices together and the total, null where a device's energy is unknown."""
    starts = [d.stats.start for d in log.devices if d.stats and d.stats.start is not None]
    ends = [d.stats.end for d in log.devices if d.stats and d.stats.end is not None]
    if log.time_kind is not None and starts and any(d.stats and d.stats.duration_s is not None for d in log.devices):
        log.duration_s = max(ends) - min(starts)
    energies = [d.stats.energy_j if d.stats and d.energy_j is None else d.energy_j for d in log.devices]
    for device, energy in zip(log.devices, energies, strict=True):
        if not device.details.get("indistinct"):
            device.energy_j = energy
    known = [d.energy_j for d in log.devices if d.energy_j is not None]
    if len(known) < len(log.devices) and known:
        log.note("partial_total", "the total leaves out devices with fewer than two readings")
    log.total_j = sum(known) if known else None


def _headers(power: PowerTable) -> list[str]:
    return [column.header for column in power.plan.devices]


def _note_rows(log: ImportedLog, counts: RowCounts, source: TextSource) -> None:
    if counts.malformed:
        where = "; the last line is torn" if counts.torn and not source.ends_with_newline else ""
        log.note("malformed_rows", f"{counts.malformed} rows have another number of fields than the header{where}")
    if counts.driver_errors:
        log.note("driver_errors", f"{counts.driver_errors} rows are error messages of the driver: no reading")
    if counts.repeated_headers:
        log.note("repeated_header", f"the header occurs {counts.repeated_headers} more times: several logs in one file")
    if counts.changed_headers:
        log.note("header_changed", f"{counts.changed_headers} later headers have other columns: cells are read by name")
    if source.nul_chars:
        log.note("nul_bytes", f"{source.nul_chars} NUL bytes taken out: two writers, or a file cut by a crash")
    if source.undecodable:
        log.note("undecodable", f"{source.undecodable} characters could not be decoded as {source.encoding}")
    if source.long_lines:
        log.note("long_lines", f"{source.long_lines} lines are longer than 1 MiB and were cut")


def _note_units(log: ImportedLog, power: PowerTable, source: TextSource) -> None:
    plan = power.plan
    main = plan.devices[0]
    written = main.factor is not None or bool(power.units)
    own = "power.draw" in main.header.lower() or log.format in ("nvidia-smi-csv", "amd-smi-csv")
    if not written and not own:
        if main.role == "bare" and not _name_says_power(source) and _all_below(log, 100.0):
            raise LogProblem(
                "no unit: columns named like GPU0 with values up to 100 may be utilisation; rename them to gpu0_w"
            )
        log.note("unit_assumed", f"no unit is written for {main.header!r}: read as watts")
    elif not written and main.header == "column 1":
        log.note("unit_assumed", "one column of numbers without header or unit: read as watts")
    if power.bad_cells:
        log.note("unreadable_cells", f"{power.bad_cells} cells of the power columns are no number: left out")
    if main.total and not main.name:
        log.note("total_only", f"{main.header!r} is a total and stands alone: the devices in it are unknown")
    if plan.totals and (plan.key or plan.host):
        names = ", ".join(column.header for column in plan.totals)
        log.note("total_left_out", f"{names} repeats the power of other columns: left out")
    if plan.others:
        names = ", ".join(column.header for column in plan.others)
        log.note("more_power_columns", f"energy is from {main.header!r}; {names} are given in details.by_column")


def _note_missing(log: ImportedLog, power: PowerTable) -> None:
    """Devices with rows that hold no reading, and those that never have one."""
    known = {device.key: len(device.series or ()) for device in log.devices}
    main = {column.header for column in power.plan.devices}
    without = []
    for (key, header), missing in power.missing.items():
        if header in main and known.get(key):
            log.note("missing", f"device {key}: {missing} of {known[key] + missing} readings are missing")
        elif header in main and key not in log.details.get("left_out_keys", ()):
            without.append(key)
    if without:
        log.note("no_reading", f"without any reading, and not counted: device {', '.join(without)[:200]}")


def _name_says_power(source: TextSource) -> bool:
    return any(word in source.path.name.lower() for word in ("power", "watt", "pwr"))


def _all_below(log: ImportedLog, limit: float) -> bool:
    return all((d.series.stats(False).peak_w or 0) <= limit for d in log.devices if d.series)


def _note_times(log: ImportedLog, power: PowerTable, options: ImportOptions) -> None:
    plan = power.plan
    if power.bad_times:
        log.note("bad_times", f"{power.bad_times} rows have no readable time: left out")
    if options.interval_s is not None and plan.time is not None:
        log.note("interval_used", f"--interval {options.interval_s:g} was used instead of the file's times")
    if log.time_kind is None:
        why = f"the cells of {plan.time_header!r} are no known times" if plan.time_header else "no time in the file"
        log.note("no_time", f"{why}: duration and energy are unknown; give --interval SECONDS")
        return
    if options.interval_s is not None or plan.time is None:
        return
    if plan.time.kind == "clock":
        log.note("no_date", "times of day without a date: durations are right if no day is left out")
    if plan.time.ambiguous_date:
        log.note("ambiguous_date", f"the order of the dates' numbers cannot be told: read as {plan.time.order_words}")
    if plan.time.zone_names and plan.time.kind == "local":
        names = ", ".join(plan.time.zone_names[:4])
        log.note("zone_name", f"{names} is the name of several zones: the start in UTC is unknown; give --tz ZONE")
    if plan.time.numeric and not plan.time.unit_written:
        _check_numeric_unit(log, plan.time_header)


def _check_numeric_unit(log: ImportedLog, header: str) -> None:
    """Steps of tens and more without a unit may be milliseconds, tiny ones days or hours: say nothing rather than be
    a thousand times off."""
    steps = [b[0] - a[0] for d in log.devices if d.series for a, b in pairwise(islice(d.series.points(), 1000))]
    steps = [step for step in steps if step > 0]
    middle = statistics.median(steps) if steps else 1.0
    if not SHORTEST_STEP <= middle < LONGEST_STEP:
        unit = "ms" if middle >= LONGEST_STEP else "days"
        log.time_kind = None
        log.note(
            "time_unit_unknown",
            f"{header!r} has no unit and may be {unit}: give --interval, or name it time_ms or time_s",
        )
    else:
        log.note("time_unit_assumed", f"{header!r} has no unit: read as seconds")


def _milliwatts(log: ImportedLog, device: LoggedDevice, written: bool, kilowatts: bool) -> None:
    series = device.series
    assert series is not None
    mean = series.raw_mean()
    if mean is None or mean <= MAX_DEVICE_W:
        return
    middle = statistics.median(watts for _, watts in islice(series.points(), LOOK))
    if middle <= MAX_DEVICE_W:
        log.note(
            "implausible_power",
            f"device {device.key}: {mean:.0f} W on average, but half of its readings are below {middle:.6g} W: a few "
            "cannot be right, and with them its energy",
        )
        return
    single = device.kind in ("gpu", "cpu")
    whole = series.fractions == 0
    if not kilowatts and ((single and whole) or (mean > SURELY_MILLIWATTS and (single or (whole and not written)))):
        labelled = series.stats(log.time_kind is not None).energy_j
        device.details["as_labelled_j"] = labelled
        series.scale = 1e-3
        shown = f"; as labelled the energy were {labelled:.6g} J" if labelled is not None else ""
        log.note(
            "milliwatts",
            f"device {device.key}: {mean:.0f} W on average is no single device: read as milliwatts{shown}",
        )
    else:
        log.note(
            "implausible_power",
            f"device {device.key}: {mean:.0f} W on average is more than one device draws (a whole node?)",
        )


def _note_readings(log: ImportedLog, device: LoggedDevice) -> None:
    series, stats = device.series, device.stats
    assert series is not None and stats is not None
    if series.zeros:
        text = f"device {device.key}: {series.zeros} of {len(series)} readings are exactly 0 W: probably missing"
        log.note("zero_readings", text + "; details give the energy without them")
        device.details["zero_readings"] = series.zeros
        device.details["energy_j_zero_as_missing"] = _without_zeros(device, log.time_kind is not None)
    if series.sentinels:
        log.note("sentinels", f"device {device.key}: {series.sentinels} all-ones readings mean no value: left out")
    if series.backward and log.time_kind == "local" and _goes_back_an_hour(device):
        log.note("clock_back", f"device {device.key}: times go back by an hour (end of summer time?); give --tz ZONE")
    elif series.backward:
        log.note("unsorted", f"device {device.key}: {series.backward} times lie before the row above: sorted")
    if stats.n_gaps and stats.energy_j:
        share = 100 * (stats.energy_j - (stats.energy_j_excluding_gaps or 0.0)) / stats.energy_j
        text = f"device {device.key}: {stats.n_gaps} gaps, {stats.gap_seconds:.6g} s in all, bridged"
        log.note("gap", f"{text}; {share:.3g} % of its energy lies in them")


def _goes_back_an_hour(device: LoggedDevice) -> bool:
    """Sorted by time, the repeated hour has about twice the samples; the jump itself is what `backward` counted."""
    return bool(device.series and device.series.longest_step_back >= 1800)


def _without_zeros(device: LoggedDevice, timed: bool) -> float | None:
    from kdwatch.interop.series import PowerSeries

    assert device.series is not None
    kept = PowerSeries()
    for t, watts in device.series.points():
        if watts > 0:
            kept.add(t, watts)
    return kept.stats(timed).energy_j


def _note_pattern(log: ImportedLog, device: LoggedDevice, keyed: bool) -> None:
    """Bursts of several devices under one key, two loggers in turn, and equal times."""
    assert device.series is not None and device.stats is not None
    points = list(islice(device.series.points(), LOOK))
    steps = [b[0] - a[0] for a, b in pairwise(points)]
    burst = burst_length(steps)
    if burst and not keyed and positions_differ(points, burst):
        device.details["indistinct"] = True
        log.note(
            "devices_indistinct",
            f"rows come in bursts of {burst} with different powers and no device column: several devices that "
            "cannot be told apart; log index or uuid too",
        )
    elif device.stats.n_zero_dt:
        log.note(
            "same_time",
            f"device {device.key}: {device.stats.n_zero_dt} rows repeat the time of the row before: two loggers, a "
            "coarse clock, or several devices under one key",
        )
    if takes_turns(steps):
        log.note(
            "two_loggers",
            f"device {device.key}: intervals alternate as if two loggers wrote this file: all samples are pooled",
        )


def burst_length(steps: Sequence[float]) -> int:
    """Rows per burst (2-16) where short steps and one long one repeat regularly, else 0."""
    for length in range(2, 17):
        cycles = [steps[i : i + length] for i in range(0, len(steps) - length + 1, length)]
        if len(cycles) >= 3 and sum(max(c[:-1]) < 0.1 * c[-1] for c in cycles) >= 0.9 * len(cycles):
            return length
    return 0


def positions_differ(points: Sequence[tuple[float, float]], length: int) -> bool:
    """Whether the means of the positions in a burst differ by more than 3 % of their mean."""
    means = [statistics.fmean(w for _, w in points[place::length]) for place in range(length)]
    overall = statistics.fmean(means)
    return overall > 0 and max(abs(mean - overall) for mean in means) > 0.03 * overall


def takes_turns(steps: Sequence[float]) -> bool:
    """Six steps in a row that alternate by over 10 % while every second sum is the same within 2 %."""
    run = 0
    for a, b, c in zip(steps, steps[1:], steps[2:], strict=False):
        pair = a + b
        alternates = pair > 0 and abs(a - b) > 0.1 * pair and abs((b + c) - pair) < 0.02 * pair and (a > b) == (c > b)
        run = run + 1 if alternates else 0
        if run >= 4:
            return True
    return False


def _note_wraps(log: ImportedLog, power: PowerTable) -> None:
    count = sum(d.series.negative for d in log.devices if d.series)
    if not count:
        return
    log.details["n_negative_dropped"] = count
    log.details["negative_values"] = [watts for _, watts, _ in power.negative]
    range_j = wrap_range(power.negative, [d.series.raw_mean() or 0.0 for d in log.devices if d.series])
    if range_j:
        log.details["counter_wrap_j"] = range_j
        log.note(
            "counter_wrapped",
            f"{count} negative readings: an energy counter of {range_j:.0f} J wrapped behind them; left out",
        )
    else:
        log.note("negative_readings", f"{count} negative readings are no power: left out")


def wrap_range(negative: Sequence[tuple[float, float, float]], means: Sequence[float]) -> float | None:
    """The counter range that turns every negative reading into a plausible power, None if there is none."""
    top = 10 * max(means, default=0.0) + 1.0
    for range_j in WRAPS_J:
        repaired = [watts + range_j / dt for _, watts, dt in negative if dt > 0]
        if repaired and all(0 <= watts <= top for watts in repaired):
            return range_j
    return None


def _is_part(device: LoggedDevice, column: Column) -> bool:
    """Whether a total is of devices such as this one: of a kind (`gpu_total`) or a name (`node1_total`)."""
    if column.name:
        return device.key.startswith(f"{column.name}_")
    return column.kind == device.kind


def _note_totals(log: ImportedLog, power: PowerTable, timed: bool) -> None:
    for column in power.plan.totals:
        series = next((s for (_, header), s in power.series.items() if header == column.header), None)
        if series is None or not len(series):
            continue
        devices = [d for d in log.devices if d.series and _is_part(d, column)] or log.devices
        total, parts = series.raw_mean() or 0.0, [d.series.raw_mean() or 0.0 for d in devices if d.series]
        equal = math.isclose(total, sum(parts), rel_tol=0.01)
        log.details["total_column"] = column.header
        log.details["total_equals_sum"] = equal
        if not equal and parts and math.isclose(total, statistics.fmean(parts), rel_tol=0.01):
            log.note("mean_left_out", f"{column.header!r} is the mean of the devices: left out")
        elif not equal:
            log.note(
                "total_differs",
                f"{column.header!r} averages {total:.6g} W, the devices {sum(parts):.6g} W: it is not their sum",
            )
