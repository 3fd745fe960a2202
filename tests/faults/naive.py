"""What other tools do or did, each way as short as it gets: wrong on purpose.

A fault's test asks our code and one of these for the same input and asserts that this answer is wrong. The numbers are
those of fault_table.py.
"""

from __future__ import annotations

import atexit
import csv
import json
import math
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

MICRO = 1e-6
U64_J = 2**64 * MICRO
"""Range of a 64-bit counter of microjoules."""
U32_J = 2**32 * MICRO


# energy from counters


def last_minus_first(counter: Sequence[float]) -> float:
    """2, 7, 11, 31, 33, 34: read at the start and at the stop, and subtract."""
    return counter[-1] - counter[0]


def steps(counter: Sequence[float]) -> list[float]:
    """3, 52: energy of each interval, a wrap among them."""
    return [b - a for a, b in pairwise(counter)]


def rises_only(counter: Sequence[float]) -> float:
    """8, 41: a fall is noise and dropped, with the interval's energy; any rise is energy."""
    return sum(max(0.0, step) for step in steps(counter))


def unwrap(counter: Sequence[float], range_j: float) -> float:
    """9, 10: a fall is a wrap of the range that the tool knows, whatever the power would be."""
    return sum(step if step >= 0 else step + range_j for step in steps(counter))


def sum_then_unwrap(zones: Iterable[Sequence[float]], range_j: float) -> float:
    """5: start and stop of all zones added up, then one range added where that fell."""
    ends = [(zone[0], zone[-1]) for zone in zones]
    return unwrap([sum(first for first, _ in ends), sum(last for _, last in ends)], range_j)


def extrapolated(counter: Callable[[float], float], at: float, window_s: float, whole_s: float) -> float:
    """19: the power of a short window, held for the whole interval."""
    return (counter(at + window_s) - counter(at)) / window_s * whole_s


def first_power(value_j: float, dt: float, before: float = 0.0) -> float:
    """25: the value before the first one is what the variable happened to hold."""
    return (value_j - before) / dt


def accumulator_joules(steps_of_counter: float) -> float:
    """45: the accumulator's steps are taken for microjoules."""
    return steps_of_counter * MICRO


def millijoules_as_joules(joules: float) -> float:
    """44: NVML's number given out with the unit of another."""
    return joules * 1000.0


# energy from power


def trapezoid(times: Sequence[float], watts: Sequence[float]) -> float:
    """30, 41, 46: straight lines between all samples, whatever they are a mean of, and 0 W as power."""
    return sum((b - a) * (v + w) / 2 for (a, v), (b, w) in pairwise(zip(times, watts, strict=True)))


def each_reading_is_a_period(watts: Sequence[float], period_s: float) -> float:
    """42: every reading stands for one period of the sensor, repeats too."""
    return sum(watts) * period_s


def mean_over_boards(energies: Sequence[float]) -> float:
    """46, 74: boards flattened into one mean."""
    return sum(energies) / len(energies)


def last_sample(watts: Sequence[float]) -> float:
    """73: a stage's power is the newest reading."""
    return watts[-1]


def ratio(a: float, b: float) -> float:
    """56: a / b as IEEE has it."""
    return a / b if b else math.copysign(math.inf, a) if a else math.nan


def net(gross_j: float, idle_w: float, seconds: float) -> float:
    """75: idle taken off whatever it was learned under."""
    return gross_j - idle_w * seconds


# zones of a powercap tree


def every_zone(root: Path) -> dict[str, float]:
    """13, 14, 18, 20: each directory that has a counter, in joules; one that cannot be read ends it."""
    found = {}
    for zone in sorted(p for p in root.rglob("*") if ":" in p.name and p.is_dir()):
        found[zone.name] = int((zone / "energy_uj").read_text()) * MICRO
    return found


def top_level_zones(root: Path) -> dict[str, float]:
    """15, 17: the packages' own directories, without what lies below."""
    return {p.name: int((p / "energy_uj").read_text()) * MICRO for p in sorted(root.glob("intel-rapl:?"))}


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """13 to 18, 23: all growth added up; of nothing it is 0."""
    return float(sum(after[name] - before[name] for name in before))


def zones_by_class_path(root: Path) -> list[Path]:
    """21: one layout, the one of the author's machine."""
    return sorted((root / "intel-rapl").glob("intel-rapl:?/energy_uj"))


def zero_where_unreadable(root: Path) -> dict[str, float]:
    """22: links are counted as zones; a file that cannot be read is 0 J."""
    found = {}
    for link in sorted(root.glob("intel-rapl:*")):
        try:
            found[link.name] = int((link / "energy_uj").read_text()) * MICRO
        except OSError:
            found[link.name] = 0.0
    return found


