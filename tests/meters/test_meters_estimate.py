"""Estimates where nothing can be measured. Right values are CodeCarbon's formulas on CPU time that the test sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import naive
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.meters import models
from kdwatch.meters.base import Reading
from kdwatch.meters.cpu_time import CpuTime, machine_cpu_time
from kdwatch.meters.discover import discover
from kdwatch.meters.estimate import EstimateMeter, cpu_load_w, process_share_j
from kdwatch.meters.models import NoModel, PowerModel, power_model
from kdwatch.meters.processes import process, tree, tree_cpu_s

MODEL = PowerModel("3.3.2", "Test CPU", 100.0, True, 1, 4, 20.0)


class Machine:
    """Time and CPU time as the test wants them: four CPUs."""

    def __init__(self) -> None:
        self.t = 0.0
        self.busy_s = 0.0

    def run(self, seconds: float, load: float) -> None:
        self.t += seconds
        self.busy_s += seconds * load * 4

    def cpu(self) -> CpuTime | None:
        return CpuTime(self.busy_s, self.t * 4)

    def meter(self, **arguments) -> EstimateMeter:
        return EstimateMeter(MODEL, clock=lambda: self.t, cpu_clock=self.cpu, **arguments)


def by_key(readings) -> dict[str, Reading]:
    return {r.key: r for r in readings}


@pytest.mark.parametrize(("load", "watts"), [(0.0, 10.0), (0.5, 21.25), (1.0, 100.0)])
def test_the_machine_model(load: float, watts: float) -> None:
    """P = TDP (0.1 + 0.9 load^3): 100 W TDP."""
    assert cpu_load_w(100.0, load) == pytest.approx(watts)
    machine = Machine()
    meter = machine.meter()
    meter.poll()
    for _ in range(10):
        machine.run(1.0, load)
        readings = by_key(meter.poll())
    assert readings["cpu0"].counter_j == pytest.approx(10 * watts)
    assert readings["cpu0"].power_w == pytest.approx(watts)
    assert readings["ram"].counter_j == pytest.approx(200.0) and readings["ram"].power_w == 20.0


def test_the_model_is_codecarbons(own_home: Path) -> None:
    """The installed CodeCarbon's own code gives the same watts; asked in a process of its own."""
    code = (
        "from codecarbon.external.hardware import CPU; import sys, json\n"
        "cpu = CPU(output_dir='', mode='cpu_load', model='x', tdp=100, tracking_mode='machine')\n"
        "out = []\n"
        "for load in (0, 20, 50, 90, 100):\n"
        "    cpu._cpu_load_meter.percent = lambda *a, load=load: float(load)\n"
        "    out.append(cpu._get_power_from_cpu_load().W)\n"
        "print(json.dumps(out))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"this CodeCarbon is built differently: {done.stderr.strip().splitlines()[-1]}")
    assert [cpu_load_w(100.0, x) for x in (0, 0.2, 0.5, 0.9, 1.0)] == pytest.approx(
        json.loads(done.stdout.splitlines()[-1])
    )


def test_devices_say_estimated_with_model_and_tdp() -> None:
    cpu, ram = Machine().meter().devices
    assert (cpu.key, cpu.id, cpu.kind, cpu.scope, cpu.source) == ("cpu0", "estimate:cpu", "cpu", "machine", "estimated")
    assert cpu.details["tdp_w"] == 100.0 and cpu.details["tdp_source"] == "codecarbon 3.3.2: cpu_power.csv"
    assert (ram.key, ram.kind, ram.source) == ("ram", "ram_estimated", "estimated")
    assert ram.details["power_w"] == 20.0


def test_an_unknown_cpu_says_where_its_tdp_came_from() -> None:
    unknown = PowerModel("3.3.2", "AMD EPYC", 8.0, False, 1, 2, 20.0)
    assert unknown.tdp_source == "codecarbon 3.3.2: CPU not in cpu_power.csv, 4 W a thread assumed"


@given(st.lists(st.tuples(st.floats(0.001, 5.0), st.floats(0.0, 1.0)), min_size=1, max_size=40))
def test_energy_never_falls_and_stays_within_the_model(steps: list[tuple[float, float]]) -> None:
    """Law: however polls are spaced, energy is non-decreasing and between 10 % and 100 % of TDP times time."""
    machine = Machine()
    meter = machine.meter(with_ram=False)
    last = meter.poll()[0].counter_j
    first = last
    for seconds, load in steps:
        machine.run(seconds, load)
        now = meter.poll()[0].counter_j
        assert now >= last
        last = now
    assert 10.0 * machine.t * 0.999 <= last - first <= 100.0 * machine.t * 1.001


def test_quick_successive_polls_do_not_read_load_from_one_tick() -> None:
    """Two polls 1 ms apart at an edge, the kernel's tick just between them: that is not a load of 100 %."""
    machine = Machine()
    meter = machine.meter()
    meter.poll()
    for _ in range(5):
        machine.run(1.0, 0.1)
        meter.poll()
    machine.t += 0.001
    machine.busy_s += 0.004
    assert by_key(meter.poll())["cpu0"].power_w < 11.0


def test_a_system_that_hides_cpu_time_gives_none_and_one_event() -> None:
    machine = Machine()
    meter = EstimateMeter(MODEL, clock=lambda: machine.t, cpu_clock=lambda: None)
    for _ in range(3):
        machine.t += 1
        reading = by_key(meter.poll())["cpu0"]
        assert reading.counter_j is None and reading.power_w is None
    assert [e.what for e in meter.drain_events()] == ["lost"]


def test_the_process_share() -> None:
    """CodeCarbon's process model: 10.2 CPU seconds at 8 W TDP on two CPUs are 40.8 J."""
    assert process_share_j(PowerModel("3.3.2", "", 8.0, False, 1, 2, 20.0), 10.2) == pytest.approx(40.8)
    meter = Machine().meter(tree_clock=lambda roots: 10.2)
    assert meter.info() == {}
    meter.watch_pids([1])
    assert meter.info() == {"cpu0": {"tree_cpu_s": 10.2, "tree_j": pytest.approx(255.0)}}


BURN = "import time\nend = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[str]]:
    """A parent that runs short-lived children one after the other, then waits to be let go."""
    child = f"{sys.executable} -S -c '{BURN.format(0.1)}'"
    made = subprocess.Popen(
        ["sh", "-c", f"for i in 1 2 3 4; do {child}; done; echo done; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield made
    made.communicate("\n")


def test_cpu_time_of_exited_children_counts(shell: subprocess.Popen[str]) -> None:
    """Four children of 0.1 CPU seconds, gone by the time of the poll: a sum over living processes sees nearly 0."""
    assert shell.stdout is not None and shell.stdout.readline() == "done\n"
    living = process(shell.pid)
    assert living is not None and living.own_s < 0.1
    assert 0.4 <= tree_cpu_s([shell.pid]) < 2.0


@pytest.mark.fault(54)
def test_54_overlapping_trees_count_once(shell: subprocess.Popen[str]) -> None:
    assert shell.stdout is not None
    shell.stdout.readline()
    me = os.getpid()
    assert len(tree([me, shell.pid])) == len(tree([me]))
    once = pytest.approx(tree_cpu_s([shell.pid]))
    assert tree_cpu_s([shell.pid, shell.pid]) == once
    assert naive.sum_of_trees(tree_cpu_s, [shell.pid, shell.pid]) != once
    assert naive.sum_of_trees(tree_cpu_s, [me, shell.pid]) > tree_cpu_s([me, shell.pid]) + 0.3


def test_a_tree_that_has_gone_is_empty() -> None:
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    assert tree([gone.pid]) == [] and tree_cpu_s([gone.pid]) == 0.0


def test_names_with_spaces_and_brackets_are_parsed(tmp_path: Path) -> None:
    fields = ["R", "1", *["0"] * 9, "250", "50", "30", "20", *["0"] * 30]
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text("42 (a) b (c)) " + " ".join(fields))
    ticks = os.sysconf("SC_CLK_TCK")
    assert process(42, str(tmp_path)) == (42, 1, 300 / ticks, 50 / ticks)


def test_machine_cpu_time_is_the_kernels(tmp_path: Path) -> None:
    """user nice system idle iowait irq softirq steal guest guest_nice; guest is within user."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 50 800 40 5 5 0 60 0\ncpu0 1 1 1 1\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert machine_cpu_time(str(stat)) == CpuTime(170 / ticks, 1010 / ticks)
    stat.write_text("nonsense\n")
    assert machine_cpu_time(str(stat)) is None
    before = machine_cpu_time()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    after = machine_cpu_time()
    assert before is not None and after is not None and after.busy_s - before.busy_s >= 0.08


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kdwatch" / "power_model.json"


def test_codecarbon_is_asked_once_and_never_imported_here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = models._ask
    before = set(sys.modules)  # other tests of this process compare with CodeCarbon
    monkeypatch.setattr(models, "_ask", lambda: asked.append(1) or real())
    first, second = power_model(), power_model()
    assert first == second and len(asked) == 1 and cache.exists()
    assert first.tdp_w > 0 and first.ram_w > 0 and first.cpus >= 1
    assert not {name.split(".")[0] for name in set(sys.modules) - before} & {"codecarbon", "pandas"}
    # another machine, or another CodeCarbon: asked again
    monkeypatch.setattr(models, "machine_key", lambda: "another machine")
    power_model()
    assert len(asked) == 2


def _asked_of_scontrol(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.fault(68)
def test_68_a_slurm_allocation_never_enters_the_models(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CodeCarbon takes memory and CPU count of a job from scontrol's text. We estimate the machine, which is what
    the scope says: in a job the constants are those outside of one, and scontrol is not called at all."""
    outside = models._ask()
    log, bin_dir = tmp_path / "asked", tmp_path / "bin"
    bin_dir.mkdir()
    fake = bin_dir / "scontrol"
    fake.write_text(f"#!/bin/sh\necho \"$*\" >> {log}\necho 'AllocTRES=cpu=1,mem=2048M,node=1 NumCPUs=1'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_dir), prepend=os.pathsep)
    for name, value in {"JOB_ID": "77", "JOBID": "77", "MEM_PER_NODE": "2048", "CPUS_ON_NODE": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert naive.job_memory_gb("AllocTRES=cpu=1,mem=2048M,node=1 NumCPUs=1", node_gb=512.0) == 512.0
    assert power_model() == outside
    assert _asked_of_scontrol(log) == []
    subprocess.run([sys.executable, "-c", models.HELPER], capture_output=True, check=False, timeout=60)
    assert "show job 77" in _asked_of_scontrol(log), "with the job's variables CodeCarbon does ask: the naive way"


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"key": 1}', '{"key": "x", "model": {"tdp_w": 1}}', "\0"])
def test_a_damaged_cache_is_asked_for_again(cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(damage)
    monkeypatch.setattr(models, "_ask", lambda: MODEL)
    assert power_model() == MODEL
    assert json.loads(cache.read_text())["model"]["tdp_w"] == 100.0


def test_a_codecarbon_that_fails_leaves_a_state_not_an_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(models, "HELPER", "raise SystemExit('no such CPU')")
    with pytest.raises(NoModel, match="no such CPU"):
        power_model()
    found = discover(select_gpus="", powercap_root=tmp_path / "none")
    assert found.meters == []
    assert found.sensors[-1].status == "unavailable" and "no such CPU" in found.sensors[-1].text


def test_before_the_first_tick_of_cpu_time_the_idle_share_counts() -> None:
    """A stage of a few ms: the kernel's clock has not moved, the CPU drew its idle 10 W of 100 W all the same."""
    machine = Machine()
    meter = EstimateMeter(MODEL, clock=lambda: machine.t, cpu_clock=lambda: CpuTime(1.0, 4.0))
    assert by_key(meter.poll())["cpu0"].power_w is None
    machine.t += 0.003
    reading = by_key(meter.poll())["cpu0"]
    assert (reading.counter_j, reading.power_w) == (pytest.approx(0.03), pytest.approx(10.0))
