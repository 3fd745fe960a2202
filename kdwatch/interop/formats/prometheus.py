"""Prometheus or OpenMetrics text: dcgm-exporter and others. One scrape has no time and no energy; two have."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kdwatch.interop.formats.power_checks import MAX_DEVICE_W
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.spool import Spool
from kdwatch.interop.values import SENTINELS, number_or_none

LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?\s*(?:#.*)?$")
LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
NO_DRAW = re.compile(r"limit|mgmt|max|min|cap|threshold|violation|default|enforced|ratio|state|management", re.I)
COUNTERS = re.compile(r"(total_energy_consumption|energy_consumed|(?P<unit>milli|micro|u|m)?joules(_total)?$)", re.I)
DOMAIN = re.compile(r"_(dram|core|uncore|psys|platform|gpu)_joules")
"""Domains beside `package` in node_exporter's and Kepler's counters."""
DCGM_INSTANT = "DCGM_FI_DEV_POWER_USAGE_INSTANT"
GPU_WORDS = ("gpu", "dcgm", "nvidia", "amd_")


class Metric:
    """Readings of one metric of one device: by their time stamps, or by their number where the first has none."""

    def __init__(self) -> None:
        self.readings = Spool()
        self.stamped = True
        self.last = 0.0

    def __len__(self) -> int:
        return len(self.readings)

    def add(self, t: float | None, value: float) -> None:
        """Take a reading; one that has no time stamp among others that have is left out, and the other way round."""
        if not len(self):
            self.stamped = t is not None
        if (t is not None) == self.stamped:
            self.readings.add(float(len(self)) if t is None else t, value)
            self.last = value


@dataclass(slots=True)
class Scraped:
    """One device's readings."""

    labels: dict[str, str]
    power: dict[str, Metric] = field(default_factory=dict)
    counter: dict[str, Metric] = field(default_factory=dict)
    seen: dict[str, set[str]] = field(default_factory=dict)
    """By metric: its label texts in this scrape, or the time stamp of its newest sample."""

    def told_before(self, name: str, labels: str, stamp: str | None) -> bool:
        """Whether this scrape gave the metric of this device already, with other labels (a MIG slice, a pod)."""
        seen = self.seen.setdefault(name, set())
        if stamp is not None:
            self.seen[name] = {stamp}
            return stamp in seen
        if labels in seen:  # the next scrape begins
            seen.clear()
        seen.add(labels)
        return len(seen) > 1


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read one or more scrapes. Raises LogProblem where no metric is a power or an energy."""
    devices: dict[str, Scraped] = {}
    names: set[str] = set()
    uuids: set[str] = set()
    rows = bad = 0
    for line in source.short_lines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        rows += 1
        match = LINE.match(line.strip())
        if not match:
            bad += 1
            continue
        labels = dict(LABEL.findall(match[2] or ""))
        names.add(match[1])
        uuids |= {labels[name] for name in ("UUID", "uuid") if labels.get(name)}
        _take(devices, match, labels)
    log = ImportedLog(source.path, "prometheus-text", source.encoding, rows=rows)
    _leave_parts_out(log, devices)
    if not devices:
        shown = ", ".join(sorted(names)[:10]) or "no metrics"
        raise LogProblem(f"no power metric; it has {shown}", rows=rows, columns=sorted(names)[:100])
    if bad:
        log.note("malformed_rows", f"{bad} lines are no samples")
    for key, scraped in devices.items():
        log.devices.append(_device(log, key, scraped, options))
    _total(log, devices, uuids)
    return log


def _take(devices: dict[str, Scraped], match: re.Match[str], labels: dict[str, str]) -> None:
    name, text, stamp = match[1], match[3], match[4]
    factor, counter = _quantity(name)
    value = number_or_none(text)
    if factor is None or value is None or value < 0 or is_blank(value):
        return
    key = _key(labels)
    if domain := DOMAIN.search(name):
        key = f"{key}/{domain[1]}"
    scraped = devices.setdefault(key, Scraped(labels))
    store = scraped.counter if counter else scraped.power
    if counter and labels.get("mode"):
        name = f"{name}{{mode={labels['mode']}}}"
    if not scraped.told_before(name, match[2] or "", stamp):
        store.setdefault(name, Metric()).add(_seconds(stamp), value * factor)


def _leave_parts_out(log: ImportedLog, devices: dict[str, Scraped]) -> None:
    """Cores, uncore, RAPL's GPU and the platform repeat the energy of a package that is there too."""
    if not any("_package_" in name for scraped in devices.values() for name in scraped.counter):
        return
    repeats = ("/core", "/uncore", "/psys", "/platform")
    parts = [
        key
        for key, scraped in devices.items()
        if key.endswith(repeats) or (key.endswith("/gpu") and any("rapl" in name for name in scraped.counter))
    ]
    for key in parts:
        del devices[key]
    if parts:
        log.note("parts_left_out", f"{', '.join(parts)[:200]} repeat the energy of a package: left out")


