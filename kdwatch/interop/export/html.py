"""A report as one HTML file: no script, nothing loaded from elsewhere, pictures inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from html import escape
from typing import Any

from kdwatch.interop.export.svg import energy_chart, power_chart
from kdwatch.ledger.marks import component_energies, is_estimated, marked, modelled
from kdwatch.ledger.units import format_duration, format_number
from kdwatch.rundir.rollup import Bucket
from kdwatch.rundir.text import clean

STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--line:#d0d0d0;--soft:#00000008;--softer:#00000012}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#161616;--line:#444;--soft:#ffffff0a;--softer:#ffffff14}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}
dd{margin:0} svg{width:100%;height:auto;margin:.5rem 0 1.5rem} svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .grid{stroke:var(--line)} svg .stage0{fill:var(--soft)} svg .stage1{fill:var(--softer)} svg .quiet{opacity:.7}
.scroll{overflow-x:auto} footer{opacity:.7;margin-top:2rem}
"""


def html(
    report: Mapping[str, Any],
    history: Mapping[str, Sequence[Bucket]],
    names: Mapping[str, str],
    stepped: Set[str] = frozenset(),
) -> str:
    """The document. `history`: power by device key; `names`: what the legend calls each key; `stepped`: keys whose
    power is a mean between counter readings."""
    title = escape(clean(report["name"] or report["run_id"], 80))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title} - kdwatch</title><style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        _facts(report),
        _picture("Power over time", power_chart(history, report, names, stepped)),
        _picture("Energy by stage", energy_chart(report)),
        "<h2>Stages</h2>",
        _stages(report),
        "<h2>Devices</h2>",
        _devices(report),
        _warnings(report),
        "<footer>~ marks energy that is in part a model's. n/a is unknown, not zero. Written by kdwatch.</footer>",
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _picture(title: str, svg: str) -> str:
    return f"<h2>{title}</h2>\n{svg}" if svg else ""


def _facts(report: Mapping[str, Any]) -> str:
    rows = [f"<dt>{escape(name)}</dt><dd>{escape(clean(text, 200))}</dd>" for name, text in _fact_pairs(report)]
    return f"<dl>{''.join(rows)}</dl>"


def _fact_pairs(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "run", str(report["run_id"])
    yield "regime", str(report["regime"])
    yield "status", str(report["status"])
    yield "started", str(report["started_at"] or "n/a")
    yield "time", format_duration(report["duration_s"])
    estimated = bool(modelled(report["devices"]))
    yield "energy", marked(report["total_j"], estimated)
    yield "outside stages", marked(report["unattributed_j"], estimated)
    if report["co2e_kg"] is not None:
        pue = f", PUE {report['pue']:g}" if report["pue"] else ""
        yield (
            "CO2e",
            f"{1000 * report['co2e_kg']:.4g} g at {report['grid_g_per_kwh']:g} g/kWh{pue} ({report['grid_source']})",
        )
    if report.get("quality") and report["quality"]["q"] is not None:
        yield "quality Q", f"{report['quality']['q']:.3f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: int) -> str:
    """A table whose columns from `numeric` on are numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        inside = (
            f"<{tag}{' class=n' if i >= numeric else ''}>{escape(clean(c, 80))}</{tag}>" for i, c in enumerate(cells)
        )
        return f"<tr>{''.join(inside)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table><thead>{row(heads, "th")}</thead><tbody>{body}</tbody></table></div>'


def _stages(report: Mapping[str, Any]) -> str:
    heads = ("stage", "kind", "status", "time", "energy", "GPU", "CPU", "DRAM", "tokens", "J/token")
    rows = []
    for stage in report["stages"]:
        rows.append(
            (
                str(stage["name"]),
                str(stage["kind"]),
                str(stage["status"]),
                format_duration(stage["duration_s"]),
                *component_energies(stage),
                "n/a" if stage["tokens"] is None else str(stage["tokens"]),
                format_number(stage["j_per_token"]),
            )
        )
    return _table(heads, rows, 3)


def _devices(report: Mapping[str, Any]) -> str:
    heads = ("device", "kind", "source", "scope", "energy", "outside stages", "coverage")
    rows = [
        (
            str(d["name"]) + ("" if d["counted"] else " (not in the total)"),
            str(d["kind"]),
            str(d["source"]),
            str(d["scope"]),
            marked(d["total_j"], is_estimated(d)),
            marked(d["unattributed_j"], is_estimated(d)),
            "n/a" if d["coverage"] is None else f"{d['coverage']:.0%}",
        )
        for d in report["devices"]
    ]
    return _table(heads, rows, 4)


def _warnings(report: Mapping[str, Any]) -> str:
    if not report["warnings"]:
        return ""
    items = (f"<li>{escape(clean(w['code'], 40))}: {escape(clean(w['text'], 400))}</li>" for w in report["warnings"])
    return f"<h2>Warnings</h2><ul>{''.join(items)}</ul>"
