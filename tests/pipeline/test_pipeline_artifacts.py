"""The artifact store: addressed by what made an output, whole or absent, verified, counted, made once."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pipeline_helpers import begin, events, finish, record, stage_events, warning_codes, write_recipe

import kdwatch.demo
from kdwatch.cli.root import cli
from kdwatch.ledger.report import build_report
from kdwatch.ledger.units import format_energy
from kdwatch.pipeline.artifacts import Artifact, ArtifactStore, artifact_id
from kdwatch.pipeline.dry_run import describe
from kdwatch.pipeline.hashing import HashMemory, canonical
from kdwatch.pipeline.locks import MakerLock
from kdwatch.pipeline.recipe import load_recipe
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.process import identity

TOKENIZER = Path(kdwatch.demo.__file__).parent / "assets" / "teacher"
RECIPE = """
name: pre
stages:
- name: data
  uses: preprocess
  with: {{data: d.jsonl, tokenizer: {tokenizer}, max_length: {length}}}
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A recipe's directory with 20 rows of data."""
    data = [json.dumps({"prompt": f"{i}+1=", "response": str(i + 1)}) for i in range(20)]
    (tmp_path / "d.jsonl").write_text("\n".join(data) + "\n")
    return tmp_path


def recipe(length: int = 64) -> str:
    return RECIPE.format(tokenizer=TOKENIZER, length=length)


def make(store: ArtifactStore, id: str = "a" * 64, text: str = "data", kind: str = "dataset") -> Artifact:
    staging = store.staging(kind, id)
    (staging / "sub").mkdir(exist_ok=True)
    (staging / "sub" / "file.bin").write_text(text)
    return store.commit(staging, {"id": id, "kind": kind, "made_by": {"run": "r1", "stage": "s"}, "energy_j": 12.5})


# -- in runs


def test_runs_that_do_not_reuse_do_not_wait_for_each_other(rows: Path, mark: str) -> None:
    """`reuse: false`: each makes its own; the last one stays."""
    text = recipe().rstrip() + "\n  reuse: false\n"
    runs = [begin(rows, text) for _ in range(2)]
    for run in runs:
        assert finish(run)["status"] == "completed"
        assert "waits" not in warning_codes(run) and "artifact" in stage_events(run, "data")
    (found,) = list(ArtifactStore())
    assert found.problems() == []


def test_a_second_run_reuses_the_output_and_says_what_it_cost(rows: Path, mark: str, package_250w) -> None:
    """The reused stage has energy 0 and names run, artifact and energy of the first (contract)."""
    first = record(rows, recipe())
    made = stage_events(first, "data")["artifact"]
    spent = build_report(first)["stages"][0]["energy_j"]["total"]
    assert made["energy_j"] == pytest.approx(spent, rel=0.1)
    second = record(rows, recipe())
    stage = build_report(second)["stages"][0]
    assert stage["status"] == "reused"
    source = {"run": first.name, "artifact": made["artifact"], "energy_j": made["energy_j"]}
    assert {k: stage["reused_from"][k] for k in source} == source
    assert not stage["energy_j"]["total"]
    assert [use["run"] for use in ArtifactStore().find(made["artifact"]).uses()] == [first.name, second.name]


