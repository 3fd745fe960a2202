"""What we export, the tools' own readers accept, with the same numbers."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import math
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kdwatch.cli.export import export
from kdwatch.interop.compare import compare, load
from kdwatch.interop.export.cells import safe_cell
from kdwatch.interop.export.redact import Redactor
from kdwatch.interop.exporting import Exporter, ExportOptions
from kdwatch.interop.load import load_log
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir
from kdwatch.rundir.writer import RunWriter

UUID = "GPU-12345678-1234-1234-1234-123456789abc"
EVIL = '=cmd|"/C calc"!A1'
KWH = 3.6e6


@pytest.fixture
def run() -> Path:
    """A finished run of two stages: GPU at 300 W, CPU at 50 W, modelled RAM; one name a spreadsheet would execute."""
    manifest = {
        "name": "demo </script><script>alert(1)</script>",
        "regime": "kd",
        "clock": {"monotonic_origin": 0.0, "wall_origin": 1_767_760_000.0, "boottime_origin": 0.0},
        "created_at": "2026-01-07T04:26:40Z",
        "region": "FRA",
        "pue": 1.2,
        "hardware": {"cpu": "Test CPU", "cores": 8, "memory_b": 16 << 30, "gpus": ["NVIDIA A100"]},
        "versions": {"python": "3.11.7", "system": "Linux 6.1"},
        "stages": [{"name": "teacher", "kind": "teacher"}, {"name": EVIL, "kind": "student"}],
        "devices": [
            device("g0", UUID, "NVIDIA A100", "gpu", "counter"),
            device("cpu0", "rapl:package-0", "package-0", "cpu", "counter"),
            device("ram", "estimate:ram", "RAM", "ram_estimated", "estimated"),
        ],
    }
    writer = RunWriter.create(runs_dir() / "20260107-042640-demo-0001", manifest)
    writer.event("run_started", 0.0)
    writer.open_stream("all", ["g0_j", "g0_w", "cpu0_j", "cpu0_w", "ram_w"])
    for step in range(201):
        t = step / 10
        if step in (100, 200):
            name = "teacher" if step == 100 else EVIL
            writer.event("progress", t, stage=name, tokens=1000 * step)
            writer.event("stage_ended", t, stage=name, status="completed", exit_code=0)
        if step in (0, 100):
            writer.event("stage_started", t, stage="teacher" if step == 0 else EVIL)
        writer.sample("all", t, [300.0 * t, 300.0, 50.0 * t, 50.0, 6.0])
    writer.event("warning", 20.0, code="test", text=f"seen on /home/someone/secret/file.txt by {UUID}")
    writer.event("run_ended", 20.0, status="completed", exit_code=0)
    writer.close()
    return writer.path


def device(key: str, id: str, name: str, kind: str, source: str) -> dict:
    scope = {"gpu": "gpu", "cpu": "package"}.get(kind, "dram")
    return {
        "key": key, "id": id, "name": name, "kind": kind, "scope": scope, "source": source, "index": 0, "wrap_j": None,
        "limit_w": None, "average_window_s": 0.0, "systematic": 0.05, "details": {}, "stream": "all",
    }  # fmt: skip


def exporter(run: Path, **options) -> Exporter:
    return Exporter(run, ExportOptions(**options))


@pytest.mark.parametrize("form", ["openmetrics", "prometheus"])
def test_metrics_add_up_to_the_total_whatever_stands_beside(run: Path, form: str) -> None:
    """A package that repeats another one's counter is shown in tables, marked, and is no series of energy."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["devices"][1]["details"] = {"mirror_of": "g0"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    report, text = exporter(run).report, exporter(run).text(form)
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("kdwatch_") and "_joules" in line]
    device = sum(float(value) for name, value in lines if name.startswith("kdwatch_device_energy_joules"))
    stage = sum(float(value) for name, value in lines if name.startswith("kdwatch_stage_energy_joules"))
    assert device == pytest.approx(report["total_j"]) and stage + report["unattributed_j"] == pytest.approx(device)
    assert report["total_j"] == pytest.approx(300.0 * 20 + 6.0 * 20, rel=0.01)
    assert "package-0 (not in the total)" in exporter(run).text("markdown")
    assert "package-0 (not in the total)" in exporter(run).text("html")


