"""Stage `evaluate`: a student's scores, and Q where the teacher's are given."""

from __future__ import annotations

from kdwatch import progress
from kdwatch.stages.entry import Stage, run_stage
from kdwatch.stages.files import read_json
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring import benchmarks, quality
from kdwatch.stages.settings import StudentEvaluateSettings


def work(settings: StudentEvaluateSettings, stage: Stage) -> None:
    """Score the student and report both sides; what keeps Q from being known is a warning of the run."""
    if "student" in stage.inputs:
        student = str(stage.inputs["student"])
    elif settings.student:
        student = settings.student
    else:
        raise StageProblem("evaluate: no student: name a student.train stage in inputs, or a model in student")
    teacher = None
    if "teacher_scores" in stage.inputs:
        teacher = read_json(stage.inputs["teacher_scores"] / "scores.json", "teacher scores")["benchmarks"]
    scores, _ = benchmarks.scores_of(student, settings, stage)
    found = quality.compare(scores, teacher)
    for problem in found.problems if teacher else ():
        progress.warning("quality", problem)
        print(problem)
    progress.quality(found.benchmarks, found.q)
    for name, score in sorted(scores.items()):
        print(f"{name}: {score:.4f}")
    print(f"Q: {found.q:.4f}" if found.q is not None else "Q: n/a", flush=True)


if __name__ == "__main__":
    run_stage(StudentEvaluateSettings, work)