def test_energy_that_a_model_told_is_marked_wherever_it_is_shown(
    rows: Path, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is estimated is shown as measured (docs/sensors.md), also after the run that made the output."""
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", str(tmp_path / "none"))
    first, second = record(rows, recipe()), record(rows, recipe())
    estimated = bool(build_report(first)["stages"][0]["energy_j"]["estimated"])
    origin = build_report(second)["stages"][0]["reused_from"]
    assert origin["estimated"] is estimated
    shown = f"{'~' if estimated else ''}{format_energy(origin['energy_j'])}"
    asked = (["report", second.name], ["artifacts", "ls"], ["artifacts", "show", origin["artifact"]])
    texts = [CliRunner().invoke(cli, words).stdout for words in asked] + [describe(load_recipe(rows / "recipe.yaml"))]
    assert all(re.search(rf"(?<![~\d]){re.escape(shown)}", text) for text in texts), texts


def test_what_changes_the_output_makes_it_anew(rows: Path, mark: str) -> None:
    """Another setting, another content of the data, a damaged file: not reused."""
    ids = [stage_events(record(rows, recipe()), "data")["artifact"]["artifact"]]
    ids.append(stage_events(record(rows, recipe(length=32)), "data")["artifact"]["artifact"])
    (rows / "d.jsonl").write_text('{"prompt": "1+1=", "response": "2"}\n' * 20)
    ids.append(stage_events(record(rows, recipe()), "data")["artifact"]["artifact"])
    assert len(set(ids)) == 3
    found = ArtifactStore().find(ids[2])
    name = next(iter(found.meta["files"]))
    (found.path / name).write_bytes(b"x")
    again = stage_events(record(rows, recipe()), "data")
    assert again["artifact"]["artifact"] == ids[2] and "stage_reused" not in again
    assert ArtifactStore().find(ids[2]).problems() == []


def test_two_runs_that_want_the_same_make_it_once(rows: Path, mark: str) -> None:
    runs = [begin(rows, recipe()) for _ in range(3)]
    for run in runs:
        finish(run)
    made = [run for run in runs if "artifact" in stage_events(run, "data")]
    reused = [run for run in runs if "stage_reused" in stage_events(run, "data")]
    assert (len(made), len(reused)) == (1, 2)
    assert all(events(run, "run_ended")[0]["status"] == "completed" for run in runs)
    assert any("shared_host" in warning_codes(run) for run in runs)


def test_a_stage_that_fails_leaves_no_artifact(rows: Path, mark: str) -> None:
    (rows / "d.jsonl").write_text("not json\n")
    run = record(rows, recipe())
    assert events(run, "run_ended")[0]["status"] == "failed"
    assert list(ArtifactStore()) == []


def test_an_output_carries_the_energy_of_the_runs_that_began_it(
    rows: Path, mark: str, own_home: Path, package_250w
) -> None:
    """What a stopped stage left is taken up by the next run, and what it took is not forgotten; a deleted run is."""
    data = rows / "d.jsonl"
    data.write_text(data.read_text() * 2000)  # more than a second of work, whatever the machine
    first = record(rows, recipe() + "  timeout: 0.05\n")
    assert stage_events(first, "data")["stage_ended"]["status"] == "failed"
    spent = next(s for s in build_report(first)["stages"] if s["name"] == "data")["energy_j"]["total"]
    second = record(rows, recipe())
    found = next(iter(ArtifactStore()))
    assert found.meta["attempts"] == [{"run": first.name, "stage": "data", "energy_j": spent}] and spent > 0
    own = next(s for s in build_report(second)["stages"] if s["name"] == "data")["energy_j"]["total"]
    assert found.energy_j == pytest.approx(own + spent, rel=0.2)
    assert not (warning_codes(second) & {"energy_incomplete"})
    shown = CliRunner().invoke(cli, ["artifacts", "show", found.id]).output
    assert f"in run {first.name}, which did not finish it" in shown
    ArtifactStore().remove(found)
    gone = record(rows, recipe() + "  timeout: 0.05\n")
    shutil.rmtree(gone)
    assert "energy_incomplete" in warning_codes(record(rows, recipe()))


def test_an_output_that_cannot_be_stored_fails_its_stage(rows: Path, mark: str, own_home: Path) -> None:
    """A file stands where the store wants a directory: as with a disk that refuses."""
    (own_home / "artifacts").mkdir()
    (own_home / "artifacts" / "dataset").write_text("")
    run = record(rows, recipe() + "- {name: after, run: 'true'}\n")
    status = {s["name"]: s["status"] for s in build_report(run)["stages"]}
    assert status == {"data": "failed", "after": "skipped"}
    assert "output_lost" in warning_codes(run)


def test_dry_run_says_what_would_be_reused_and_changes_nothing(rows: Path, mark: str, own_home: Path) -> None:
    text = describe(load_recipe(write_recipe(rows, recipe())))
    assert "preprocess" in text and "run" in text.splitlines()[-1] and "reuse" not in text
    run = record(rows, recipe())
    before = sorted(own_home.rglob("*"))
    text = describe(load_recipe(rows / "recipe.yaml"))
    assert f"reuse (made by {run.name}" in text
    assert sorted(own_home.rglob("*")) == before


# -- the store


def test_commit_open_verify(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    made = make(store)
    assert made.path == tmp_path / "artifacts" / "dataset" / ("a" * 64)
    found = store.open("dataset", "a" * 64)
    assert found is not None and found.energy_j == 12.5 and found.size_b == 4 and found.problems() == []
    (made.path / "sub" / "file.bin").write_text("dama")
    assert found.problems() == ["sub/file.bin: content changed"]
    assert store.open("dataset", "a" * 64) is None
    assert not made.path.exists()


def test_an_unfinished_output_is_never_taken_for_whole(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    staging = store.staging("dataset", "b" * 64)
    (staging / "part").write_text("half")
    assert store.open("dataset", "b" * 64) is None and list(store) == []
    assert (store.staging("dataset", "b" * 64) / "part").read_text() == "half"  # a stage can resume
    with pytest.raises(UsageProblem, match="without an output"):
        store.commit(store.staging("dataset", "c" * 64), {"id": "c" * 64, "kind": "dataset"})


@pytest.mark.parametrize(
    "meta",
    [
        "",
        "[]",
        "{",
        '{"id": "x"}',
        '{"id": "i", "kind": "k", "files": {"../../etc/passwd": {"sha256": "0", "size": 1}}}',
    ],
)
def test_hostile_descriptions_are_not_artifacts(tmp_path: Path, meta: str) -> None:
    folder = tmp_path / "k" / "i"
    folder.mkdir(parents=True)
    (folder / "artifact.json").write_text(meta)
    assert list(ArtifactStore(tmp_path)) == [] and ArtifactStore(tmp_path).open("k", "i") is None


def test_uses_count_runs_once(tmp_path: Path) -> None:
    made = make(ArtifactStore(tmp_path))
    assert [made.add_use(run) for run in ("r1", "r2", "r1", "r3")] == [1, 2, 2, 3]
    with (made.path / "uses.jsonl").open("a") as f:
        f.write('torn {"run"\n[]\n{"run": 5}\n')
    assert made.add_use("r4") == 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.randoms())
def test_an_id_depends_on_values_not_on_order(settings, random) -> None:
    items = list(settings.items())
    random.shuffle(items)
    assert artifact_id("u", settings, {}, {}, "1") == artifact_id("u", dict(items), {}, {}, "1")
    assert artifact_id("u", settings, {}, {}, "1") != artifact_id("u", settings, {}, {}, "2")
    assert artifact_id("u", settings, {"data": "1"}, {}, "1") != artifact_id("u", settings, {"data": "2"}, {}, "1")
    assert json.loads(canonical(settings)) == settings


def test_hashes_are_remembered_and_noticed_when_stale(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    memory = HashMemory(tmp_path / "h.json")
    first = memory.of_path(path)
    memory.save()
    assert HashMemory(tmp_path / "h.json").of_path(path) == first
    path.write_text("two")  # as long as before
    os.utime(path, ns=(1, 1))
    assert HashMemory(tmp_path / "h.json").of_path(path) != first
    (tmp_path / "h.json").write_text("garbage")
    assert HashMemory(tmp_path / "h.json").of_path(tmp_path / "f") != first


# -- the lock


def holder(path: Path, taken, go) -> None:
    assert MakerLock(path).try_acquire()
    taken.set()
    go.wait()
    os._exit(1)


def test_a_dead_owners_lock_is_taken_over(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    taken, go = context.Event(), context.Event()
    process = context.Process(target=holder, args=(tmp_path / "l", taken, go))
    process.start()
    taken.wait(30)
    assert not MakerLock(tmp_path / "l").try_acquire()
    go.set()
    process.join(30)
    assert MakerLock(tmp_path / "l").try_acquire()


def test_one_of_many_gets_the_lock(tmp_path: Path) -> None:
    """Also where all of them find a stale one first."""
    for attempt in range(20):
        path = tmp_path / f"l{attempt}"
        path.mkdir()
        (path / "owner.json").write_text(json.dumps({**identity(), "start_time": 1}))
        locks = [MakerLock(path) for _ in range(8)]
        barrier = threading.Barrier(8)
        won: list[bool] = []

        def race(lock: MakerLock, barrier=barrier, won=won) -> None:
            barrier.wait()
            won.append(lock.try_acquire())

        threads = [threading.Thread(target=race, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # a loser may only have met the judge at work: it asks again, as a run does
        assert sum(won) <= 1, won
        assert sum(won) + MakerLock(path).try_acquire() == 1


def test_another_hosts_lock_lives_while_it_shows_itself(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.mkdir()
    (path / "owner.json").write_text(json.dumps({**identity(), "host_hash": "elsewhere"}))
    assert not MakerLock(path).try_acquire()
    old = time.time() - 3600
    os.utime(path / "owner.json", (old, old))
    assert MakerLock(path).try_acquire()


# -- the command


def kdwatch(*args: str):
    return CliRunner().invoke(cli, ["artifacts", *args])


def test_the_command(own_home: Path) -> None:
    store = ArtifactStore()
    make(store, "a1" * 32)
    damaged = make(store, "b2" * 32, kind="logits")
    assert [e["id"] for e in json.loads(kdwatch("ls", "--json").stdout)] == ["a1" * 32, "b2" * 32]
    assert "12.5 J" in kdwatch("ls").stdout
    assert "sub/file.bin" in kdwatch("show", "a1").stdout
    assert json.loads(kdwatch("show", "a1", "--json").stdout)["kind"] == "dataset"
    assert kdwatch("verify").exit_code == 0
    (damaged.path / "sub" / "file.bin").unlink()
    result = kdwatch("verify")
    assert result.exit_code == 1 and "file.bin" in result.stdout
    assert kdwatch("verify", "a1").exit_code == 0
    assert kdwatch("rm", "b2").exit_code == 0 and kdwatch("verify").exit_code == 0
    for args in (("show", "ff"), ("rm", "ff"), ("show", "")):
        result = kdwatch(*args)
        assert result.exit_code == 2 and "no artifact" in result.stderr and result.stdout == ""


def test_clean_takes_only_what_nobody_makes(own_home: Path) -> None:
    store = ArtifactStore()
    whole = make(store, "a1" * 32)
    for letter in "bc":
        (store.staging("dataset", letter * 64) / "part").write_text("12345")
    lock = store.lock("dataset", "c" * 64)
    assert lock.try_acquire()
    assert "would remove dataset-bbbb" in kdwatch("clean", "--dry-run").stdout
    done = kdwatch("clean")
    assert done.exit_code == 0 and done.stdout.splitlines() == [f"removed dataset-{'b' * 32}  5 B"]
    assert whole.problems() == [] and (store.staging("dataset", "c" * 64) / "part").exists()


def test_ambiguous_ids_are_refused(own_home: Path) -> None:
    make(ArtifactStore(), "a1" * 32)
    make(ArtifactStore(), "a2" * 32)
    result = kdwatch("rm", "a")
    assert result.exit_code == 2 and "2 artifacts begin with 'a'" in result.stderr
    assert len(list(ArtifactStore())) == 2


def test_hostile_names_do_not_reach_the_terminal(own_home: Path) -> None:
    store = ArtifactStore()
    staging = store.staging("dataset", "a" * 64)
    (staging / "f\x1b[31m").write_text("x")
    store.commit(staging, {"id": "a" * 64, "kind": "dataset", "made_by": {"run": "\x1b]0;t\x07r", "stage": "s"}})
    done = subprocess.run(
        [sys.executable, "-m", "kdwatch", "artifacts", "show", "aaaa"], capture_output=True, check=True, timeout=60
    )
    assert b"\x1b" not in done.stdout