def test_comparing_leaves_out_what_stands_beside_the_total(run: Path) -> None:
    """A package that repeats another one's counter is neither added nor a component that a run has."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["devices"][2] = {**manifest["devices"][1], "key": "ram", "id": "rapl:package-1"}
    manifest["devices"][2]["details"] = {"mirror_of": "cpu0"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    report = load(run)
    found = compare([report, report])
    assert found["components"] == ["gpu", "cpu"]
    assert found["total"]["energy_j"] == pytest.approx([report["total_j"]] * 2)
    assert sum(stage["energy_j"][0] for stage in found["stages"]) == pytest.approx(report["total_j"])
    manifest["devices"][2]["details"] = {}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert compare([load(run)])["total"]["energy_j"][0] > report["total_j"] + 100.0


def test_codecarbon_reads_our_emissions(run: Path, tmp_path: Path) -> None:
    """CodeCarbon's FileOutput takes the header as its own, its EmissionsData every row, and appends behind ours."""
    from codecarbon.output_methods.emissions_data import EmissionsData
    from codecarbon.output_methods.file import FileOutput

    path = tmp_path / "emissions.csv"
    path.write_text(exporter(run).text("codecarbon"))
    rows = list(csv.DictReader(path.open(newline="")))
    data = [EmissionsData(**row) for row in rows]
    output = FileOutput("emissions.csv", str(tmp_path))
    assert output.has_valid_headers(data[0])
    output.out(data[0], None)
    assert len(list(csv.DictReader(path.open(newline="")))) == len(rows) + 1, "no backup, one row more"
    report = exporter(run).report
    for row, stage in zip(rows, report["stages"], strict=True):
        assert float(row["gpu_energy"]) * KWH == pytest.approx(stage["energy_j"]["gpu"])
        assert float(row["cpu_energy"]) * KWH == pytest.approx(stage["energy_j"]["cpu"])
        assert float(row["energy_consumed"]) * KWH == pytest.approx(stage["energy_j"]["total"])
        kwh = stage["energy_j"]["total"] / KWH
        assert float(row["emissions"]) == pytest.approx(kwh * 1.2 * report["grid_g_per_kwh"] / 1000)
    assert rows[0]["timestamp"] == "2026-01-07T04:26:50" and len({row["run_id"] for row in rows}) == 2


def test_powers_of_emissions_are_the_reports(run: Path) -> None:
    """20 s at 300 W and 50 W, of which another stage takes 10 s within the first: each is 300 W, not 150 W."""
    events = run / "events.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    for line in lines:
        if line.get("stage") == EVIL and line["type"] == "stage_started":
            line["parent"] = "teacher"
        if line.get("stage") == "teacher" and line["type"] == "stage_ended":
            line["t"] = 20.0
    events.write_text("".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["t"])))
    report = exporter(run).report
    outer, inner = report["stages"]
    assert (outer["duration_s"], inner["duration_s"]) == (20.0, 10.0)
    for row, stage in zip(csv.DictReader(io.StringIO(exporter(run).text("codecarbon"))), (outer, inner), strict=True):
        powers = {kind: float(row[f"{kind}_power"]) for kind in ("gpu", "cpu", "ram")}
        assert powers["gpu"] == pytest.approx(300.0, rel=0.01) and powers["cpu"] == pytest.approx(50.0, rel=0.01)
        assert sum(powers.values()) == pytest.approx(stage["mean_w"])


