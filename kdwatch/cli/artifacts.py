"""`kdwatch artifacts`: the store of stage outputs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.pipeline.artifacts import Artifact


@click.group("artifacts")
def artifacts() -> None:
    """List, show, verify and remove stored stage outputs.

    Runs reuse an output when settings, inputs and code match what made it.

    \b
    kdwatch artifacts ls
    kdwatch artifacts show 3f9c
    kdwatch artifacts verify
    kdwatch artifacts rm 3f9c
    kdwatch artifacts clean --dry-run
    """


def entry(artifact: Artifact) -> dict[str, Any]:
    """One artifact as JSON output tells it."""
    uses = artifact.uses()
    return {
        "id": artifact.id,
        "kind": artifact.kind,
        "path": str(artifact.path),
        "size_bytes": artifact.size_b,
        "energy_j": artifact.energy_j,
        "estimated": artifact.estimated,
        "made_by": artifact.made_by,
        "created_at": artifact.meta.get("created_at"),
        "uses": len(uses),
    }


def energy_of(found: dict[str, Any]) -> str:
    """Energy that made an output, for people: `~` where a model told a part of it."""
    from kdwatch.ledger.marks import marked

    return marked(found["energy_j"], found["estimated"])


@artifacts.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@one_line_errors
def ls(as_json: bool) -> None:
    """List stored outputs: kind, id, size, energy that made them, how many runs used them."""
    from kdwatch.pipeline.artifacts import SHORT, ArtifactStore
    from kdwatch.rundir.text import clean

    found = [entry(a) for a in ArtifactStore()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [("KIND", "ID", "SIZE", "ENERGY", "USES", "MADE BY")]
    for e in found:
        made = clean(e["made_by"].get("run"), 60) or "n/a"
        rows.append(
            (
                clean(e["kind"], 20),
                clean(e["id"], SHORT + 1)[:SHORT],
                size(e["size_bytes"]),
                energy_of(e),
                str(e["uses"]),
                made,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def size(count: int) -> str:
    """Bytes for people, decimal units."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


@artifacts.command("show")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="The whole description as JSON.")
@one_line_errors
def show(id: str, as_json: bool) -> None:
    """Show what made an output, its files, and the runs that used it. ID may be the beginning of one."""
    from kdwatch.pipeline.artifacts import ArtifactStore
    from kdwatch.rundir.text import clean

    found = ArtifactStore().find(id)
    if as_json:
        click.echo(json.dumps({**found.meta, "path": str(found.path), "uses": found.uses()}, indent=2))
        return
    e, made = entry(found), found.made_by
    click.echo(f"{clean(found.kind)} {clean(found.id)}")
    click.echo(f"made by   {clean(made.get('run'))}, stage {clean(made.get('stage'))}, {clean(e['created_at'])}")
    click.echo(f"energy    {energy_of(e)}")
    for attempt in found.attempts:
        joules = attempt["energy_j"]
        known = isinstance(joules, int | float)
        spent = energy_of({**e, "energy_j": joules}) if known else "unknown energy"
        click.echo(f"  of it   {spent} in run {clean(str(attempt['run']), 80)}, which did not finish it")
    for name, id_ in sorted(dict(found.meta.get("inputs") or {}).items()):
        click.echo(f"input     {clean(name)}: {clean(id_)}")
    click.echo(f"settings  {clean(json.dumps(found.meta.get('settings'), sort_keys=True), 2000)}")
    click.echo(f"path      {clean(found.path, 1000)}")
    for name, file in sorted(found.meta["files"].items()):
        click.echo(f"file      {size(file['size']):>9}  {clean(name)}")
    click.echo(f"used by   {', '.join(clean(use['run'], 60) for use in found.uses()) or 'no run'}")


@artifacts.command("verify")
@click.argument("ids", nargs=-1)
@one_line_errors
def verify(ids: tuple[str, ...]) -> None:
    """Read all files of some outputs (default: all) and compare with their hashes. Exit code 1 if one is damaged."""
    from kdwatch.pipeline.artifacts import SHORT, ArtifactStore
    from kdwatch.rundir.text import clean

    store = ArtifactStore()
    found = [store.find(id) for id in ids] if ids else list(store)
    bad = 0
    for artifact in found:
        problems = artifact.problems()
        bad += bool(problems)
        click.echo(f"{clean(artifact.kind)} {clean(artifact.id)[:SHORT]}  {'; '.join(map(clean, problems)) or 'whole'}")
    if bad:
        click.echo(
            f"{bad} of {len(found)} are damaged: kdwatch artifacts rm ID, and the next run makes them again", err=True
        )
        sys.exit(1)


@artifacts.command("rm")
@click.argument("ids", nargs=-1, required=True)
@one_line_errors
def rm(ids: tuple[str, ...]) -> None:
    """Delete stored outputs. Runs keep what they recorded; a later run makes the output again."""
    from kdwatch.pipeline.artifacts import SHORT, ArtifactStore

    store = ArtifactStore()
    for artifact in [store.find(id) for id in ids]:
        store.remove(artifact)
        click.echo(f"removed {artifact.kind} {artifact.id[:SHORT]}")


@artifacts.command("clean")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@one_line_errors
def clean_(dry_run: bool) -> None:
    """Delete what failed or killed stages left unfinished, and damaged outputs that were set aside.

    A stage that can resume then begins anew. Refused while a run goes on.
    """
    import shutil

    from kdwatch.pipeline.artifacts import ArtifactStore
    from kdwatch.pipeline.hosts import ActiveRuns
    from kdwatch.rundir.errors import UsageProblem

    going_on = ActiveRuns("").others()
    if going_on and not dry_run:
        raise UsageProblem(f"run {going_on[0]} goes on: wait for its end, or stop it, before you clean")
    for path in ArtifactStore().unfinished():
        count = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
        if not dry_run:
            shutil.rmtree(path, ignore_errors=True)
        click.echo(f"{'would remove' if dry_run else 'removed'} {path.name}  {size(count)}")
