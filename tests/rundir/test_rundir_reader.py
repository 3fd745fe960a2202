"""The reader: whatever lies in the directory, it opens or says in one line why not."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import naive
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdwatch.ledger.load import load_ledger
from kdwatch.rundir.errors import NewerSchema, NotARun, UsageProblem
from kdwatch.rundir.process import identity
from kdwatch.rundir.reader import RunReader

DEVICE = {"key": "g0", "id": "GPU-0", "kind": "gpu", "source": "counter"}


def write(run: Path, events: bytes = b"", samples: bytes = b"", **manifest: object) -> Path:
    (run / "samples").mkdir(parents=True)
    data = {"schema": 1, "run_id": "r", "devices": [DEVICE], **manifest}
    (run / "manifest.json").write_text(json.dumps(data))
    (run / "events.jsonl").write_bytes(events)
    (run / "samples/nvml-000001.csv").write_bytes(samples)
    return run


@pytest.mark.fault(62)
def test_torn_and_foreign_lines_cost_only_themselves(tmp_path: Path) -> None:
    """Fault 62: empty files, a torn last line, NUL bytes, lines of other programs."""
    events = b"\n".join(
        [
            b'{"t": 1.0, "type": "a"}',
            b'{"t": 2.0, "type": "b", "x": 1',
            b"\0\0\0\0",
            b"not json",
            b'["t", 1]',
            b'{"t": "soon", "type": "c"}',
            b'{"t": NaN, "type": "c"}',
            b'{"t": true, "type": "c"}',
            b'{"type": "c"}',
            b'{"t": 3.0, "type": "unknown thing", "new": {"x": [1]}}',
            b"\xff\xfe\xfd",
            b"[" * 100_000,
            b'{"t": 4.0, "type": "d"}',
            b'{"t": 5.0, "type": "torn"',
        ]
    )
    samples = (
        b"t_s,g0_j,g0_w\n1.0,10.0,300\nrubbish\n2.0,20.0\n\0\0\n3.0,x,300\n4.0,,\nnan,1,2\n5.0,50.0,inf\n6.0,60.0,30"
    )
    run = write(tmp_path / "r", events, samples)
    with pytest.raises(ValueError):
        naive.parsed_lines(events)
    batch = RunReader(run).poll()
    assert [e["type"] for e in batch.events] == ["a", "unknown thing", "d"]
    assert [tuple(s) for s in batch.samples] == [
        (1.0, "g0", 10.0, 300.0, None), (3.0, "g0", None, 300.0, None), (5.0, "g0", 50.0, None, None),
    ]  # fmt: skip


@pytest.mark.fault(62)
def test_empty_and_missing_files_are_an_empty_run(tmp_path: Path) -> None:
    run = write(tmp_path / "r")
    assert RunReader(run).poll() == ([], [])
    with pytest.raises(IndexError):
        naive.last_row(run / "samples/nvml-000001.csv")
    assert RunReader(run).status() == "interrupted"
    (run / "events.jsonl").unlink()
    (run / "samples/nvml-000001.csv").unlink()
    (run / "samples").rmdir()
    reader = RunReader(run)
    assert reader.poll() == ([], []) and reader.power_history(5) == {} and reader.info() == {}
    assert load_ledger(run).totals().total_j is None


def test_a_truncated_sealed_segment_gives_what_is_whole(tmp_path: Path) -> None:
    rows = "t_s,g0_j\n" + "".join(f"{k}.0,{k * 37 % 1000}.{k % 997:03d}\n" for k in range(5000))
    run = write(tmp_path / "r")
    packed = gzip.compress(rows.encode())
    (run / "samples/nvml-000001.csv").unlink()
    (run / "samples/nvml-000001.csv.gz").write_bytes(packed[: len(packed) // 2])
    found = list(RunReader(run).iter_samples())
    assert 1000 < len(found) < 5000
    assert [s.t for s in found] == [float(k) for k in range(len(found))]


@pytest.mark.fault(63)
def test_columns_may_be_new_reordered_or_gone(tmp_path: Path) -> None:
    """Fault 63: a column is found by its name in the segment's own header."""
    run = write(tmp_path / "r", samples=b"t_s,g0_w,later_thing,g0_j,x_avg_w\n1.0,300,7,10,5\n")
    assert [tuple(s) for s in RunReader(run).iter_samples()] == [
        (1.0, "g0", 10.0, 300.0, None),
        (1.0, "x", None, None, 5.0),
    ]
    assert naive.by_position(["t_s", "g0_j", "g0_w"], "1.0,300,7,10,5")["g0_j"] != 10.0


