"""What a recipe would do, as text: stages, what would be reused, where the energy of that came from."""

from __future__ import annotations

from kdwatch.ledger.units import format_energy
from kdwatch.pipeline.artifacts import SHORT, ArtifactStore
from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.pipeline.resolve import ResolvedStage, resolve, stored
from kdwatch.rundir.text import clean


def describe(recipe: Recipe) -> str:
    """A table of the stages and what would happen to each. Reads stored outputs, changes nothing.

    Raises UsageProblem where an input file cannot be read.
    """
    store = ArtifactStore()
    rows = [("stage", "kind", "does", "output", "then")]
    rows += [_row(store, stage) for stage in resolve(recipe)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    head = [f"{recipe.name}: {recipe.regime}, {len(recipe.stages)} stages"]
    if recipe.budget is not None:
        end = "ends the run" if recipe.stop_over_budget else "only warns"
        head.append(f"budget {format_energy(recipe.budget)} ({end})")
    return "\n".join([*head, *lines])


def _row(store: ArtifactStore, stage: ResolvedStage) -> tuple[str, str, str, str, str]:
    does = stage.recipe.uses or " ".join(clean(word, 30) for word in stage.recipe.argv)
    output = f"{stage.builtin.makes} {stage.artifact[:SHORT]}" if stage.builtin and stage.artifact else "-"
    found = stored(store, stage, verify=False)
    if found is None:
        then = "run"
    else:
        energy = format_energy(found.energy_j) if found.energy_j is not None else "n/a"
        then = f"reuse (made by {clean(found.made_by.get('run'), 60)}, {energy})"
    return stage.name, stage.kind, does if len(does) <= 40 else does[:39] + "…", output, then
