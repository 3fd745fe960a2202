"""What the study measured for a recipe that is one of its configurations, to stand beside a prediction."""

from __future__ import annotations

from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.recipes.published import PublishedModel, published

TEACHER = "allenai/OLMo-2-0325-32B"
_PARTS = ("preprocess_kwh", "teacher_kwh", "student_kwh", "eval_kwh")


def study_line(recipe: Recipe) -> str | None:
    """One line with the study's cells; None where the recipe is none of its configurations."""
    student = _student(recipe)
    if student is None or recipe.regime not in ("sft", "kd", "synthetic_sft") or not _teacher_is_the_studys(recipe):
        return None
    import polars as pl

    from planners.modelsize import named_params_b
    from planners.paper import HARDWARE, table
    from planners.schema import candidate_id

    size = named_params_b(student.hub)
    name = candidate_id(recipe.regime, size)
    rows = table().filter((pl.col("regime") == recipe.regime) & (pl.col("student_params_b") == size)).to_dicts()
    if not rows:
        return f"study: no cell for {name}"
    row = rows[0]
    total = "n/a" if row["total_kwh"] is None else f"{row['total_kwh']:.2f} kWh"
    derived = " (a sum of its stages, not a published cell)" if row["derived"] else ""
    parts = ", ".join(f"{part.removesuffix('_kwh')} {_cell(row[part])}" for part in _PARTS)
    return f"study: {name} took {total}{derived} on {HARDWARE} with the study's own code: {parts}"


def _cell(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _student(recipe: Recipe) -> PublishedModel | None:
    """The one published student that the recipe trains."""
    names = {str(s.settings.get("student")) for s in recipe.stages if s.uses == "student.train"}
    return published(names.pop()) if len(names) == 1 else None


def _teacher_is_the_studys(recipe: Recipe) -> bool:
    """Whether every teacher that the recipe names is the study's, and there is one."""
    named = [published(str(s.settings["teacher"])) for s in recipe.stages if s.settings.get("teacher")]
    return bool(named) and all(model is not None and model.hub == TEACHER for model in named)
