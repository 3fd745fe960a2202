"""`kdwatch export` without the command line: a run in, text or a file out."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.interop.export import codecarbon, html, markdown, modelcard, openmetrics, sci, tables
from kdwatch.interop.export.redact import Redactor
from kdwatch.ledger.report import build_report
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import RunReader, load_manifest

TEXT_FORMATS = (
    "codecarbon",
    "openmetrics",
    "prometheus",
    "modelcard",
    "sci",
    "samples-csv",
    "stages-csv",
    "markdown",
    "html",
)
BINARY_FORMATS = ("samples-parquet", "stages-parquet")
PLOT_POINTS = 800


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What the person set."""

    region: str | None = None
    g_per_kwh: float | None = None
    pue: float | None = None
    embodied_g: float | None = None
    redact: bool = False


class Exporter:
    """One run and its report, redacted if asked."""

    def __init__(self, run: Path, options: ExportOptions) -> None:
        """Raises UsageProblem: no run, unknown region, PUE below 1."""
        self.run = run
        self.options = options
        report = build_report(run, region=options.region, g_per_kwh=options.g_per_kwh, pue=options.pue)
        manifest = load_manifest(run)
        self._redactor = Redactor(_names(manifest)) if options.redact else None
        self.report: dict[str, Any] = self.change(report)
        self.manifest: dict[str, Any] = self.change(manifest)
        self._names = {str(d["key"]): str(d["name"]) for d in self.manifest.get("devices") or () if d.get("key")}

    def change(self, value: Any) -> Any:
        """A JSON value as it may leave: as it is, or redacted."""
        return self._redactor.value(value) if self._redactor else value

    def text(self, form: str) -> str:
        """A text format."""
        match form:
            case "codecarbon":
                return codecarbon.emissions_csv(self.report, self.manifest, self.options.redact)
            case "openmetrics":
                return openmetrics.openmetrics(openmetrics.families(self.report))
            case "prometheus":
                return openmetrics.prometheus(openmetrics.families(self.report))
            case "modelcard":
                return modelcard.model_card(self.report, self.manifest)
            case "sci":
                return sci.sci_csv(self.report, self.options.embodied_g)
            case "samples-csv":
                out = io.StringIO()
                tables.write_samples_csv(self.run, out)
                return out.getvalue()
            case "stages-csv":
                return tables.stages_csv(self.report)
            case "markdown":
                return markdown.markdown(self.report)
            case "html":
                history = RunReader(self.run).power_history(PLOT_POINTS)
                return html.html(self.report, history, self._names, self._counters_only())
        raise UsageProblem(f"--format {form}: not a text format")

    def _counters_only(self) -> set[str]:
        """Keys of devices that no stage has a power reading of."""
        with_power = {d["id"] for stage in self.report["stages"] for d in stage["devices"] if d["peak_w"] is not None}
        return {str(d["key"]) for d in self.manifest.get("devices") or () if d.get("id") not in with_power}

    def binary(self, form: str, target: Path) -> None:
        """A Parquet file."""
        if form == "samples-parquet":
            tables.write_samples_parquet(self.run, target)
        else:
            tables.write_stages_parquet(self.report, target)

    def stream_samples(self, target: Path) -> None:
        """Samples as CSV straight to a file: a long run does not fit in memory."""
        with target.open("w", encoding="utf-8", newline="") as out:
            tables.write_samples_csv(self.run, out)


def _names(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Names of hosts that a manifest knows, and what stands for them; those of imported devices stay apart."""
    recorder = manifest.get("recorder")
    host = recorder.get("host") if isinstance(recorder, Mapping) else None
    found = {str(host): "[host]"} if host else {}
    hosts = [device["details"].get("host") for device in manifest.get("devices") or ()]
    for name in dict.fromkeys(str(name) for name in hosts if name):
        found.setdefault(name, f"machine-{len(found) + 1}")
    return found