def test_events_that_grow_are_read_once_and_whole(tmp_path: Path) -> None:
    run = write(tmp_path / "r", b'{"t": 1.0, "type": "a"}\n{"t": 2.0, "ty')
    reader = RunReader(run)
    assert [e["type"] for e in reader.poll().events] == ["a"]
    assert reader.poll().events == []
    with (run / "events.jsonl").open("ab") as f:
        f.write(b'pe": "b"}\n')
    assert [e["type"] for e in reader.poll().events] == ["b"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "holds no manifest.json"),
        (b"", "damaged"),
        (b'{"schema": 1', "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"[1]", "holds no object"),
        (b'{"schema": "one"}', "no valid schema"),
    ],
)
def test_what_is_no_run_is_one_line(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(NotARun, match=says) as caught:
        RunReader(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_newer_schema_names_both_versions(tmp_path: Path) -> None:
    run = write(tmp_path / "r", schema=7)
    with pytest.raises(NewerSchema, match=r"schema 7.*schema 1"):
        RunReader(run)


def test_unknown_manifest_fields_are_kept(tmp_path: Path) -> None:
    assert RunReader(write(tmp_path / "r", of_the_future=[1])).manifest["of_the_future"] == [1]


@pytest.mark.parametrize("status", ["completed", "failed", "stopped", "over_budget", "interrupted"])
def test_status_comes_from_the_last_event(tmp_path: Path, status: str) -> None:
    filler = b'{"t": 1.0, "type": "progress", "stage": "s"}\n' * 9000
    end = json.dumps({"t": 2.0, "type": "run_ended", "status": status}).encode() + b"\n"
    assert RunReader(write(tmp_path / "r", filler + end, recorder=identity())).status() == status


def test_a_run_without_an_end_runs_while_its_recorder_lives(tmp_path: Path) -> None:
    me = identity()
    assert RunReader(write(tmp_path / "a", recorder=me)).status() == "running"
    other_start = {**me, "start_time": (me["start_time"] or 0) + 1}
    assert RunReader(write(tmp_path / "b", recorder=other_start)).status() == "interrupted"
    assert RunReader(write(tmp_path / "c", recorder={**me, "boot_id": "another"})).status() == "interrupted"
    assert RunReader(write(tmp_path / "d", imported={"format": "x"})).status() == "imported"


def test_a_recorder_on_another_host_lives_while_its_files_change(tmp_path: Path) -> None:
    """A shared file system: nothing can be asked of the process."""
    run = write(tmp_path / "r", recorder={**identity(), "host_hash": "elsewhere"})
    assert RunReader(run).alive()
    old = time.time() - 3600
    for file in (run / "events.jsonl", run / "samples/nvml-000001.csv"):
        os.utime(file, (old, old))
    assert not RunReader(run).alive() and RunReader(run).status() == "interrupted"


def test_a_torn_copy_that_names_no_recorder_was_interrupted(tmp_path: Path) -> None:
    """sample_runs leave out process and host: a copy made this minute is no run of another host that goes on."""
    nobody = {"pid": 0, "start_time": 0, "boot_id": "", "host_hash": ""}
    assert RunReader(write(tmp_path / "r", recorder=nobody)).status() == "interrupted"


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    run = write(tmp_path / "r", samples=b"t_s,g0_j\n1.0,10\n2.0,20\n3.0,40\n")
    (run / "checkpoints").mkdir()
    whole = load_ledger(run).totals()
    assert whole.total_j is not None and whole.total_j > 0
    for junk in (b"", b"{", b"[]", b'{"number": 1, "t": 9.0, "events_offset": 0, "ledger": {"format": 1}}'):
        (run / "checkpoints/000001.json").write_bytes(junk)
        assert load_ledger(run).totals() == whole


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=400), st.binary(max_size=200))
def test_any_bytes_in_the_files_are_survived(events: bytes, samples: bytes, manifest: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run = write(Path(folder) / "r", events, b"t_s,g0_j,g0_w\n" + samples)
        (run / "samples/nvml-000002.csv.gz").write_bytes(samples)
        (run / "rollups.jsonl").write_bytes(events)
        load_ledger(run).totals()
        RunReader(run).power_history(10)
        (run / "manifest.json").write_bytes(manifest)
        try:
            RunReader(run)
        except UsageProblem:
            pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["devices", "stages", "clock", "recorder", "budget_j", "pue", "region", "imported", "name",
                         "intensity_g_per_kwh", "hardware", "created_at", "warnings", "run_id"]),
        json_values,
    ),
    st.lists(
        st.dictionaries(
            st.sampled_from(["stage", "status", "exit_code", "name", "tokens", "idle_w", "benchmarks", "q", "wall",
                             "boottime", "device", "what", "text", "code", "reused_from", "gpus", "kind", "parent",
                             "teacher_j", "reuse_count", "value", "action", "artifact", "energy_j", "loss"]),
            json_values,
        ),
        max_size=8,
    ),
    st.data(),
)  # fmt: skip
def test_any_json_in_manifest_and_events_is_survived(manifest: dict, events: list[dict], data: st.DataObject) -> None:
    """The report is one line of error or an object without NaN, whatever fields hold."""
    import tempfile

    from kdwatch.ledger.report import build_report
    from kdwatch.ledger.report_text import report_lines

    kinds = ["stage_started", "stage_ended", "stage_reused", "stage_skipped", "phase", "progress", "quality"]
    kinds += [
        "artifact",
        "teacher_reuse",
        "baseline",
        "sensor",
        "clock",
        "warning",
        "control",
        "run_started",
        "run_ended",
    ]
    lines = [json.dumps({**e, "t": k * 0.5, "type": data.draw(st.sampled_from(kinds))}) for k, e in enumerate(events)]
    with tempfile.TemporaryDirectory() as folder:
        run = write(Path(folder) / "r", "\n".join([*lines, ""]).encode(), b"t_s,g0_j\n0.0,1\n1.0,9\n", **manifest)
        for protocol in ("default", "paper"):
            try:
                report = build_report(run, protocol)
            except UsageProblem:
                continue
            json.dumps(report, allow_nan=False)
            assert all("\x1b" not in line for line in report_lines(report))


