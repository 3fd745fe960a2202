"""Stage `teacher.evaluate`: the teacher's scores, an artifact that goes with the teacher."""

from __future__ import annotations

from kdwatch import progress
from kdwatch.stages.entry import Stage, run_stage
from kdwatch.stages.files import write_json
from kdwatch.stages.scoring import benchmarks
from kdwatch.stages.settings import TeacherEvaluateSettings


def work(settings: TeacherEvaluateSettings, stage: Stage) -> None:
    """Score the teacher as students are scored, and keep it."""
    scores, counts = benchmarks.scores_of(settings.teacher, settings, stage)
    progress.phase("save")
    record = {
        "benchmarks": scores,
        "tokens": counts.tokens or None,
        "batch_rows": settings.batch_rows,
        "dtype": settings.dtype,
    }
    write_json(stage.need_output() / "scores.json", record)
    for name, score in sorted(scores.items()):
        print(f"{name}: {score:.4f}", flush=True)


if __name__ == "__main__":
    run_stage(TeacherEvaluateSettings, work)
