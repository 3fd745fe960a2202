"""Feeds: live equals batch, replay at a time equals the ledger up to that time, damage and growth are survived."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from tui_runs import Shape, gpu_power, make_run, open_streams, write_facts, write_samples

from kdwatch.ledger.load import load_ledger
from kdwatch.rundir.process import identity
from kdwatch.rundir.stream import seal_segment
from kdwatch.rundir.writer import RunWriter
from kdwatch.tui.detail import first_detailed
from kdwatch.tui.feed import RunFeed
from kdwatch.tui.replay import SPEEDS, ReplayFeed


class Clock:
    """A wall clock that only moves when told."""

    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with two GPUs."""
    return make_run(tmp_path / "run", Shape(gpus=2))


def replay(path: Path, **options) -> tuple[ReplayFeed, Clock]:
    """A replay on a clock of the test's own."""
    clock = Clock()
    return ReplayFeed(path, clock=clock, **options), clock


def same_energy(frame, path: Path, t: float | None) -> None:
    """The frame shows what the ledger says of the directory up to run time `t`."""
    ledger = load_ledger(path, until=t)
    totals = ledger.totals(t)
    assert frame.total_j == pytest.approx(totals.total_j, rel=1e-9)
    for row, stage in zip(frame.stages, totals.stages, strict=True):
        assert row.status == stage.status
        energy = stage.energy_j["total"]
        assert row.energy_j == (None if energy is None else pytest.approx(energy, rel=1e-9))


def test_a_finished_run_shows_what_the_report_says(run: Path) -> None:
    """One pass over the directory equals the batch ledger."""
    frame = RunFeed(run).frame()
    assert frame.status == "completed" and not frame.live
    same_energy(frame, run, None)


@pytest.mark.parametrize("t", [0.0, 4.9, 29.0, 151.5, 240.2, 259.0])
def test_replay_at_a_time_equals_the_ledger_up_to_it(run: Path, t: float) -> None:
    """Jumping, from the start and from later on, gives the same numbers."""
    feed, _ = replay(run)
    feed.frame()
    feed.pause(True)
    for start in (250.0, 0.0):
        feed.seek(start)
        feed.seek(t)
        same_energy(feed.frame(), run, t)


def test_the_clock_runs_at_its_speed_and_stands_still_when_paused(run: Path) -> None:
    """10 s at 5x are 50 s of the recording; paused, none."""
    feed, clock = replay(run, speed=5.0)
    assert feed.frame().t == 0.0
    clock.t += 10.0
    assert feed.frame().t == pytest.approx(50.0)
    feed.pause(True)
    clock.t += 10.0
    assert feed.frame().t == pytest.approx(50.0)
    feed.pause(False)
    clock.t += 1.0
    assert feed.frame().t == pytest.approx(55.0)


def test_playing_through_equals_jumping(run: Path) -> None:
    """Thousand small steps or one jump: the plot and the energies are the same."""
    played, clock = replay(run, speed=1.0)
    for _ in range(300):
        clock.t += 0.5
        frame = played.frame()
    jumped, _ = replay(run, start=frame.t)
    other = jumped.frame()
    assert other.total_j == pytest.approx(frame.total_j, rel=1e-9)
    for key in ("g0", "total"):
        assert played.history.view(key, 60.0, 120.0, 90, 120.0) == jumped.history.view(key, 60.0, 120.0, 90, 120.0)


def test_steps_go_sample_by_sample(run: Path) -> None:
    """The GPU's readings are 0.5 s apart; stepping on and back ends where it began."""
    feed, _ = replay(run, start=40.2)
    feed.frame()
    feed.step(1)
    assert feed.t == pytest.approx(40.5)
    feed.step(1)
    assert feed.t == pytest.approx(41.0)
    feed.step(-1)
    assert feed.t == pytest.approx(40.5) and feed.paused


def test_stage_keys_go_to_starts(run: Path) -> None:
    """Stages start at 0, 5, 30, 150 and 240 s."""
    feed, _ = replay(run, start=10.0)
    feed.frame()
    assert feed.stage_start(1) == 30.0
    assert feed.stage_start(-1) == 5.0
    feed.seek(250.0)
    assert feed.stage_start(1) is None


def test_speeds_are_those_of_the_issue(run: Path) -> None:
    """1x to 1000x, and no further."""
    feed, _ = replay(run)
    for _ in range(20):
        feed.change_speed(1)
    assert feed.speed == SPEEDS[-1] == 1000.0
    for _ in range(20):
        feed.change_speed(-1)
    assert feed.speed == SPEEDS[0] == 1.0


def test_the_end_pauses_and_loop_begins_again(run: Path) -> None:
    """A finished recording stops at its end; with loop it starts over; play at the end starts over too."""
    feed, clock = replay(run, speed=1000.0)
    feed.frame()
    clock.t += 1.0
    frame = feed.frame()
    assert frame.replay.paused and frame.t == pytest.approx(frame.replay.end_t) and frame.status == "completed"
    feed.loop = True
    feed.pause(False)
    clock.t += 1.0
    feed.frame()
    assert not feed.paused and feed.t < 1.0