def test_our_own_import_reads_our_emissions(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "emissions.csv"
    path.write_text(exporter(run).text("codecarbon"))
    log = load_log(path)
    assert log.total_j == pytest.approx(exporter(run).report["total_j"], rel=1e-9)


def test_prometheus_client_reads_both_texts(run: Path) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as prometheus

    report = exporter(run).report
    for form, parse in (("openmetrics", openmetrics), ("prometheus", prometheus)):
        families = {family.name: family for family in parse(exporter(run).text(form))}
        energy = families["kdwatch_stage_energy_joules"]
        assert energy.type == "counter"
        of_gpu = [s for s in energy.samples if s.labels["kind"] == "gpu"]
        assert [s.value for s in of_gpu] == pytest.approx([s["energy_j"]["gpu"] for s in report["stages"]])
        assert of_gpu[1].labels["stage"] == EVIL and of_gpu[0].labels["device"] == UUID
        (grams,) = families["kdwatch_run_co2e_grams"].samples
        assert grams.value == pytest.approx(1000 * report["co2e_kg"])


def test_unknown_has_no_metric(run: Path) -> None:
    report = dict(exporter(run).report, total_j=None, co2e_kg=None)
    from kdwatch.interop.export.openmetrics import families

    names = {family.name for family in families(report)}
    assert "kdwatch_run_energy_joules" not in names and "kdwatch_run_co2e_grams" not in names


def test_huggingface_hub_reads_the_model_card(run: Path) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(exporter(run).text("modelcard"))
    block = card.data.to_dict()["co2_eq_emissions"]
    report = exporter(run).report
    assert block["emissions"] == pytest.approx(1000 * report["co2e_kg"], abs=1e-3), "grams"
    assert block["geographical_location"] == "FRA" and "NVIDIA A100" in block["hardware_used"]
    assert "distillation" in block["training_type"] and "in part estimated" in block["source"]


def test_model_card_without_a_grid_factor_is_refused(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["region"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageProblem, match="--region"):
        exporter(run).text("modelcard")
    assert "emissions:" in exporter(run, g_per_kwh=100.0).text("modelcard")


def test_sci_rows_follow_the_formula(run: Path) -> None:
    """SCI = (E x I + M) per R, with E at the meter (PUE) and M shared out by time: 50 g for each half."""
    rows = list(csv.DictReader(io.StringIO(exporter(run, embodied_g=100.0).text("sci"))))
    report = exporter(run).report
    for row, stage in zip(rows, report["stages"], strict=True):
        e = stage["energy_j"]["total"] / KWH * 1.2
        assert float(row["e_kwh"]) == pytest.approx(e)
        assert float(row["m_g"]) == pytest.approx(50.0)
        assert float(row["sci_g_per_r"]) == pytest.approx((e * report["grid_g_per_kwh"] + 50.0) / stage["tokens"])
    without = next(csv.DictReader(io.StringIO(exporter(run).text("sci"))))
    assert without["m_g"] == "" and "M unknown" in without["notes"]


def test_samples_and_stages_as_tables(run: Path, tmp_path: Path) -> None:
    import polars as pl

    exporter(run).binary("samples-parquet", tmp_path / "s.parquet")
    samples = pl.read_parquet(tmp_path / "s.parquet")
    gpu = samples.filter(pl.col("device") == "g0").sort("t_s")
    assert gpu.height == 201 and gpu["counter_j"][-1] == pytest.approx(6000.0) and gpu["average_w"].null_count() == 201
    text = exporter(run).text("samples-csv")
    assert text.count("\n") == 1 + samples.height
    exporter(run).binary("stages-parquet", tmp_path / "t.parquet")
    stages = pl.read_parquet(tmp_path / "t.parquet")
    assert stages["gpu_j"].sum() == pytest.approx(sum(s["energy_j"]["gpu"] for s in exporter(run).report["stages"]))


@pytest.mark.parametrize("form", ["codecarbon", "stages-csv", "sci"])
def test_no_cell_starts_a_formula(run: Path, form: str) -> None:
    for row in csv.reader(io.StringIO(exporter(run).text(form))):
        for cell in row:
            try:
                float(cell)
            except ValueError:
                assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "|", "%")), cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "|x", "%x"])
def test_formulas_become_text_and_numbers_stay(text: str) -> None:
    assert safe_cell(text) == f"'{text}"
    assert safe_cell(-1.5) == -1.5 and safe_cell(None) == "" and safe_cell("plain") == "plain"


