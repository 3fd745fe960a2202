"""Paths, text, control requests, deletion, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.rundir import control
from kdwatch.rundir.delete import check_deletable, delete_run, old_runs
from kdwatch.rundir.errors import NotARun, RunNotFound, UsageProblem
from kdwatch.rundir.paths import home, list_runs, resolve_run, runs_dir
from kdwatch.rundir.process import identity, is_alive, start_time
from kdwatch.rundir.text import clean
from kdwatch.rundir.writer import RunWriter


def run(name: str, created: str = "2026-01-01T00:00:00Z", **manifest: object) -> Path:
    path = runs_dir() / name
    RunWriter.create(path, {"created_at": created, **manifest}).close()
    return path


def test_home_follows_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KDWATCH_HOME", str(tmp_path / "k"))
    assert home() == tmp_path / "k"
    monkeypatch.delenv("KDWATCH_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert home() == tmp_path / "s" / "kdwatch"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".local/state/kdwatch"


def test_a_run_is_named_by_path_id_prefix_or_last(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = run("20260101-a"), run("20260102-b", "2026-02-01T00:00:00Z")
    assert list_runs() == [new, old]
    for argument in (old, str(old), "20260101-a", "20260101", os.path.relpath(old)):
        assert resolve_run(argument) == (Path(argument) if os.sep in str(argument) else old)
    assert resolve_run("last") == new
    monkeypatch.chdir(old)
    assert resolve_run(".") == Path()


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("2026", "2 runs begin with '2026'"), ("nothing", "no run 'nothing'"), ("", "no run ''"),
        ("./not/there", "no such directory"), ("\x1b[31mred", "no run 'red'"), ("a\nb", "no run 'a b'"),
    ],
)  # fmt: skip
def test_what_names_no_run_is_one_line(argument: str, says: str) -> None:
    run("20260101-a")
    run("20260102-b")
    with pytest.raises(RunNotFound, match=says.replace("(", r"\(")) as caught:
        resolve_run(argument)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_last_without_runs_says_how_to_begin() -> None:
    with pytest.raises(RunNotFound, match="kdwatch demo"):
        resolve_run("last")


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotARun, match="holds no manifest"):
        resolve_run(str(tmp_path))
    with pytest.raises(NotARun, match="not a directory"):
        resolve_run(tmp_path / "file")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"), ("\x1b[31mred\x1b[0m", "red"), ("a\x1b]0;title\x07b", "ab"), ("a\r\nb\tc", "a b c"),
        ("\u202eevil", "evil"), ("zero\u200bwidth", "zerowidth"), ("bell\x07", "bell"), ("\x9b31mx", "x"),
        ("é漢字", "é漢字"), (None, ""), (12, "12"), ("\ud800", ""), ("x" * 300, "x" * 199 + "…"),
        ("\x1bPdevice\x1b\\z", "z"), ("a\x1b", "a"), ("a \u200b b", "a b"),
    ],
)  # fmt: skip
def test_clean(raw: object, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(st.characters(), max_size=60))
def test_clean_text_is_one_printable_line(raw: str) -> None:
    shown = clean(raw)
    assert shown.isprintable() or shown == ""
    assert clean(shown) == shown


def test_requests_arrive_once_in_order(tmp_path: Path) -> None:
    path = run("r")
    control.request(path, "stop_stage", stage="a")
    control.request(path, "extend_budget", value=5.0)
    assert control.take(path) == [{"action": "stop_stage", "stage": "a"}, {"action": "extend_budget", "value": 5.0}]
    assert control.take(path) == []


def test_nonsense_links_and_foreign_requests_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("r")
    folder = path / "control"
    (folder / "1.json").write_text("{")
    (folder / "2.json").write_text('{"action": "format the disk"}')
    (folder / "3.json").write_text("[" * 60000)
    (folder / "4.json").write_text("x" * 70000)
    secret = tmp_path / "secret.json"
    secret.write_text('{"action": "stop"}')
    (folder / "5.json").symlink_to(secret)
    os.mkfifo(folder / "6.json")
    (folder / ".7.json").write_text('{"action": "stop"}')
    assert control.take(path) == [] and secret.exists()
    assert [p.name for p in folder.iterdir()] == [".7.json"]
    control.request(path, "stop")
    monkeypatch.setattr(os, "geteuid", lambda: 999_999)
    assert control.take(path) == []


def test_an_unknown_request_or_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="unknown request 'explode'"):
        control.request(run("r"), "explode")
    with pytest.raises(UsageProblem, match="cannot write the request"):
        control.request(tmp_path / "nowhere", "stop")


def test_only_runs_that_do_not_record_are_deleted(tmp_path: Path) -> None:
    done, alive = run("done"), run("alive", recorder=identity())
    (tmp_path / "folder").mkdir()
    link = runs_dir() / "link"
    link.symlink_to(done)
    for path, says in ((alive, "still recording"), (tmp_path / "folder", "not a run"), (link, "a link")):
        with pytest.raises(UsageProblem, match=says):
            delete_run(path)
        assert path.exists()
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    (done / "logs/s.log").symlink_to(outside)
    (done / "stages/dir").symlink_to(tmp_path / "folder")
    delete_run(done)
    assert not done.exists() and outside.exists() and (tmp_path / "folder").exists()


def test_a_run_with_a_damaged_manifest_can_be_deleted() -> None:
    path = run("r")
    (path / "manifest.json").write_text("{")
    check_deletable(path)
    delete_run(path)
    assert not path.exists()


def test_old_runs_go_by_their_start() -> None:
    clock = {"monotonic_origin": 0.0, "wall_origin": 1000.0, "boottime_origin": 0.0}
    old = run("old", clock=clock)
    run("new", clock={**clock, "wall_origin": 3000.0})
    run("busy", clock=clock, recorder=identity())
    unknown = run("unknown", clock=clock)
    (unknown / "manifest.json").write_text(json.dumps({"schema": 1, "created_at": "long ago"}))
    by_date = run("by-date", clock=clock)
    (by_date / "manifest.json").write_text(json.dumps({"schema": 1, "created_at": "1970-01-01T00:10:00Z"}))
    assert set(old_runs(2000.0)) == {old, by_date}


def test_a_process_is_known_by_its_start() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    who = identity(child.pid)
    assert is_alive(who) and who["start_time"] == start_time(child.pid)
    assert not is_alive({**who, "start_time": who["start_time"] + 1})
    assert not is_alive({**who, "host_hash": "another"}) and not is_alive({"pid": "x"}) and not is_alive({})
    child.communicate()
    assert not is_alive(who)