def test_events_are_the_log_of_a_replay(run: Path) -> None:
    """A log has no times; at 31 s three stages have begun, and no later one is told."""
    feed, _ = replay(run, start=31.0)
    text = "\n".join(feed.frame().log)
    assert "teacher logits started" in text and "student started" not in text


def live_writer(path: Path, shape: Shape) -> RunWriter:
    """A writer of this process as recorder, so that the run counts as running."""
    source = make_run(path.with_name("source"), shape)
    manifest = json.loads((source / "manifest.json").read_text())
    shutil.rmtree(source)
    manifest["clock"]["monotonic_origin"] = time.monotonic()
    manifest |= {"recorder": identity(), "run_id": path.name}
    writer = RunWriter.create(path, manifest)
    open_streams(writer, shape)
    return writer


def test_live_feed_takes_only_what_is_new_and_equals_batch(tmp_path: Path) -> None:
    """Frames between writes: running, growing, and at each moment equal to the batch."""
    shape = Shape(gpus=1, gap=None)
    writer = live_writer(tmp_path / "live", shape)
    feed = RunFeed(tmp_path / "live")
    writer.event("run_started", t=0.0)
    writer.event("stage_started", t=0.0, stage="prerun", kind="prerun", pid=1, pgid=1)
    last = -0.5
    for end in (3.0, 7.0, 12.0):
        write_samples(writer, shape, last + 0.5, end)
        writer.flush()
        frame = feed.frame()
        assert frame.live and frame.running.name == "prerun"
        assert frame.devices[0].power_w == pytest.approx(gpu_power(end, 0), abs=1e-3)
        last = end
    writer.event("stage_ended", t=12.2, stage="prerun", status="completed", exit_code=0)
    writer.event("run_ended", t=12.5, status="completed", exit_code=0)
    writer.close()
    frame = feed.frame()
    assert frame.status == "completed"
    assert [n.kind for n in frame.notices] == ["stage_ended", "run_ended"]
    same_energy(frame, tmp_path / "live", None)


def test_a_replay_of_a_run_still_being_written_just_follows(tmp_path: Path) -> None:
    """At the end it takes what is added; nothing is counted twice."""
    shape = Shape(gpus=1, gap=None)
    writer = live_writer(tmp_path / "live", shape)
    writer.event("run_started", t=0.0)
    writer.event("stage_started", t=0.0, stage="prerun", kind="prerun", pid=1, pgid=1)
    write_samples(writer, shape, 0.0, 5.0)
    writer.flush()
    feed, clock = replay(tmp_path / "live", speed=10.0)
    feed.frame()
    for end in (6.0, 9.0, 20.0):
        write_samples(writer, shape, feed.end_t + 0.5, end)
        writer.flush()
        clock.t += 10.0
        frame = feed.frame()
        assert frame.t == pytest.approx(end) and not frame.replay.paused
        assert frame.total_j == pytest.approx(load_ledger(tmp_path / "live").totals(frame.t).total_j, rel=1e-9)
    feed.pause(True)
    write_samples(writer, shape, 20.5, 30.0)
    writer.flush()
    clock.t += 10.0
    assert feed.frame().t == pytest.approx(20.0)
    writer.close()


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_torn_tails_open_live_and_in_replay(run: Path, cut: int) -> None:
    """The last line of events and samples cut at some byte: both open, and lose no whole line."""
    for path in [run / "events.jsonl", *run.glob("samples/*.csv")]:
        data = path.read_bytes()
        path.write_bytes(data[:-cut])
    for feed in (RunFeed(run), replay(run, start=200.0)[0]):
        frame = feed.frame()
        assert frame.total_j > 0 and len(frame.stages) == 5


def test_a_run_without_anything_but_a_manifest_opens(run: Path) -> None:
    """Samples, events and logs gone: unknown, not zero."""
    shutil.rmtree(run / "samples")
    (run / "events.jsonl").unlink()
    frame = RunFeed(run).frame()
    assert frame.total_j is None and frame.power_w is None and all(s.status != "completed" for s in frame.stages)
    replay(run)[0].frame()


def test_a_killed_recorder_shows_as_interrupted(tmp_path: Path) -> None:
    """No end was written and nobody records: interrupted, the running stage too."""
    frame = RunFeed(make_run(tmp_path / "cut", Shape(until=100.0))).frame()
    assert frame.status == "interrupted" and not frame.live
    assert [s.status for s in frame.stages] == ["completed", "completed", "interrupted", "pending", "pending"]


def test_a_stage_name_never_leads_out_of_the_run_directory(run: Path) -> None:
    """Names come from the manifest and are not trusted."""
    feed = RunFeed(run)
    assert feed.log_path("../../etc/passwd").parent == run / "logs"


