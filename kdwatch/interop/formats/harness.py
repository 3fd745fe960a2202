"""Single JSON files of the study's harness: a stage, a snapshot, or a summary."""

from __future__ import annotations

import json
from typing import Any

from kdwatch.interop.formats.harness_stage import add_devices, stage_of
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedStage, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.values import integer_or_none, number_or_none


def parse_json(source: TextSource) -> dict[str, Any]:
    """The document, an object. Raises LogProblem where it is cut off or no object."""
    try:
        data = json.loads(source.text())
    except ValueError as error:
        raise LogProblem(f"not whole JSON ({error}); was the file cut off?") from None
    except RecursionError:
        raise LogProblem("JSON nested too deeply") from None
    if not isinstance(data, dict):
        raise LogProblem(f"a JSON {type(data).__name__}, not an object")
    return data


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read a stage or a summary."""
    data = parse_json(source)
    if isinstance(data.get("stages"), dict):
        return _summary(source, data)
    log = ImportedLog(source.path, "harness-stage-json", source.encoding, rows=1)
    stage = stage_of(data)
    if stage.total_j is None:
        raise LogProblem("no energy: gpu_energy_joules is missing", columns=sorted(map(str, data)), rows=1)
    log.stages.append(stage)
    add_devices(log)
    log.details |= {"stage_id": stage.name} | stage.details
    return log


def _summary(source: TextSource, data: dict[str, Any]) -> ImportedLog:
    log = ImportedLog(source.path, "harness-summary-json", source.encoding)
    log.stages = summary_stages(data)
    log.rows = len(log.stages)
    if not log.stages:
        raise LogProblem("a summary without stages", columns=sorted(map(str, data)), rows=0)
    add_devices(log)
    log.details |= summary_facts(data)
    log.note("summary_only", "a summary without samples: rebuilt summaries carry token counts that are too low")
    return log


def summary_stages(data: dict[str, Any]) -> list[LoggedStage]:
    """Stages of a summary's `stages` object."""
    found = data.get("stages")
    return [stage_of(entry) for entry in found.values() if isinstance(entry, dict)] if isinstance(found, dict) else []


def _text(value: object) -> str | None:
    return str(value)[:200] if value is not None else None


def summary_facts(data: dict[str, Any]) -> dict[str, Any]:
    """The summary's own totals, as written."""
    return {
        "summary_total_energy_j": number_or_none(data.get("total_energy_joules")),
        "summary_tokens": integer_or_none(data.get("total_tokens_processed")),
        "summary_duration_s": number_or_none(data.get("total_duration_seconds")),
        "summary_start_local": _text(data.get("start_time")),
        "experiment": _text(data.get("experiment_name")),
    }
