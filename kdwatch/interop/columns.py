"""What a column of a power log is, from its name alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdwatch.interop.values import JOULES, WATTS

POWER_WORDS = {"power", "watt", "watts", "pwr", "wattage"}
NOT_A_DRAW = {
    "limit", "limits", "management", "mgmt", "cap", "caps", "capping", "max", "min", "maximum", "minimum", "peak",
    "default", "enforced", "requested", "tdp", "state", "factor", "mode", "plan", "pl1", "pl2", "pl4", "source",
    "status", "cost", "price", "saving", "violation", "target", "budget", "rating", "psyspl1", "psyspl2", "supply",
    "std", "threshold", "profile", "smoothing", "throttle", "slowdown", "reason", "reasons", "headroom",
    "efficiency", "performance", "ratio", "pct", "percent", "percentage",
}  # fmt: skip
TOTAL_WORDS = {
    "total", "sum", "all", "overall", "combined", "aggregate", "aggregated",
    "summe", "gesamt", "gesamtleistung", "somme", "suma", "totale", "totaal",
}  # fmt: skip
ENERGY_WORDS = {"energy", "joules", "joule", "kwh", "wh", "mwh"}
TIME_NAMES = (
    "timestamp", "datetime", "time", "epoch", "ts", "unix", "elapsed", "date", "seconds", "sec", "secs", "clock", "t",
)  # fmt: skip
NOT_A_TIME = {"per", "window", "runtime", "utilization", "step", "compute", "zone", "run", "train", "gpu", "cpu"}
KEY_NAMES = (
    "uuid", "pci.bus_id", "index", "gpu", "gpu_id", "serial", "device", "card", "minor_number", "socket", "component",
)  # fmt: skip
KEY_ALIASES = {
    "gpu_uuid": "uuid", "gpu.uuid": "uuid", "device_uuid": "uuid", "gpu_bus_id": "pci.bus_id",
    "pci_bus_id": "pci.bus_id", "bus_id": "pci.bus_id", "pci": "pci.bus_id", "pci.bus": "pci.bus_id",
    "gpu_index": "index", "idx": "index", "gpu_idx": "index", "device_index": "index", "gpuid": "gpu_id",
    "gpu_number": "gpu_id",
    "gpu_num": "gpu_id", "device_id": "device", "dev": "device", "device_number": "device", "gpu_serial": "serial",
    "card_id": "card", "socket_id": "socket", "sensor": "component", "domain": "component",
}  # fmt: skip
HOST_NAMES = {"host", "hostname", "node", "nodename", "node_name", "server", "machine"}
NAME_NAMES = {"name", "gpu_name", "device_name", "model", "gpu_model", "product_name"}
AVERAGING = {"average", "avg", "mean", "instant", "instantaneous", "current", "inst"}
FILLER = POWER_WORDS | AVERAGING | {
    "w", "mw", "uw", "kw", "draw", "usage", "consumption", "value", "gpu", "device", "dev", "reading", "socket", "in",
    "input", "milliwatts", "microwatts", "kilowatts", "usg", "node", "system",
}  # fmt: skip
KINDS = {
    "gpu": ({"gpu", "graphics", "nvidia", "amd", "cuda"}, "gpu"),
    "cpu": ({"cpu", "pkg", "package", "processor", "core", "cores"}, "package"),
    "dram": ({"dram", "ram", "memory"}, "dram"),
    "node": (
        {"node", "system", "wall", "chassis", "server", "psu", "bmc", "ipmi", "machine", "psys", "platform"},
        "node",
    ),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its place, its name as written, and what it holds."""

    place: int
    header: str
    role: str
    """`time`, `date`, `key`, `host`, `name`, `power`, `energy`, `other` or `bare` (`GPU0`: power if nothing is)."""
    name: str
    """For a key: one of KEY_NAMES. For power: the device's name without the words for power ("" if nothing is left)."""
    unit: str = ""
    factor: float | None = None
    """To watts (power) or joules (energy); None where the header gives no unit."""
    total: bool = False
    kind: str | None = None