def test_the_budget_marks_are_told_once(tmp_path: Path) -> None:
    """80 % and 100 %, each once; not for what had happened before the screen was opened."""
    feed, clock = replay(make_run(tmp_path / "run", Shape(budget_j=100_000.0, gap=None)), speed=1.0)
    feed.frame()
    told = []
    for _ in range(300):
        clock.t += 1.0
        told += [n.kind for n in feed.frame().notices]
    assert told.count("budget_80") == told.count("budget_100") == 1
    assert told.index("budget_80") < told.index("budget_100")
    assert "budget_80" not in [n.kind for n in RunFeed(feed.path).frame().notices]


def test_a_lost_sensor_is_told_and_marked(tmp_path: Path) -> None:
    """The device's row says lost; the total goes on without it."""
    shape = Shape(gpus=2, gap=None)
    writer = live_writer(tmp_path / "live", shape)
    writer.event("run_started", t=0.0)
    write_samples(writer, shape, 0.0, 5.0)
    writer.flush()
    feed = RunFeed(tmp_path / "live")
    feed.frame()
    writer.event("sensor", t=5.1, device="g1", what="lost", text="GPU is lost")
    frame = feed.frame()
    assert [d.state for d in frame.devices][:2] == ["ok", "lost"]
    assert [n.kind for n in frame.notices] == ["sensor_lost"] and "GPU is lost" in frame.notices[0].text
    writer.close()


def test_forecast_is_the_stages_and_in_the_last_stage_the_runs(tmp_path: Path) -> None:
    """Steps at a steady rate: half-way through a stage its forecast is within 5 % of what it came to."""
    run = make_run(tmp_path / "run", Shape(gpus=2, gap=None))
    whole = RunFeed(run).frame()
    feed, _ = replay(run)
    feed.frame()
    feed.seek(195.0)
    student = feed.frame().forecast
    assert not student.whole and student.total_j == pytest.approx(whole.stages[3].energy_j, rel=0.05)
    assert student.low_j < student.total_j < student.high_j
    feed.seek(255.0)
    last = feed.frame().forecast
    assert last.whole and last.total_j == pytest.approx(whole.total_j, rel=0.05)
    assert last.remaining_s == pytest.approx(5.0, abs=2.5)
    assert whole.forecast is None


def test_a_stage_that_reports_no_steps_has_no_forecast(run: Path) -> None:
    """preprocess says nothing of how far it is."""
    feed, _ = replay(run, start=20.0)
    assert feed.frame().forecast is None


def test_a_sealed_run_is_drawn_from_its_samples_and_not_only_from_rollups(tmp_path: Path) -> None:
    """Runs are sealed when they end; a short one must not open as a few blocks of 10 s."""
    shape = Shape(gpus=1, gap=None, until=60.0)
    run = make_run(tmp_path / "run", shape)
    plain = RunFeed(run)
    plain.frame()
    writer_state = load_ledger(run)
    sealed = shutil.copytree(run, tmp_path / "sealed")
    writer = RunWriter(sealed, json.loads((sealed / "manifest.json").read_text()))
    for path in (sealed / "samples").glob("*.csv"):
        seal_segment(path)
    offset = (sealed / "events.jsonl").stat().st_size
    body = {"number": 1, "t": 60.0, "events_offset": offset, "ledger": writer_state.state()}
    (sealed / "checkpoints" / "000001.json").write_text(json.dumps(body))
    writer.close()
    assert first_detailed(sealed, 1) == 1
    feed = RunFeed(sealed)
    frame = feed.frame()
    assert frame.total_j == pytest.approx(plain.frame().total_j, rel=1e-9)
    for key in ("g0", "total"):
        assert feed.history.view(key, 0.0, 60.0, 120, 60.0) == plain.history.view(key, 0.0, 60.0, 120, 60.0)


@pytest.mark.parametrize("t", [20.0, 100.0, 200.0])
def test_slow_facts_of_a_replay_are_those_of_its_time(run: Path, t: float) -> None:
    """Utilisation rises by a quarter percent a second; a replay shows its moment's, not the run's last."""
    write_facts(run, 2)
    feed, _ = replay(run, start=t)
    first, second = feed.frame().devices[:2]
    assert first.utilization == pytest.approx(t / 4, abs=1.5)
    assert second.memory_b == 2**30 and second.temperature_c == 61.0


def test_facts_that_ended_are_not_shown_as_now(run: Path) -> None:
    """Facts that stop at 100 s are shown at 110 s and no more at 200 s."""
    write_facts(run, 2)
    facts = run / "samples" / "info-000001.csv"
    facts.write_text("".join(line for line in facts.read_text().splitlines(True)[:22]))
    assert replay(run, start=110.0)[0].frame().devices[0].utilization == pytest.approx(25.0)
    assert replay(run, start=200.0)[0].frame().devices[0].utilization is None