@contextmanager
def helper_for_each_file(paths: Iterable[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """26: one process for each counter's file, for as long as the tool lives."""
    helpers = [subprocess.Popen(["tail", "-f", str(path)], stdout=subprocess.DEVNULL) for path in paths]
    try:
        yield helpers
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()


# boards


def said_of_failures(values: Iterable[float | None], suppress: bool) -> list[str]:
    """28: a reading that fails is passed over in silence, or named each time."""
    return [] if suppress else ["counter not supported" for value in values if value is None]


def int_indices(visible: str) -> list[int]:
    """36: CUDA_VISIBLE_DEVICES as a list of numbers."""
    return [int(token) for token in visible.split(",")]


def boards_by_stripped_uuid(visible: str, uuids: Sequence[str]) -> list[str]:
    """37: `lstrip` takes letters, not a prefix."""
    return [uuid for uuid in uuids if uuid.lstrip("GPU-") and uuid == visible.lstrip("GPU-")]


@contextmanager
def always_polling(poll: Callable[[], object], period_s: float = 0.005) -> Iterator[None]:
    """40: a monitor that polls from its start to its end."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(period_s):
            poll()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def has_counter(capability: int) -> bool:
    """43: from the architecture, as the documentation says."""
    return capability >= 70


# windows, shares, processes


class SwappedBuffer:
    """48: what was added between copying and clearing is lost."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def take(self, meanwhile: Callable[[], object] = lambda: None) -> list[Any]:
        taken = list(self.items)
        meanwhile()
        self.items.clear()
        return taken


class OneBaseline:
    """50: a second start is a no-op. 51: a push to a live view moves the baseline."""

    def __init__(self) -> None:
        self.baseline_j: float | None = None

    def start(self, counter_j: float) -> None:
        if self.baseline_j is None:
            self.baseline_j = counter_j

    def push(self, counter_j: float) -> float:
        assert self.baseline_j is not None
        pushed, self.baseline_j = counter_j - self.baseline_j, counter_j
        return pushed

    def stop(self, counter_j: float) -> float:
        assert self.baseline_j is not None
        return counter_j - self.baseline_j


def sum_of_trees(cpu_s: Callable[[Sequence[int]], float], pids: Sequence[int]) -> float:
    """54: each process with all below it, whoever else was counted with it."""
    return sum(cpu_s([pid]) for pid in pids)


def everything_in_each_window(windows: Sequence[tuple[float, float]], watts: float) -> float:
    """55: each stage gets all of the device while it runs."""
    return sum((end - start) * watts for start, end in windows)


def share_of_one_core(cpu_s: float, seconds: float) -> float:
    """57: per cent of one core, taken for a share of the machine."""
    return cpu_s / seconds


def wall_seconds(first: float, last: float) -> float:
    """70: duration by the clock on the wall."""
    return last - first


def told_after_the_stage(start_s: float, stage_s: float) -> float:
    """71: the budget is looked at when a stage is over."""
    return start_s + stage_s


def own_handlers() -> None:
    """58, 59: a lock that cleans up after itself by taking the program's signals."""
    signal.signal(signal.SIGTERM, lambda *_: None)


def written_at_exit(path: Path) -> None:
    """58: the result is written by a clean-up, which os._exit and a kill skip."""
    atexit.register(path.write_text, "result")


def only_instance(lock: Path) -> None:
    """60: the second one on a host fails."""
    lock.touch(exist_ok=False)


class ThreadSampler:
    """61: a sampler within the program that it measures."""

    def __init__(self, period_s: float) -> None:
        self.times: list[float] = []
        self._period_s = period_s
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self.times.append(time.monotonic())
            time.sleep(self._period_s)


def monitored(command: Callable[[], int], monitor: Callable[[], object]) -> int:
    """72: a fault of the monitor ends the program, with a code of the monitor's."""
    try:
        monitor()
    except Exception:
        raise SystemExit(70) from None
    return command()


# output, carbon, clusters


def last_row(path: Path) -> list[str]:
    """62: there is always one."""
    return list(csv.reader(path.read_text().splitlines()))[-1]


def parsed_lines(content: bytes) -> list[Any]:
    """62: every line is whole."""
    return [json.loads(line) for line in content.splitlines()]


def by_position(names: Sequence[str], line: str) -> dict[str, float]:
    """63: columns are where they were when the program was written."""
    return dict(zip(names, map(float, line.split(",")), strict=False))


def emissions_kg(kwh: float, g_per_kwh: float) -> float:
    """65: grams under a label of kilograms."""
    return kwh * g_per_kwh


WORLD_G_PER_KWH = 475.0
CANADA_G_PER_KWH = 170.043


def world_mean_kg(kwh: float, region: str | None) -> float:
    """66: one factor for all, and no word of it in the result."""
    return kwh * WORLD_G_PER_KWH / 1000


def guessed_country_kg(kwh: float, region: str | None) -> float:
    """67: a place that could not be found is Canada."""
    return kwh * (CANADA_G_PER_KWH if region is None else WORLD_G_PER_KWH) / 1000


def job_memory_gb(scontrol: str, node_gb: float) -> float:
    """68: gigabytes or nothing; nothing is the whole node."""
    found = re.search(r"mem=(\d+)G", scontrol)
    return float(found[1]) if found else node_gb


def every_rank_the_machine(machine_j: float, ranks: int) -> float:
    """69: each rank writes what the whole machine used, and readers add up."""
    return sum(machine_j for _ in range(ranks))