class Tags(html.parser.HTMLParser):
    """Counts what a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.loads += [
            value for name, value in attrs if name in ("src", "href", "data", "srcset") or name.startswith("on")
        ]


def test_html_is_self_contained_and_escaped(run: Path) -> None:
    text = exporter(run).text("html")
    page = Tags()
    page.feed(text)
    assert "script" not in page.tags and page.loads == []
    assert page.tags.count("svg") == 2 and "polyline" in page.tags
    assert "&lt;script&gt;" in text and "http://www.w3.org/2000/svg" in text
    assert text.count("http") == 2 + text.count("http-equiv"), "no address but the SVG namespace"
    for picture in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + picture.partition("</svg>")[0] + "</svg>")


def test_markdown_cells_stay_cells(run: Path) -> None:
    table = [line for line in exporter(run).text("markdown").splitlines() if "calc" in line and line.startswith("|")]
    assert len(table) == 1 and table[0].replace("\\|", "").count("|") == 11


@pytest.mark.parametrize(
    "form", ["codecarbon", "openmetrics", "prometheus", "modelcard", "sci", "stages-csv", "markdown", "html"]
)
def test_redact_takes_out_uuid_path_and_user(run: Path, form: str) -> None:
    text = exporter(run, redact=True).text(form)
    assert UUID not in text and "12345678-1234" not in text and "/home/someone" not in text and "secret" not in text
    assert "6.1" not in text if form == "codecarbon" else True


@pytest.mark.parametrize("form", ["openmetrics", "prometheus", "markdown", "html", "codecarbon", "stages-csv"])
def test_redact_takes_out_the_hosts_of_an_imported_log(bring, tmp_path: Path, form: str) -> None:
    """Two hosts with a GPU 0 each stay two devices."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

    log = tmp_path / "gpu.csv"
    rows = [f"2026-01-03T15:36:5{s}Z,{host},0,100" for s in range(3) for host in ("bobshost", "evehost")]
    log.write_text("\n".join(["timestamp,hostname,gpu_index,power_w", *rows]) + "\n")
    text = exporter(bring(log).run, redact=True).text(form)
    assert "bobshost" not in text and "evehost" not in text
    if form == "openmetrics":
        devices = {s.labels["device"] for family in openmetrics(text) for s in family.samples if "device" in s.labels}
        assert devices == {"gpu.csv:machine-1/0", "gpu.csv:machine-2/0"}


def test_redactor_keeps_equal_ids_equal() -> None:
    redactor = Redactor({"node-x7": "[host]"})
    first = redactor.value({"a": f"{UUID} on node-x7 at 10.0.0.5, ssh me@host.example", "b": [UUID, r"C:\Users\me\x"]})
    assert first["a"].startswith("device-1 on [host] at [address]") and "example" not in first["a"]
    assert first["b"] == ["device-1", "[path]"]
    assert redactor.text("3 J/token, 10 W/GPU and 50 %") == "3 J/token, 10 W/GPU and 50 %"


