"""carbontracker's log (watts per epoch, before PUE) and its output (kWh of Actual blocks, after PUE)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import parse_span
from kdwatch.interop.values import NotANumber, number_or_none, parse_number

KWH_J = 3.6e6
EPOCH = re.compile(r"Epoch\s+(\d+)\s*:\s*$")
DURATION = re.compile(r"Duration:\s*(.+)$")
POWER = re.compile(r"Average power usage \(W\) for (\w+):\s*(.*)$")
BLOCK = re.compile(r"(Actual|Predicted) consumption(?: for (\d+) epoch\(?s?\)?)?\s*:", re.IGNORECASE)
FIELD = re.compile(r"^\s*(Time|Energy|CO2eq):\s*(.+?)\s*$")
PUE = re.compile(r"PUE(?: coefficient)?(?: of)?\D{0,20}?(\d+\.\d+)")
INTENSITY = re.compile(
    r"(?:during training was|current carbon intensity is|average carbon intensity\D*)\s*([\d.]+)\s*gCO2", re.I
)
ENERGY_UNITS = {"kwh": KWH_J, "wh": 3600.0, "mwh": 3.6e9, "j": 1.0, "kj": 1000.0}


@dataclass(slots=True)
class Tracked:
    """What the lines gave so far."""

    epochs: list[tuple[float, dict[str, float | None]]] = field(default_factory=list)
    """Seconds and watts by component of each epoch."""
    seconds: float | None = None
    watts: dict[str, float | None] = field(default_factory=dict)
    blocks: list[dict[str, float | int | str | None]] = field(default_factory=list)
    pue: float | None = None
    intensity: float | None = None

    def close_epoch(self) -> None:
        """End the epoch whose lines were read."""
        if self.seconds is not None:
            self.epochs.append((self.seconds, self.watts))
        self.seconds, self.watts = None, {}


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read either kind. Raises LogProblem where neither epochs with power nor an Actual block is there."""
    found = Tracked()
    rows = 0
    for line in source.short_lines():
        rows += bool(line.strip())
        _take(line, found)
    found.close_epoch()
    actual = [block for block in found.blocks if block["kind"] == "actual"]
    with_power = [epoch for epoch in found.epochs if any(w is not None for w in epoch[1].values())]
    log = ImportedLog(
        source.path, "carbontracker-log" if with_power else "carbontracker-output-log", source.encoding, rows=rows
    )
    if with_power:
        _from_epochs(log, found, with_power)
    elif actual:
        _from_blocks(log, found, actual)
    else:
        only = " and a predicted consumption, which is no measurement" if found.blocks else ""
        raise LogProblem(
            f"no epoch with power and no actual consumption; it has {rows} lines of carbontracker{only}",
            rows=rows,
            format=log.format,
        )
    predicted = [block for block in found.blocks if block["kind"] == "predicted"]
    log.details |= {"pue": found.pue, "carbon_intensity_g_per_kwh": found.intensity}
    if predicted:
        log.details["predicted"] = {k: v for k, v in predicted[-1].items() if k != "kind"}
        log.note("predicted_left_out", "the Predicted block is a forecast and is not counted")
    return log


def _take(line: str, found: Tracked) -> None:
    if match := BLOCK.search(line):
        epochs = int(match[2]) if match[2] else None
        found.blocks.append(
            {"kind": match[1].lower(), "epochs": epochs, "duration_s": None, "kwh": None, "g_co2e": None}
        )
    elif (match := FIELD.match(line)) and found.blocks:
        _block_field(found.blocks[-1], match[1], match[2])
    elif EPOCH.search(line):
        found.close_epoch()
    elif match := DURATION.search(line):
        found.seconds = parse_span(match[1])
    elif match := POWER.search(line):
        found.watts[match[1].lower()] = _watts(match[2])
    elif "PUE" in line and (match := PUE.search(line)):
        found.pue = float(match[1])
    if match := INTENSITY.search(line):
        found.intensity = number_or_none(match[1])


