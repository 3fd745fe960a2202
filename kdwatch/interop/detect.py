"""Which format a file is, from its content; names of files are not trusted."""

from __future__ import annotations

import re
from collections.abc import Callable

from kdwatch.interop.table import DELIMITERS, split

HEAD_LINES = 400
PROM_LINE = re.compile(
    r"^\s*[A-Za-z_:][A-Za-z0-9_:]*\{[^}]*\}\s+([-+0-9.eE]+|NaN|[+-]?Inf)(\s|$)|^\s*# (HELP|TYPE) [A-Za-z_:]"
)
DMON = re.compile(r"^\s*#\s*(Date[\s,]+)?(Time[\s,]+)?gpu(\s+[a-z]|,\s*(pwr|sm|fb|mclk|rxpci|sbecc|pviol)\b)")
"""The header of dmon, with blanks or (`--format csv`) commas."""
PERF_TEXT = re.compile(
    r"Performance counter stats for|\d\s+(Joules|<not counted>\s+Joules)\s+power/energy", re.IGNORECASE
)
PERF_CSV = re.compile(r"[,;:|\t](Joules|J)[,;:|\t]power/energy", re.IGNORECASE)
SPL = re.compile(r"^Time,\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d+,Watts,", re.MULTILINE)
CARBONTRACKER = re.compile(
    r"carbontracker version|Average power usage \(W\) for|CarbonTracker:|Actual consumption( for|:)"
)
UPOWER = re.compile(r"/org/freedesktop/UPower/|^\s*native-path:\s", re.MULTILINE)
SACCT = re.compile(r"\b(ConsumedEnergyRaw|ConsumedEnergy|AllocTRES|TRESUsageInTot)\b")
SACCT_JOBS = re.compile(
    r"^\W*JobID(Raw)?\b(?!.*(power|watt))(?=.*\b(JobName|Partition|NNodes)\b).*$", re.MULTILINE | re.I
)
"""A table of jobs without their energy: named as such."""

TRAINER_KEYS = re.compile(r'"(current_steps|step|loss|epoch|num_input_tokens_seen)"')

HEADERS: tuple[tuple[str, set[str]], ...] = (
    ("codecarbon-emissions-csv", {"project_name", "duration", "emissions", "energy_consumed"}),
    ("zeus-monitor-csv", {"start_time", "window_name", "elapsed_time"}),
    ("zeus-trace-summary-csv", {"power_limit", "time_per_epoch", "average_power"}),
    ("harness-stage-metrics-csv", {"stage_id", "gpu_energy_joules", "duration_seconds"}),
)


def detect(head: str) -> str:
    """The name of the format whose marks the first 64 KiB carry; `power-csv` where none does."""
    for name, test in TESTS:
        if test(head):
            return name
    return "power-csv"


def _document(head: str, *keys: str) -> bool:
    return head.lstrip().startswith(("{", "[")) and all(f'"{key}"' in head for key in keys)


def _json_format(head: str) -> str | None:
    text = head.lstrip()
    if not text.startswith(("{", "[")):
        return None
    if text.startswith("["):
        return None if re.match(r"\[\s*(\{|\d)", text) is None else "unknown-json"
    if _document(head, "log_history") or _document(head, "global_step", "best_metric"):
        return "trainer-state-json"
    if _document(head, "experiment_id", "stages") or _document(head, "experiment_name", "stages"):
        return "harness-summary-json"
    if _document(head, "stage_id", "gpu_energy_joules") or _document(head, "stage_id", "duration_seconds"):
        return "harness-stage-json"
    if _document(head, "nodes", "metadata"):
        return "perun-json"
    if '"counter-value"' in head and "energy" in head:
        return "perf-stat-csv"
    if "powerWatts" in head and ('"_timestamp"' in head or '"_runtime"' in head):
        return "wandb-events-jsonl"
    first = text.partition("\n")[0].rstrip()
    return "trainer-log-jsonl" if first.endswith("}") and TRAINER_KEYS.search(first) else "unknown-json"


def _table_header(head: str, wanted: set[str]) -> bool:
    for line in head.split("\n")[:50]:
        if all(name in line for name in wanted):
            for delimiter in DELIMITERS:
                if wanted <= set(split(line, delimiter)):
                    return True
    return False


def _is_dmon(head: str) -> bool:
    return any(DMON.match(line) for line in head.split("\n")[:HEAD_LINES])


def _is_pmon(head: str) -> bool:
    return any(re.match(r"^#.*\bgpu\s+pid\s+type\b", line) for line in head.split("\n")[:HEAD_LINES])


def _is_prometheus(head: str) -> bool:
    lines = [line for line in head.split("\n")[:HEAD_LINES] if line.strip()]
    return bool(lines) and sum(bool(PROM_LINE.match(line)) for line in lines) > len(lines) / 2


def _json_test(name: str) -> Callable[[str], bool]:
    return lambda head: _json_format(head) == name


def _header_test(wanted: set[str]) -> Callable[[str], bool]:
    return lambda head: _table_header(head, wanted)


JSON_FORMATS = (
    "harness-stage-json", "harness-summary-json", "trainer-log-jsonl", "trainer-state-json", "perun-json",
    "wandb-events-jsonl", "perf-stat-csv", "unknown-json",
)  # fmt: skip

TESTS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    *((name, _json_test(name)) for name in JSON_FORMATS),
    ("nvidia-smi-pmon", _is_pmon),
    ("nvidia-smi-dmon", _is_dmon),
    ("mlperf-ptdaemon-spl", lambda head: bool(SPL.search(head))),
    *((name, _header_test(wanted)) for name, wanted in HEADERS),
    ("intel-power-gadget-csv", lambda head: "Cumulative Processor Energy" in head or "System Time,RDTSC" in head),
    ("perf-stat-csv", lambda head: bool(PERF_CSV.search(head))),
    ("perf-stat-text", lambda head: bool(PERF_TEXT.search(head))),
    ("upower-text", lambda head: bool(UPOWER.search(head)) and "energy-rate:" in head),
    ("carbontracker", lambda head: bool(CARBONTRACKER.search(head))),
    ("prometheus-text", _is_prometheus),
    ("slurm-sacct", lambda head: bool(SACCT.search(head) or SACCT_JOBS.search(head))),
)
"""Tried in this order."""