def plain(header: str) -> str:
    """A header in lower case, without quotes, brackets and outer blanks."""
    text = header.strip().strip('"\ufeff').strip().lower()
    return re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", text).strip()


def tokens_of(text: str) -> list[str]:
    """Words of a name, digits split off the words `gpu`, `node` and the like."""
    text = re.sub(r"\b(gpu|card|dev|device|cpu|socket|package|power)(\d+)", r"\1 \2", text.replace("_", " "))
    text = re.sub(r"\b(gpu|cpu)?(power)(draw|usage|consumption|watts?|mw|w)?\b", r"\1 \2 \3", text)
    return [token for token in re.split(r"[^a-z0-9µ]+", text) if token]


def classify(place: int, header: str) -> Column:
    """The role of one column by its header."""
    name = plain(header)
    bracket = re.search(r"[\[(]\s*([^\])]*?)\s*[\])]\s*$", header)
    unit = (bracket[1] if bracket else "").lower()
    words = tokens_of(name)
    dotted = re.sub(r"[\s-]+", "_", name)
    if dotted in HOST_NAMES:
        return Column(place, header, "host", dotted)
    if dotted in NAME_NAMES:
        return Column(place, header, "name", dotted)
    if dotted in KEY_NAMES or dotted in KEY_ALIASES:
        return Column(place, header, "key", KEY_ALIASES.get(dotted, dotted))
    if time := _time_rank(name, words):
        return Column(place, header, "date" if time == "date" and dotted == "date" else "time", time, unit)
    return _quantity(place, header, words, unit)


def _time_rank(name: str, words: list[str]) -> str | None:
    if set(words) & (NOT_A_TIME | POWER_WORDS | ENERGY_WORDS):
        return None
    return next((t for t in TIME_NAMES if t in words), None) if len(words) <= 4 and name else None


def _quantity(place: int, header: str, words: list[str], unit: str) -> Column:
    tail = words[-1] if words else ""
    found = set(words)
    other = Column(place, header, "other", " ".join(words), unit)
    if found & NOT_A_DRAW or unit == "%":
        return other
    if found & ENERGY_WORDS or unit in JOULES:
        return _energy(place, header, words, unit or tail)
    written = unit if unit in WATTS else next((w for w in reversed(words[1:]) if w in WATTS), "")
    only_gpu = len(words) == 2 and words[0] == "gpu" and words[1].isdigit() and not unit
    if (unit and unit not in WATTS) or not (found & POWER_WORDS or written or only_gpu):
        return other
    kind = next((k for k, (names, _) in KINDS.items() if found & names), None)
    label = "_".join(word for word in words if word not in FILLER | TOTAL_WORDS)
    factor = WATTS.get(written) or (1.0 if found & {"watts", "watt", "wattage"} else None)
    role = "bare" if only_gpu else "power"
    return Column(place, header, role, label, written, factor, bool(found & TOTAL_WORDS), kind)


def _energy(place: int, header: str, words: list[str], unit: str) -> Column:
    kind = next((k for k, (names, _) in KINDS.items() if set(words) & names), None)
    skip = FILLER | TOTAL_WORDS | ENERGY_WORDS | set(JOULES) | {"cumulative", "counter", "consumed", "accumulated"}
    label = "_".join(word for word in words if word not in skip)
    return Column(
        place, header, "energy", label, unit, JOULES.get(unit), "cumulative" not in words and "total" in words, kind
    )


def nvidia_smi_fields(headers: list[str]) -> int:
    """How many headers are dotted field names of `nvidia-smi --help-query-gpu`."""
    known = re.compile(
        r"^(memory|utilization|temperature|clocks|power|fan|ecc|pcie|pci|driver|compute|encoder|display|persistence|"
        r"enforced|mig|gsp|clocks_event_reasons|clocks_throttle_reasons)[._][a-z_.0-9]+$|^pstate$"
    )
    return sum(bool(known.match(plain(h)) and "." in h) or plain(h) == "pstate" for h in headers)
