"""The built-in stage `prerun`: are the sensors and the machine what the recipe takes them for?

Run as `python -m kdwatch.stages.prerun`. Lists sensors, holds the hardware against `expect`, measures the idle
baseline, puts on a load, and compares each energy counter with integrated power. Imports no torch.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from pydantic import ValidationError

from kdwatch import progress
from kdwatch.meters.base import Device
from kdwatch.meters.cpu_time import CpuTime, machine_cpu_time
from kdwatch.meters.discover import Discovery, discover
from kdwatch.meters.nvml import NvmlMeter
from kdwatch.meters.trial import Trial, try_meter
from kdwatch.stages.prerun_checks import MISMATCH, differences, mismatch, sampling_line, this_host
from kdwatch.stages.prerun_load import CpuLoad, GpuLoad
from kdwatch.stages.prerun_settings import PrerunSettings

QUIET_SHARE = 0.25
"""CPUs busier than this are not idle."""


def main() -> int:
    """Exit status of the stage: 0, 1 where the hardware is not what `expect` says, 2 for bad settings."""
    try:
        settings = PrerunSettings.model_validate(progress.stage_config().get("settings") or {})
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        print(f"prerun: with.{where}: {first['msg']}", file=sys.stderr)
        return 2
    progress.phase("work")
    found = discover()
    try:
        return Prerun(found, settings).run()
    finally:
        found.close()


class Prerun:
    """One pass over the sensors that were found."""

    def __init__(self, found: Discovery, settings: PrerunSettings) -> None:
        self.found = found
        self.settings = settings
        self.devices: list[Device] = [d for m in found.meters for d in m.devices]

    def run(self) -> int:
        """All steps; returns the exit status."""
        for sensor in self.found.sensors:
            print(f"{sensor.stream}: {sensor.status}: {sensor.text}" + (f" -> {sensor.fix}" if sensor.fix else ""))
        for device in self.devices:
            print(f"{device.key}: {device.name}, {device.scope}, {device.source}")
        wrong = differences(self.settings.expect, self.devices, this_host())
        for line in wrong:
            print(f"prerun: {line}", file=sys.stderr)
        if wrong:
            return 1
        if self.settings.idle_s > 0:
            self.baseline()
        if self.settings.seconds > 0:
            self.burn_in()
        return 0

    def baseline(self) -> None:
        """Measure idle power and report it, unless something runs on a GPU; CPUs that are busy are left out."""
        busy = sorted({p for m in self.found.meters if isinstance(m, NvmlMeter) for p in m.foreign_pids()})
        if busy:
            text = f"no idle baseline: process {', '.join(map(str, busy))} uses a GPU"
            print(text)
            progress.warning("baseline_refused", text)
            return
        before = machine_cpu_time()
        trials = self._try_all(self.settings.idle_s)
        share = busy_share(before, machine_cpu_time())
        idle = {t.key: w for t in trials if (w := idle_power(t)) is not None}
        if share is not None and share > QUIET_SHARE:
            text = f"no idle baseline of the CPU: {share:.0%} busy"
            progress.warning("baseline_refused", text)
            print(text)
            idle = {d.key: idle[d.key] for d in self.devices if d.key in idle and d.kind not in ("cpu", "dram")}
        if idle:
            progress.emit("baseline", idle_w={k: round(w, 3) for k, w in idle.items()}, duration_s=self.settings.idle_s)
            print("idle: " + ", ".join(f"{k} {w:.1f} W" for k, w in idle.items()))

    def burn_in(self) -> None:
        """Load everything, then compare counters with integrated power and report the rates."""
        seconds = self.settings.seconds
        load = GpuLoad(seconds) if self.settings.gpu_load and self._has_gpu() else None
        try:
            if load is not None and load.ready():
                load.begin()
            elif load is not None:
                print(f"no load on the GPUs: {load.problem}")
            with CpuLoad() as cpu:
                trials = self._try_all(seconds)
            print(f"CPU load: {sum(cpu.blocks)} MiB hashed by {len(cpu.blocks)} threads in {seconds:g} s")
        finally:
            if load is not None:
                load.close()
        for device, trial in zip(self.devices, trials, strict=True):
            self._judge(device, trial)

    def _judge(self, device: Device, trial: Trial) -> None:
        if device.source == "estimated":
            return
        print(sampling_line(device, trial))
        off = mismatch(trial, self.settings.seconds)
        if off is None:
            return
        print(f"{device.key}: counter {off:+.1%} of integrated power")
        if abs(off) > MISMATCH:
            text = f"{device.key}: energy counter differs by {off:+.1%} from integrated power under load"
            progress.warning("counter_mismatch", text)

    def _has_gpu(self) -> bool:
        return any(isinstance(m, NvmlMeter) for m in self.found.meters)

    def _try_all(self, seconds: float) -> list[Trial]:
        """Try all meters at the same time; in the order of `devices`."""
        if not self.found.meters:
            time.sleep(seconds)
            return []
        with ThreadPoolExecutor(len(self.found.meters)) as pool:
            return [t for trials in pool.map(lambda m: try_meter(m, seconds), self.found.meters) for t in trials]


def idle_power(trial: Trial) -> float | None:
    """Mean power of a trial: by the counter, else by the samples."""
    return trial.counter_w if trial.counter_w is not None else trial.mean_power_w


def busy_share(before: CpuTime | None, after: CpuTime | None) -> float | None:
    """Share of all CPUs' time between two readings that was busy."""
    if before is None or after is None or after.total_s <= before.total_s:
        return None
    return (after.busy_s - before.busy_s) / (after.total_s - before.total_s)


if __name__ == "__main__":
    raise SystemExit(main())
