"""A sweep as text: its points with what they cost and scored, the frontier, and how to plan with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from kdwatch.ledger.marks import marked
from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.text import clean

Row = dict[str, Any]


def result_lines(result: Row) -> Iterator[str]:
    """The lines that `kdwatch sweep` prints at its end."""
    points = result["points"]
    skipped = sum(point["skipped"] for point in points)
    spent = marked(result["spent_j"], any(point["estimated"] for point in points))
    ran = len(points) - skipped
    now = f"{ran} run now with {spent}" if ran else "none run now"
    yield f"{clean(result['name'], 64)}: {len(points)} points, {now}, {skipped} done before"
    yield ""
    yield from table([("", "point", "per student", "Q", "status", "run"), *map(_row, points)])
    if result["frontier"]:
        yield ""
        estimates = "; ~ contains estimates" if any(point["estimated"] for point in points) else ""
        yield f"* on the frontier. Energy per student at reuse 1: a teacher's output counts in full{estimates}."
        yield "Plan with it: kdwatch plan --frontier " + " ".join(_sources(points))
    for left in result["left_out"]:
        yield f"! not on the plane: {clean(left['why'], 300)}"


def _row(point: Row) -> tuple[str, ...]:
    energy = point["per_student_kwh"]
    return (
        "*" if point["on_frontier"] else "",
        clean(point["name"], 64),
        marked(None if energy is None else energy * KWH_J, point["estimated"]),
        "n/a" if point["quality"] is None else f"{point['quality']:.3f}",
        point["status"] + (", before" if point["skipped"] else ""),
        clean(point["run_id"], 100),
    )


def _sources(points: Sequence[Row]) -> list[str]:
    """Run ids of the points that a plan can use, each once."""
    usable = [point["run_id"] for point in points if point["per_student_kwh"] is not None]
    return [shlex.quote(run) for run in dict.fromkeys(usable)]


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as aligned lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def point_line(number: int, count: int, point: Row) -> str:
    """One line when a point has ended: `[3/12] kd-alpha0.3  completed  1.20 kJ  Q 0.810  reused teacher`."""
    energy = marked(point["total_j"], point["estimated"])
    parts = [f"[{number}/{count}] {clean(point['name'], 64)}", point["status"], energy]
    parts += [f"Q {point['quality']:.3f}"] if point["quality"] is not None else []
    if point["failed"]:
        log = f"{point['run']}/logs/{point['failed'][0]}.log"
        parts.append(f"stage {clean(point['failed'][0], 64)} failed: see {clean(log, 300)}")
    if point["skipped"]:
        parts.append("done before, skipped")
    elif point["reused"] and not point["failed"]:
        parts.append("reused " + ", ".join(clean(name, 40) for name in point["reused"]))
    return "  ".join(parts)


def plan_lines(plan: Row) -> Iterator[str]:
    """The lines that `kdwatch sweep --dry-run` prints."""
    from kdwatch.pipeline.dry_run import energy_range, size_text

    points = plan["points"]
    done = sum(point["status"] == "completed" for point in points)
    yield f"{clean(plan['name'], 64)}: {len(points)} points, {len(points) - done} to run, {done} done before"
    yield ""
    yield from table([("point", "status", "runs", "takes"), *map(_plan_row, points)])
    yield ""
    yield f"{plan['stages_to_run']} stages to run; disk: {size_text(plan['disk_b'])} of new outputs"
    without = plan["energy_without"]
    left = f", without {clean(', '.join(without), 200)}" if without else ""
    if plan["energy_j"] is None:
        yield f"energy: n/a{left}"
    else:
        numbers = energy_range(plan["energy_j"], plan["energy_low_j"], plan["energy_high_j"])
        yield f"energy: {numbers} at 90 %, {' and '.join(plan['energy_labels'])}{left}"
    yield from _unknown(points)
    yield "nothing was run"


def _unknown(points: Sequence[Row]) -> Iterator[str]:
    """Why an energy is not in the sum; each reason once."""
    stages = [s for point in points for s in point["stages"] if s["energy_j"] is None and not _taken(s)]
    for why in dict.fromkeys(s["energy_basis"] for s in stages):
        names = dict.fromkeys(s["name"] for s in stages if s["energy_basis"] == why)
        yield f"  n/a: energy of {clean(', '.join(names), 200)}: {clean(why, 200)}"


def _taken(stage: Row) -> bool:
    """Whether a stage's output comes from the store or from an earlier point."""
    return stage["reuses"] is not None or stage["made_by_point"] is not None


def _plan_row(point: Row) -> tuple[str, ...]:
    runs = [s["name"] for s in point["stages"] if not _taken(s)]
    takes = [s["name"] for s in point["stages"] if _taken(s)]
    status = {"completed": "done", "running": "runs now"}.get(point["status"], str(point["status"]))
    return clean(point["name"], 64), status, clean(", ".join(runs), 120) or "-", clean(", ".join(takes), 120) or "-"