def test_textfile_follows_a_run_to_its_end(run: Path, tmp_path: Path, monkeypatch) -> None:
    """Three writes while it runs, a last one after; each is whole and readable."""
    from prometheus_client.parser import text_string_to_metric_families as prometheus

    from kdwatch.interop.export import textfile
    from kdwatch.rundir.reader import RunReader

    states = iter(["running"] * 6 + ["completed"] * 10)
    monkeypatch.setattr(RunReader, "status", lambda self: next(states))
    seen = []
    target = tmp_path / "kdwatch.prom"

    def sleep(seconds: float) -> None:
        seen.append({family.name for family in prometheus(target.read_text())})

    written = textfile.follow(run, target, 0.5, lambda value: value, pytest.fail, sleep)
    assert written == len(seen) + 1 >= 3
    assert all("kdwatch_stage_energy_joules" in names for names in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["kdwatch.prom"], "no half-written file is left"


def test_a_textfile_that_cannot_be_written_for_a_while_is_tried_again(run: Path, tmp_path: Path, monkeypatch) -> None:
    """Its directory is away for two turns (a full or unmounted disk): said once, and the last state is written."""
    from kdwatch.interop.export import textfile
    from kdwatch.rundir.reader import RunReader

    states = iter(["running"] * 8 + ["completed"] * 2)
    monkeypatch.setattr(RunReader, "status", lambda self: next(states))
    folder, away = tmp_path / "metrics", tmp_path / "away"
    folder.mkdir()
    turns: list[float] = []
    said: list[str] = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 1:
            folder.rename(away)
        elif len(turns) == 3:
            away.rename(folder)

    written = textfile.follow(run, folder / "k.prom", 15.0, lambda value: value, said.append, sleep)
    assert (written, len(turns)) == (3, 4)
    (line,) = said
    assert "cannot be written" in line and "trying again every 15 s" in line


class FakeTracker(types.ModuleType):
    """Stands for wandb or Trackio: init gives a run with log and finish."""

    def __init__(self) -> None:
        super().__init__("tracker")
        self.logged: list[dict[str, float]] = []
        self.finished = False

    def init(self, **kwargs):
        assert kwargs["project"] == "kdwatch"
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_stages_go_to_a_tracker(run: Path, name: str, monkeypatch) -> None:
    from kdwatch.interop.export.trackers import TRACKERS

    fake = FakeTracker()
    monkeypatch.setitem(sys.modules, name, fake)
    assert "2 stages" in TRACKERS[name](exporter(run).report, None)
    assert fake.finished and fake.logged[0]["teacher/gpu_j"] == pytest.approx(3000.0, rel=0.01)
    assert all(math.isfinite(value) for values in fake.logged for value in values.values())


def test_tracker_that_is_not_installed_is_one_line(run: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = CliRunner().invoke(export, [run.name, "--format", "mlflow"])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "pip install mlflow" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "either --format or --textfile"),
        (["--format", "samples-parquet"], "-o FILE.parquet"),
        (["--format", "html", "-o", "/nowhere/x.html"], "cannot be written"),
        (["--format", "sci", "--region", "FRB"], "FRA"),
        (["--format", "sci", "--embodied", "-1"], "--embodied"),
        (["--textfile", "x.prom", "--every", "0s"], "--every"),
    ],
)
def test_bad_use_is_one_line(run: Path, args: list[str], says: str) -> None:
    done = CliRunner().invoke(export, [run.name, *args])
    assert done.exit_code == 2, done.output
    assert says in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_power_between_counter_readings_is_drawn_in_steps(bring) -> None:
    """Zeus windows give energy only: 0 to 33.28 s at 119.94 W (the index's first window) is a flat line."""
    logs = Path(__file__).parents[1] / "data" / "logs"
    text = exporter(bring(logs / "44_zeus_monitor_4gpu_a40.csv").run).text("html")
    points = [pair.split(",") for pair in text.split('<polyline points="')[1].split('"')[0].split()]
    assert points[0][1] == points[1][1] and points[0][0] == "64.0"
    assert float(points[1][0]) == pytest.approx(64 + 824 * 33.2775 / 405.0065, abs=0.1)


def test_a_textfile_is_of_the_grid_that_was_asked_for(run: Path, tmp_path: Path) -> None:
    """20 s of 300 + 50 + 6 W are 7120 J; at 100 g/kWh and PUE 1.5 that is 7120 / 3.6e6 x 1.5 x 100 g, whatever the run
    recorded (docs/protocol.md, section 8)."""
    target = tmp_path / "k.prom"
    args = [run.name, "--textfile", str(target), "--intensity", "100", "--pue", "1.5"]
    done = CliRunner().invoke(export, args)
    assert done.exit_code == 0, done.output
    (line,) = [line for line in target.read_text().splitlines() if line.startswith("kdwatch_run_co2e_grams{")]
    assert float(line.split()[-1]) == pytest.approx(7120 / KWH * 1.5 * 100, rel=1e-6)


@pytest.mark.parametrize("form", ["markdown", "html", "modelcard"])
def test_what_a_model_told_is_marked_in_every_cell(run: Path, form: str) -> None:
    """10 s of 300, 50 and 6 W (the fixture's) are 3000 J, 500 J and 60 J; only the RAM is a model's, and what it is
    part of: a stage's 3560 J and the run's 7120 J (docs/screens.md, Marks)."""
    text = exporter(run).text(form).replace("\u00a0", " ")
    assert "~3.56 kJ" in text and "~7.12 kJ" in text and "~60.0 J" in text
    assert "3.00 kJ" in text and "~3.00 kJ" not in text and "500 J" in text and "~500 J" not in text
    for unmarked in ("3.56 kJ", "7.12 kJ", "60.0 J"):
        assert text.count(unmarked) == text.count(f"~{unmarked}")
