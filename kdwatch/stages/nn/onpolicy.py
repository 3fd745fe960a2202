"""On-policy distillation: the student answers, the teacher scores every token of the answer.

The divergence is taken on the student's own text, where it will have to act, in the direction that the settings name
(`reverse` is the usual one). Every update costs a generation by the student and a forward pass of the teacher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kdwatch.stages.data.chat import Encoded
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.data.tokens import TokenSet, pack_rows
from kdwatch.stages.nn import compute, losses, models
from kdwatch.stages.nn.batches import Batch, collate, response_logits
from kdwatch.stages.nn.decoding import Decoder
from kdwatch.stages.nn.nucleus import Sampling
from kdwatch.stages.nn.ranks import Ranks
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import TrainSettings


@dataclass
class OnPolicy:
    """alpha CE on the data's answers + (1 - alpha) T^2 D on the student's own."""

    settings: TrainSettings
    vocabulary: int
    teacher: Any
    data: TokenSet
    device: torch.device
    _own: dict[int, Batch] = field(default_factory=dict, init=False, repr=False)
    """The student's answers of this update, by the batch whose prompts they answer."""
    _scale: float = field(default=1.0, init=False, repr=False)

    @classmethod
    def make(cls, settings: TrainSettings, vocabulary: int, data: TokenSet, device: torch.device) -> OnPolicy:
        """Load the teacher. StageProblem where its ids mean other tokens."""
        assert settings.teacher is not None
        tokenizer = TextTokenizer.load(settings.teacher, settings.teacher_revision)
        if tokenizer.map_hash != data.meta["vocabulary"]["map"]:
            raise StageProblem(
                "data and teacher have different vocabularies: on-policy distillation needs one tokenizer"
            )
        own = settings.model_copy(update={"revision": settings.teacher_revision})
        teacher = models.load_model(settings.teacher, own, device, dtype=compute.DTYPES[settings.dtype])
        models.real_vocabulary(teacher, tokenizer, "teacher")
        return cls(settings, vocabulary, teacher, data, device)

    def begin_update(self, model: Any, batches: list[Batch], ranks: Ranks, weight: float) -> None:
        """Let the student answer all prompts of an update (this process's share of it, which counts with `weight`).

        Every token of these answers weighs the same, and all together weigh as much as the data's own answers do.
        """
        if self.settings.alpha == 1:
            return
        self._own = {id(batch): self.own_batch(model, batch) for batch in batches}
        counts = [int(weight) * sum(len(b.labels) for b in group) for group in (batches, self._own.values())]
        given, own = ranks.total(torch.tensor(counts, device=self.device)).tolist()
        self._scale = given / own

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Sum over the batch's positions, and over those of the student's own answers to its prompts."""
        alpha = self.settings.alpha
        total = torch.zeros((), device=self.device)
        if alpha > 0:
            total = total + alpha * losses.cross_entropy_sum(
                response_logits(model, batch, self.vocabulary), batch.labels
            )
        if alpha < 1:
            total = total + (1 - alpha) * self._scale * self.divergence(model, self._own[id(batch)])
        return total

    def divergence(self, model: Any, own: Batch) -> torch.Tensor:
        """T^2 D summed over the student's own positions, on the whole vocabulary."""
        with torch.no_grad():
            theirs = response_logits(self.teacher, own, self.vocabulary)
        ours = response_logits(model, own, self.vocabulary)
        return losses.dense_sum(ours, theirs, self.settings.temperature, self.settings.divergence, self.settings.beta)

    def own_batch(self, model: Any, batch: Batch) -> Batch:
        """The student's sampled answers to the batch's prompts, every token of them a target. They depend on the update
        and the row, not on how the update is cut into batches."""
        plain = getattr(model, "module", model)
        known = self.data.meta["vocabulary"]
        decoder = Decoder(plain, self.vocabulary, known["eos"], known["pad"], self.device)
        seed = torch.initial_seed()  # of this update
        plain.eval()
        prompts = [self.data.prompt(r) for r in batch.numbers]
        answers = decoder.answer(prompts, self.settings.max_new_tokens, Sampling(1.0, 1.0, seed), batch.numbers)
        plain.train()
        rows = []
        for prompt, answer in zip(prompts, answers, strict=True):
            tail = [*answer.ids, known["eos"]] if answer.ended else answer.ids
            rows.append(Encoded([*prompt.tolist(), *tail], [False] * len(prompt) + [True] * len(tail)))
        packed = pack_rows(rows, np.zeros(len(rows), dtype=bool))
        return collate(packed, range(len(rows)), known["pad"], self.device)

    def validation_sum(self, model: Any, batch: Batch, *, own: bool) -> torch.Tensor:
        """Cross-entropy on the data's answers."""
        return losses.cross_entropy_sum(response_logits(model, batch, self.vocabulary), batch.labels)
