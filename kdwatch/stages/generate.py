"""Stage `teacher.generate`: the teacher's own answers to the prompts of a data set, filtered, as a new data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdwatch import progress
from kdwatch.stages.cache_logits import check_vocabulary
from kdwatch.stages.entry import Stage, Stopped, run_stage
from kdwatch.stages.files import read_json
from kdwatch.stages.settings import GenerateSettings

if TYPE_CHECKING:
    import numpy as np

    from kdwatch.stages.data.tokens import TokenSet
    from kdwatch.stages.generated.answers import AnswerStore


def work(settings: GenerateSettings, stage: Stage) -> None:
    """Generate shard by shard (finished ones are kept on resume), then filter and write."""
    from kdwatch.stages.data.tokenizer import TextTokenizer
    from kdwatch.stages.data.tokens import read_tokens
    from kdwatch.stages.generated.answers import AnswerStore

    progress.phase("load")
    data = read_tokens(stage.inputs["data"])
    tokenizer = TextTokenizer.load(settings.teacher, settings.revision)
    check_vocabulary(data, tokenizer)
    rows = data.training_rows()[: settings.prompts]
    store = AnswerStore(stage.need_output(), settings, data.meta["content"])
    try:
        _generate(settings, stage, data, rows, store)
    except Stopped:
        if stage.stopping or not stage.enough:
            raise
    progress.phase("save")
    from kdwatch.stages.generated.filters import keep_and_write

    counts = keep_and_write(stage.need_output(), settings, data, tokenizer, store)
    store.remove()
    meta = read_json(stage.need_output() / "meta.json", "data set")
    progress.made(rows=meta["rows"], tokens=meta["tokens"])
    print(", ".join(f"{name}: {count}" for name, count in counts.items()), flush=True)


def _generate(settings: GenerateSettings, stage: Stage, data: TokenSet, rows: np.ndarray, store: AnswerStore) -> None:
    missing = store.missing(rows, settings.shard_rows)
    if not missing:
        return
    progress.phase("import")
    from kdwatch.stages.generated.engines import make_engine

    progress.phase("load")
    engine = make_engine(settings, data)
    progress.phase("work")
    for number, shard in missing:
        store.write(number, engine.answer(data, shard, stage, store))


if __name__ == "__main__":
    run_stage(GenerateSettings, work)
