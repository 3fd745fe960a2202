"""Stage `student.train`: SFT, KD from cached logits, training on a teacher's answers, on-policy distillation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdwatch import progress
from kdwatch.stages.entry import Stage, run_stage
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import TrainSettings

if TYPE_CHECKING:
    from kdwatch.stages.cache.reader import LogitCache
    from kdwatch.stages.data.tokens import TokenSet
    from kdwatch.stages.nn.loop import Trainer

MEANING = "loss = alpha x cross-entropy + (1 - alpha) x T^2 x divergence(teacher, student), mean over answer tokens"


def work(settings: TrainSettings, stage: Stage) -> None:
    """Check the inputs, train, save a model that transformers loads."""
    from kdwatch.stages.nn.launch import spread

    if spread("kdwatch.stages.train", settings.processes, settings.launcher, stage):
        return
    progress.phase("load")
    data, validation, cache = open_inputs(settings, stage)
    progress.phase("import")
    from kdwatch.stages.nn import compute, models
    from kdwatch.stages.nn.checkpoint import Checkpoints
    from kdwatch.stages.nn.loop import Trainer
    from kdwatch.stages.nn.ranks import Ranks

    progress.phase("load")
    device = compute.pick_device(settings)
    ranks = Ranks.join(device)
    student = models.model_directory(settings.student, settings.revision, weights=True)
    output = stage.need_output()
    checkpoints = Checkpoints(output, fingerprint(settings, data, cache, models.weights_hash(student)))
    model = models.load_model(
        settings.student, settings, device, dtype=compute.DTYPES[settings.weights], train=True, role="student"
    )
    if settings.gradient_checkpointing:
        models.save_memory(model)
    objective = _objective(settings, model, cache, data, student, device)
    trainer = Trainer(settings, model, data, objective, device, checkpoints, stage, validation, ranks)
    progress.phase("work")
    trainer.run()
    progress.phase("save")
    if ranks.first:
        models.save_model(model, output, student)
        _write_record(output, settings, trainer, cache)
        checkpoints.remove()
    ranks.leave()


def _objective(
    settings: TrainSettings, model: Any, cache: LogitCache | None, data: TokenSet, student: Path, device: Any
) -> Any:
    from kdwatch.stages.data.tokenizer import TextTokenizer
    from kdwatch.stages.nn import models, objective

    tokenizer = TextTokenizer.load(str(student))
    known = data.meta["vocabulary"]
    if known["map"] != tokenizer.map_hash:
        raise StageProblem(
            f"data and student have different vocabularies (sizes {known['size']} and {tokenizer.size}): "
            "preprocess with the student's tokenizer"
        )
    real, rows = models.real_vocabulary(model, tokenizer, "student")
    if rows > real:
        print(f"vocabulary: {real} real ids of {rows} rows; {rows - real} padding rows are cut off before the softmax")
    if settings.objective == "on_policy":
        from kdwatch.stages.nn.onpolicy import OnPolicy

        return OnPolicy.make(settings, real, data, device)
    return objective.Objective.make(settings, real, cache)


def open_inputs(settings: TrainSettings, stage: Stage) -> tuple[TokenSet, TokenSet | None, LogitCache | None]:
    """(data, validation, cache) that fit together; checked before torch is imported.

    Raises StageProblem where KD has no logits: it never falls back to plain cross-entropy.
    """
    from kdwatch.stages.cache.reader import LogitCache
    from kdwatch.stages.data.tokens import read_tokens

    data = read_tokens(stage.inputs["data"])
    validation = read_tokens(stage.inputs["validation"]) if "validation" in stage.inputs else None
    logits = stage.inputs.get("logits") or (Path(settings.logits) if settings.logits else None)
    if settings.objective != "kd":
        if logits:
            raise StageProblem(
                f"input logits is given but objective is {settings.objective}: set objective: kd or take it out"
            )
        return data, validation, None
    if logits is None:
        raise StageProblem("objective kd needs the input logits: add a teacher.cache_logits stage and name it there")
    cache = LogitCache(logits, data)
    cache.temperature_index(settings.temperature)
    if settings.tail != "ghost" and cache.layout.method == "sample":
        raise StageProblem("tail: paper-compatible needs a cache of method top_k, this one holds samples")
    if settings.divergence != "forward" and (cache.layout.method == "sample" or settings.tail != "ghost"):
        raise StageProblem(f"divergence {settings.divergence} needs a top_k cache and tail: ghost")
    return data, validation, cache


def fingerprint(settings: TrainSettings, data: TokenSet, cache: LogitCache | None, weights: str) -> str:
    """What a checkpoint must have been made with to be resumed."""
    from kdwatch.stages.files import canonical_hash

    kept = settings.model_dump(mode="json", exclude={"checkpoint_every_s", "device", "threads", "launcher"})
    return canonical_hash([kept, data.meta["content"], cache.meta if cache else None, weights])


def _write_record(output: Path, settings: TrainSettings, trainer: Trainer, cache: LogitCache | None) -> None:
    """`training.json`: settings with their meaning, counts, losses, versions."""
    import torch
    import transformers

    from kdwatch.stages.files import write_json

    record = {
        "settings": settings.model_dump(mode="json"),
        "meaning": MEANING,
        "updates": trainer.update,
        "total_updates": trainer.total,
        "stopped_early": trainer.stopped_early,
        "tokens": trainer.tokens,
        "rows": len(trainer.rows),
        "response_tokens": int(trainer.counts[trainer.rows].sum()),
        "losses": trainer.losses,
        "validation_losses": trainer.validations,
        "best_update": trainer.patience.best_update if trainer.patience else None,
        "captured_mass": cache.captured_mass() if cache else None,
        "tail": settings.tail if cache else None,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    write_json(output / "training.json", record)


if __name__ == "__main__":
    run_stage(TrainSettings, work)
