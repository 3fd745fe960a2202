"""Stage `teacher.cache_logits`: one forward pass of the teacher, its top-k kept for every student of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdwatch import progress
from kdwatch.stages.entry import Stage, run_stage
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import CacheSettings

if TYPE_CHECKING:
    from kdwatch.stages.cache.layout import Layout
    from kdwatch.stages.data.tokens import TokenSet


def work(settings: CacheSettings, stage: Stage) -> None:
    """Check that ids mean the same to both models, then cache shard by shard; finished shards are kept on resume."""
    from kdwatch.stages.data.tokenizer import TextTokenizer
    from kdwatch.stages.data.tokens import read_tokens

    progress.phase("load")
    data = read_tokens(stage.inputs["data"])
    tokenizer = TextTokenizer.load(settings.teacher, settings.revision)
    check_vocabulary(data, tokenizer)
    layout = layout_of(settings, tokenizer.size)
    check_disk(layout, data, stage)
    progress.phase("import")
    from kdwatch.stages.cache.writer import CacheWriter
    from kdwatch.stages.nn import compute, models

    progress.phase("load")
    device = compute.pick_device(settings)
    model = models.load_model(settings.teacher, settings, device, dtype=compute.DTYPES[settings.dtype], role="teacher")
    models.real_vocabulary(model, tokenizer, "teacher")
    progress.phase("work")
    writer = CacheWriter(stage.need_output(), layout, data, settings)
    writer.run(model, device, stage)
    progress.phase("save")
    manifest = writer.finish(settings.teacher, models.weights_hash(tokenizer.folder))
    size = sum(shard["bytes"] for shard in manifest["sizes"])
    print(
        f"{manifest['positions']} positions, {size} bytes, mass inside the top-{layout.top_k}: "
        f"{manifest['captured_mass']}",
        flush=True,
    )


def check_vocabulary(data: TokenSet, tokenizer: object) -> None:
    """Raise StageProblem before any teacher energy is spent where ids of the data mean other tokens to the teacher."""
    from kdwatch.stages.data.tokenizer import TextTokenizer

    assert isinstance(tokenizer, TextTokenizer)
    known = data.meta["vocabulary"]
    if known["map"] != tokenizer.map_hash:
        raise StageProblem(
            f"data and teacher have different vocabularies (sizes {known['size']} and {tokenizer.size}): "
            f"logits cannot be "
            "matched. Take models of one tokenizer, or distil with teacher.generate (synthetic SFT); "
            "preprocess with `teacher:` lists the differences"
        )


def layout_of(settings: CacheSettings, vocabulary: int) -> Layout:
    """The cache's layout; a top-k above the vocabulary becomes the whole of it."""
    from kdwatch.stages.cache.layout import Layout

    sampled = settings.method == "sample"
    temperatures = tuple(settings.temperatures)
    if sampled and 1.0 not in temperatures:
        temperatures = (1.0, *temperatures)
    width = settings.samples if sampled else settings.top_k
    return Layout(
        min(width, vocabulary) if not sampled else width, vocabulary, temperatures, settings.method, settings.quantised
    )


def check_disk(layout: Layout, data: TokenSet, stage: Stage) -> None:
    """Say what the cache will take; StageProblem where the disk has less."""
    import shutil

    need = layout.bytes_per_position * int(data.targets.sum())
    free = shutil.disk_usage(stage.need_output()).free
    print(f"cache: {layout.bytes_per_position} bytes a response token, {need} bytes in all; free: {free}", flush=True)
    if need > free:
        raise StageProblem(
            f"the logit cache needs {need / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB free: lower top_k, "
            "set quantised: true, use fewer rows, or free space"
        )


if __name__ == "__main__":
    run_stage(CacheSettings, work)