def is_blank(value: float) -> bool:
    """Whether a value is one of DCGM's blanks: 2^31 - 16 and the 15 above it, 2^47 and 2^63 - 16 and a little more."""
    return 2**31 - 16 <= value < 2**31 or 2**47 <= value < 2**47 + 16 or value >= 2**63 - 1024 or value in SENTINELS


def _quantity(name: str) -> tuple[float | None, bool]:
    """Factor to watts or joules, and whether the metric is an energy counter; None for other metrics."""
    lowered = name.lower()
    if NO_DRAW.search(lowered):
        return None, False
    if "dcgm_fi_dev_total_energy_consumption" in lowered:
        return 1e-3, True
    if match := COUNTERS.search(lowered):
        return {"milli": 1e-3, "m": 1e-3, "micro": 1e-6, "u": 1e-6}.get(match["unit"] or "", 1.0), True
    if "power" in lowered or lowered.endswith("watts"):
        return 1e-3 if "milliwatt" in lowered else 1e-6 if "microwatt" in lowered else 1.0, False
    return None, False


def _key(labels: dict[str, str]) -> str:
    """UUID first; a bare gpu number only together with its host."""
    uuid = labels.get("UUID") or labels.get("uuid")
    host = _host(labels)
    if uuid:
        return uuid
    number = (
        labels.get("gpu")
        or labels.get("device")
        or labels.get("index")
        or labels.get("minor_number")
        or labels.get("zone")
    )
    parts = [part for part in (host, number or labels.get("package") or labels.get("domain")) if part]
    return "/".join(parts) or "0"


def _host(labels: dict[str, str]) -> str | None:
    return next((labels[name] for name in ("Hostname", "hostname", "instance", "node") if labels.get(name)), None)


def _seconds(stamp: str | None) -> float | None:
    value = number_or_none(stamp)
    return None if value is None else value / 1000 if value >= 1e11 else value


def _device(log: ImportedLog, key: str, scraped: Scraped, options: ImportOptions) -> LoggedDevice:
    labels = scraped.labels
    gpu = any(word in name.lower() for name in (*scraped.power, *scraped.counter, *labels) for word in GPU_WORDS)
    kind = (
        "gpu"
        if gpu
        else "dram"
        if key.endswith("/dram")
        else "cpu"
        if "package" in key.lower() or "rapl" in "".join(scraped.counter)
        else "other"
    )
    device = LoggedDevice(
        key, kind, kind if kind in ("gpu", "dram") else "package", labels.get("modelName") or labels.get("name")
    )
    device.host = _host(labels)
    names = sorted(scraped.power, key=lambda name: (name == DCGM_INSTANT, "average" in name.lower(), name))
    if len(names) > 1:
        log.note("more_power_columns", f"device {key}: {names[0]} counts, not {', '.join(names[1:])}")
    if names:
        _power(log, device, scraped.power[names[0]], options)
    metrics: dict[str, list[Metric]] = {}
    for name, values in scraped.counter.items():
        metrics.setdefault(name.partition("{")[0], []).append(values)
    counters = list(metrics)
    if len(counters) > 1:
        log.note("more_counters", f"device {key}: {counters[0]} counts, not {', '.join(counters[1:])}")
    if counters:
        _counter(log, device, metrics[counters[0]], options)
    return device