def test_slow_facts_are_no_energy_and_are_found_at_any_time(tmp_path: Path) -> None:
    """`info` and `info_METER`: columns that end like energy (`cpu0_tree_j`, `g0_limit_w`) stay facts."""
    run = write(tmp_path / "r", samples=b"t_s,g0_j\n1.0,10\n")
    (run / "samples/info-000001.csv").write_bytes(b"t_s,g0_limit_w,g0_throttle\n1.0,700,\n6.0,650,power_cap\n")
    (run / "samples/info_estimate-000001.csv").write_bytes(b"t_s,cpu0_tree_j\n2.0,5.5\n")
    reader = RunReader(run)
    assert [s.key for s in reader.poll().samples] == [s.key for s in reader.iter_samples()] == ["g0"]
    assert set(reader.power_history(10)) <= {"g0"}
    assert reader.info() == {"t_s": 6.0, "g0_limit_w": "650", "g0_throttle": "power_cap", "cpu0_tree_j": "5.5"}
    assert reader.info(until=3.0)["g0_limit_w"] == "700" and reader.info(until=0.5) == {"t_s": 0.0}


def test_other_tools_read_sealed_and_open_segments(tmp_path: Path) -> None:
    """polars alone, without kdwatch."""
    import polars

    from kdwatch.rundir.writer import RunWriter

    writer = RunWriter.create(tmp_path / "r", {"devices": [DEVICE]})
    writer.open_stream("nvml", ["g0_j", "g0_w", "g0_avg_w"])
    for k in range(20):
        writer.sample("nvml", k / 10, [30.0 * k, None if k == 3 else 300.0, 299.5])
        if k == 9:
            writer.seal({})
    writer.close()
    sealed = polars.read_csv(tmp_path / "r/samples/nvml-000001.csv.gz")
    rest = polars.read_csv(tmp_path / "r/samples/nvml-000002.csv")
    assert sealed.columns == rest.columns == ["t_s", "g0_j", "g0_w", "g0_avg_w"]
    assert polars.concat([sealed, rest])["g0_j"].to_list() == [30.0 * k for k in range(20)]
    assert sealed["g0_w"].null_count() == 1
    events = tmp_path / "r/events.jsonl"
    writer = RunWriter.create(tmp_path / "e", {})
    writer.event("progress", 1.0, stage="s", tokens=5)
    writer.close()
    assert polars.read_ndjson(tmp_path / "e/events.jsonl")["tokens"].to_list() == [5] and not events.exists()