def _block_field(block: dict[str, float | int | str | None], name: str, text: str) -> None:
    if name == "Time":
        block["duration_s"] = parse_span(text)
        return
    try:
        value, unit = parse_number(text)
    except NotANumber:
        return
    if value is None or value < 0:
        return
    if name == "Energy":
        block["kwh"] = value * ENERGY_UNITS.get(unit, KWH_J) / KWH_J
    else:
        block["g_co2e"] = value * {"kg": 1000.0, "mg": 1e-3}.get(unit, 1.0)


def _watts(text: str) -> float | None:
    """`6.78`, `[6.78]`, `[120.5 118.2]` (summed) or `None`."""
    values = [number_or_none(part) for part in re.split(r"[\s,\[\]]+", text) if part]
    known = [value for value in values if value is not None and value >= 0]
    return math.fsum(known) if known else None


def _from_epochs(log: ImportedLog, found: Tracked, epochs: list[tuple[float, dict[str, float | None]]]) -> None:
    components = list(dict.fromkeys(name for _, watts in epochs for name in watts))
    log.duration_s = math.fsum(seconds for seconds, _ in epochs)
    for name in components:
        pairs = [(seconds, w) for seconds, watts in epochs if (w := watts.get(name)) is not None]
        energy = math.fsum(seconds * w for seconds, w in pairs) if pairs else None
        seconds = math.fsum(seconds for seconds, _ in pairs)
        kind = {"gpu": "gpu", "cpu": "cpu"}.get(name, "other")
        scope = {"gpu": "gpu", "cpu": "package"}.get(name, "component")
        mean = energy / seconds if energy is not None and seconds else None
        log.devices.append(LoggedDevice(name, kind, scope, energy_j=energy, duration_s=seconds, mean_w=mean))
        if energy is None:
            log.note("component_missing", f"{name} has no reading: unknown, not zero")
    for number, (seconds, watts) in enumerate(epochs, 1):
        energy_by = {name: None if watts.get(name) is None else seconds * (watts[name] or 0.0) for name in components}
        log.stages.append(LoggedStage(f"epoch {number}", "student", None, seconds, energy_by))
    log.total_j = math.fsum(d.energy_j for d in log.devices if d.energy_j is not None)
    log.n_gpus = None
    log.details |= {
        "epochs": len(epochs),
        "energy_j_no_pue": log.total_j,
        "energy_j_with_pue": log.total_j * found.pue if found.pue else None,
    }
    if found.intensity is not None:
        log.kg_co2e = log.total_j / KWH_J * found.intensity / 1000
        log.note("co2_before_pue", "kg of CO2e is energy before PUE times the intensity in the file")
    log.note("before_pue", "watts per epoch are before PUE; the consumption blocks of the same tool are after it")


def _from_blocks(log: ImportedLog, found: Tracked, actual: list[dict[str, float | int | str | None]]) -> None:
    def total(name: str) -> float | None:
        known = [float(v) for block in actual if isinstance(v := block[name], int | float)]
        return math.fsum(known) if known else None

    log.kwh, log.duration_s = total("kwh"), total("duration_s")
    grams = total("g_co2e")
    log.kg_co2e = grams / 1000 if grams is not None else None
    if log.kwh is None:
        raise LogProblem("an Actual block without energy", rows=log.rows, format=log.format)
    log.total_j = log.kwh * KWH_J
    mean = log.total_j / log.duration_s if log.duration_s else None
    log.devices.append(
        LoggedDevice(
            "all",
            "other",
            "component",
            "all components, PUE included",
            energy_j=log.total_j,
            duration_s=log.duration_s,
            mean_w=mean,
        )
    )
    for number, block in enumerate(actual, 1):
        kwh, seconds = block["kwh"], block["duration_s"]
        energy = kwh * KWH_J if isinstance(kwh, int | float) else None
        log.stages.append(
            LoggedStage(
                f"training {number}",
                "student",
                None,
                seconds if isinstance(seconds, int | float) else None,
                {"all": energy},
            )
        )
    log.details |= {"epochs": total("epochs"), "g_co2e": grams}
    shown = f"{found.pue:g}" if found.pue else "that the file does not name"
    log.note("includes_pue", f"the energy includes a PUE {shown}: not comparable with measured energy")
