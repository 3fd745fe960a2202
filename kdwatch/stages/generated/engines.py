"""What makes answers: transformers, or vLLM where it is installed and asked for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from kdwatch.stages.data.tokens import TokenSet
from kdwatch.stages.entry import Stage
from kdwatch.stages.generated.answers import AnswerStore, RowAnswer
from kdwatch.stages.nn import compute, models
from kdwatch.stages.nn.decoding import Decoder
from kdwatch.stages.nn.nucleus import Sampling
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import GenerateSettings


class Engine(Protocol):
    """Answers rows of a data set."""

    def answer(self, data: TokenSet, rows: np.ndarray, stage: Stage, store: AnswerStore) -> list[RowAnswer]:
        """Answers in the order of `rows`; counted in `store` as they come."""


def make_engine(settings: GenerateSettings, data: TokenSet) -> Engine:
    """The engine that the settings ask for. StageProblem where vLLM is asked for and not installed."""
    if settings.engine == "vllm":
        if find_spec("vllm") is None:
            raise StageProblem("engine: vllm is not installed here: install it, or take engine: transformers")
        return VllmEngine(settings, data)
    return TransformersEngine(settings, data)


class TransformersEngine:
    """Batches of like prompt length on one device."""

    def __init__(self, settings: GenerateSettings, data: TokenSet) -> None:
        self.settings = settings
        device = compute.pick_device(settings)
        model = models.load_model(
            settings.teacher, settings, device, dtype=compute.DTYPES[settings.dtype], role="teacher"
        )
        known = data.meta["vocabulary"]
        self.decoder = Decoder(model, known["size"], known["eos"], known["pad"], device)

    def answer(self, data: TokenSet, rows: np.ndarray, stage: Stage, store: AnswerStore) -> list[RowAnswer]:
        """Longest prompts first, so that a batch that does not fit is met at once."""
        settings = self.settings
        sampling = Sampling(settings.temperature, settings.top_p, settings.seed) if settings.do_sample else None
        prompts = {int(r): data.prompt(int(r)) for r in rows}
        order = sorted(prompts, key=lambda r: -len(prompts[r]))
        size = settings.batch_rows or self.decoder.batch_rows(len(prompts[order[0]]), settings.max_new_tokens)
        found: dict[int, RowAnswer] = {}
        for begin in range(0, len(order), size):
            stage.check_stop()
            part = order[begin : begin + size]
            answers = self.decoder.answer([prompts[r] for r in part], settings.max_new_tokens, sampling, part)
            made = [RowAnswer(r, len(prompts[r]), a.ids, a.ended) for r, a in zip(part, answers, strict=True)]
            store.count(made)
            store.report()
            found |= {a.row: a for a in made}
        return [found[int(r)] for r in rows]


class VllmEngine:
    """vLLM's own batching; token ids in, token ids out."""

    def __init__(self, settings: GenerateSettings, data: TokenSet) -> None:
        from vllm import LLM

        folder = models.model_directory(settings.teacher, settings.revision, weights=True)
        self.settings = settings
        self.eos = data.meta["vocabulary"]["eos"]
        self.vocabulary = data.meta["vocabulary"]["size"]
        self.engine = LLM(
            model=str(folder),
            dtype=settings.dtype,
            seed=settings.seed,
            trust_remote_code=settings.trust_remote_code,
            tensor_parallel_size=settings.tensor_parallel,
            skip_tokenizer_init=True,
        )

    def answer(self, data: TokenSet, rows: np.ndarray, stage: Stage, store: AnswerStore) -> list[RowAnswer]:
        """One call for the whole shard; each row has its own seed."""
        stage.check_stop()
        prompts = [data.prompt(int(r)).tolist() for r in rows]
        inputs: list[Any] = [{"prompt_token_ids": p} for p in prompts]
        outputs = self.engine.generate(inputs, [self._parameters(int(r)) for r in rows], use_tqdm=False)
        made = []
        for r, prompt, output in zip(rows, prompts, outputs, strict=True):
            made.append(self._answer(int(r), len(prompt), output.outputs[0]))
        store.count(made)
        store.report()
        return made

    def _answer(self, row: int, prompt_tokens: int, completion: Any) -> RowAnswer:
        """Without the token it stopped at; cut at an id beyond the vocabulary, which a padding row can give."""
        ids = list(completion.token_ids)
        ended = completion.finish_reason == "stop"
        if ended:
            ids = ids[:-1]
        unknown = next((n for n, i in enumerate(ids) if i >= self.vocabulary), None)
        if unknown is not None:
            ids, ended = ids[:unknown], False
        return RowAnswer(row, prompt_tokens, ids, ended)

    def _parameters(self, row: int) -> Any:
        from vllm import SamplingParams

        settings = self.settings
        heat = settings.temperature if settings.do_sample else 0.0
        top_p = settings.top_p if settings.do_sample else 1.0
        return SamplingParams(
            temperature=heat,
            top_p=top_p,
            max_tokens=settings.max_new_tokens,
            seed=settings.seed * 1_000_003 + row,
            stop_token_ids=[self.eos],
            detokenize=False,
        )
