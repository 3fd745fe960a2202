"""What a recipe would do, as text: stages, what would be reused, tokens, disk, and the energy that is expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdwatch.ledger.marks import marked
from kdwatch.ledger.units import format_energy, format_number
from kdwatch.pipeline.artifacts import SHORT
from kdwatch.pipeline.outlook.stages import Machine, StageOutlook, outlook, total
from kdwatch.pipeline.outlook.study import study_line
from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.rundir.text import clean

HEAD = ("stage", "does", "tokens", "disk", "energy", "then", "output")


def describe(recipe: Recipe, machine: Machine | None = None) -> str:
    """A table of the stages and what would happen to each. Reads stored outputs, changes nothing.

    Raises UsageProblem where an input file cannot be read.
    """
    stages = outlook(recipe, machine or Machine.look())
    head = [f"{recipe.name}: {recipe.regime}, {len(recipe.stages)} stages"]
    if recipe.budget is not None:
        end = "ends the run" if recipe.stop_over_budget else "only warns"
        head.append(f"budget {format_energy(recipe.budget)} ({end})")
    return "\n".join([*head, *_aligned([HEAD, *map(_row, stages)]), "", *_sums(stages, study_line(recipe))])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(found: StageOutlook) -> tuple[str, ...]:
    stage, amount = found.stage, found.amounts
    does = stage.recipe.uses or " ".join(clean(word, 30) for word in stage.argv)
    return (
        stage.name,
        does if len(does) <= 30 else does[:29] + "…",
        _count(amount.tokens, amount.how),
        size_text(amount.disk_b, amount.disk_how),
        _energy(found),
        "run" if found.reused is None else "reuse",
        f"{stage.builtin.makes} {stage.artifact[:SHORT]}" if stage.builtin and stage.artifact else "-",
    )


SIGNS = {"sampled": "~", "at most": "≤"}


def _count(value: float | None, how: str | None) -> str:
    return "n/a" if value is None else SIGNS.get(how or "", "") + format_number(value)


def size_text(value: float | None, how: str | None = None) -> str:
    """`~39.1 MB`; `n/a` for unknown."""
    if value is None:
        return "n/a"
    scaled = format_number(value)
    number, unit = (scaled[:-1], scaled[-1]) if scaled[-1].isalpha() else (scaled, "")
    return f"{SIGNS.get(how or '', '')}{number} {unit}B"


def _energy(found: StageOutlook) -> str:
    if found.reused is not None:
        return "0"
    if found.energy is None:
        return "n/a"
    energy = found.energy
    return f"{energy_range(energy.mean_j, energy.low_j, energy.high_j)} {energy.label}"


def energy_range(mean_j: float, low_j: float, high_j: float) -> str:
    """`10.4 kJ (9.67 to 11.1)`, all in the unit of the mean."""
    text = format_energy(mean_j)
    unit = text.split()[-1]
    low, high = (format_energy(j, unit).split()[0] for j in (low_j, high_j))
    return f"{text} ({low} to {high})"


def _reuse(found: StageOutlook) -> str:
    assert found.reused is not None
    made = found.reused
    energy = marked(made.energy_j, made.estimated)
    return f"  {found.stage.name}: reuse (made by {clean(made.made_by.get('run'), 120)}, {energy})"


def _sums(stages: Sequence[StageOutlook], study: str | None) -> Iterator[str]:
    known = [s.amounts.disk_b for s in stages if s.reused is None and s.amounts.disk_b is not None]
    if known:
        yield f"disk: {size_text(sum(known))} of new outputs, checkpoints while training not counted"
    whole = total(stages)
    if whole is not None:
        left = f", without {', '.join(whole.unknown)}" if whole.unknown else ""
        yield (
            f"energy: {energy_range(whole.mean_j, whole.low_j, whole.high_j)} at 90 %, "
            f"{' and '.join(whole.labels)}{left}"
        )
    for text in dict.fromkeys(f"{s.energy.label}: {s.energy.basis}" for s in stages if s.energy is not None):
        yield f"  {text}"
    if study is not None:
        yield f"  {study}"
    yield from (_reuse(found) for found in stages if found.reused is not None)
    for why in dict.fromkeys(found.why for found in stages if found.why is not None):
        names = ", ".join(found.stage.name for found in stages if found.why == why)
        yield f"  n/a: energy of {names}: {why}"
    if any(s.amounts.how == "at most" for s in stages):
        yield "  ≤: a bound from the settings; ~: from a sample of the data"
    if any(s.reused is None for s in stages):
        yield "nothing was run"