def _power(log: ImportedLog, device: LoggedDevice, metric: Metric, options: ImportOptions) -> None:
    series, step = PowerSeries(), options.interval_s or 1.0
    for times, watts in metric.readings.sorted_blocks():
        series.extend(times if metric.stamped else [number * step for number in times], watts)
    timed = (metric.stamped or options.interval_s is not None) and len(metric) > 1
    device.series = series
    device.stats = series.stats(timed)
    device.details["power_w"] = metric.last
    if timed:
        log.time_kind = "epoch" if metric.stamped else "elapsed"
        device.energy_j = device.stats.energy_j


def _counter(log: ImportedLog, device: LoggedDevice, modes: list[Metric], options: ImportOptions) -> None:
    """The rise of a counter, or of several that add up (Kepler's `mode`: dynamic and idle)."""
    device.details["energy_counter_j"] = math.fsum(metric.last for metric in modes)
    if len(modes) > 1:
        log.note("modes_added", f"device {device.key}: the energy of {len(modes)} modes (dynamic, idle) is added")
    if min(map(len, modes)) < 2:
        return
    rises = [_rise(metric) for metric in modes]
    if any(rise is None for rise in rises):
        log.note("counter_reset", f"device {device.key}: the energy counter falls (a restart?): its rise is unknown")
        return
    known = [rise for rise in rises if rise is not None]
    device.energy_j = math.fsum(joules for joules, _ in known)
    if modes[0].stamped:
        device.duration_s = known[0][1]
        log.time_kind = "epoch"
    elif options.interval_s is not None:
        device.duration_s = known[0][1] * options.interval_s
    device.mean_w = device.energy_j / device.duration_s if device.duration_s else device.mean_w
    if device.mean_w is not None and device.mean_w > MAX_DEVICE_W:
        text = f"device {device.key}: the counter rises by {device.mean_w:.0f} W on average, more than a device draws"
        log.note("implausible_power", text)


def _rise(metric: Metric) -> tuple[float, float] | None:
    """Joules and seconds (or scrapes) from the first reading to the last; None where the counter falls."""
    first: tuple[float, float] | None = None
    t, last = 0.0, -math.inf
    for t, joules in metric.readings.sorted_pairs():
        if joules < last:
            return None
        first, last = first or (t, joules), joules
    assert first is not None
    return last - first[1], t - first[0]


def _total(log: ImportedLog, devices: dict[str, Scraped], uuids: set[str]) -> None:
    with_power = [d for d in log.devices if d.stats and d.stats.n_samples]
    log.n_gpus = sum(d.kind == "gpu" for d in log.devices)
    known = [d.energy_j for d in log.devices if d.energy_j is not None]
    log.total_j = sum(known) if known else None
    spans = [s for d in log.devices if (s := d.duration_s or (d.stats.duration_s if d.stats else None)) is not None]
    log.duration_s = max(spans, default=None)
    log.details |= {
        "n_gpus_with_power": sum(d.kind == "gpu" for d in with_power),
        "power_w": sum(d.details["power_w"] for d in with_power) if with_power else None,
        "energy_counter_j": sum(c for d in log.devices if (c := d.details.get("energy_counter_j")) is not None) or None,
        "distinct_uuids": len(uuids),
    }
    if log.total_j is None and any(d.stats.n_samples > 1 for d in with_power if d.stats and "power_w" in d.details):
        log.note(
            "no_time", "several readings without times: energy is unknown; give --interval SECONDS between scrapes"
        )
    elif log.total_j is None and not any(note.code == "counter_reset" for note in log.notes):
        log.note("one_scrape", "one scrape gives power and a counter, not energy: a second scrape is needed")
    elif len(known) < len(log.devices):
        log.note("partial_total", "the total leaves out devices with one reading only")
