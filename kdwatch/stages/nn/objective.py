"""From a batch to the sum of its loss over positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdwatch.stages.cache.reader import LogitCache, sample_weights, teacher_log_p
from kdwatch.stages.nn import losses
from kdwatch.stages.nn.batches import Batch, response_logits
from kdwatch.stages.nn.mixed import mixed_sum
from kdwatch.stages.nn.ranks import Ranks
from kdwatch.stages.settings import TrainSettings


@dataclass
class Objective:
    """alpha CE + (1 - alpha) T^2 D, or CE alone; sums over the batch's positions."""

    settings: TrainSettings
    vocabulary: int
    cache: LogitCache | None = None
    temperature_index: int = 0

    @classmethod
    def make(cls, settings: TrainSettings, vocabulary: int, cache: LogitCache | None) -> Objective:
        """Check that a cache holds the temperature (StageProblem otherwise)."""
        index = cache.temperature_index(settings.temperature) if cache else 0
        return cls(settings, vocabulary, cache, index)

    def begin_update(self, model: Any, batches: list[Batch], ranks: Ranks, weight: float) -> None:
        """Nothing to prepare: all that an update needs is in the cache."""

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Sum over the batch's M positions, float32, with gradient."""
        logits = response_logits(model, batch, self.vocabulary).float()
        if self.cache is None:
            return losses.cross_entropy_sum(logits, batch.labels)
        return self.distil(logits, batch)

    def distil(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """alpha CE + (1 - alpha) T^2 D of logits [M, V] against the cache."""
        alpha = self.settings.alpha
        if alpha == 1:
            return losses.cross_entropy_sum(logits, batch.labels)
        teacher = self.teacher(batch, logits.device)
        if self._plain_ghost(teacher, logits):
            return mixed_sum(logits, batch.labels, teacher, self.settings.temperature, alpha)
        far = self.divergence(logits, teacher)
        if alpha == 0:
            return far
        return alpha * losses.cross_entropy_sum(logits, batch.labels) + (1 - alpha) * far

    def _plain_ghost(self, teacher: losses.TeacherTop, logits: torch.Tensor) -> bool:
        """Whether the loss is the default one, which has a faster form."""
        usual = self.settings.tail == "ghost" and self.settings.divergence == "forward"
        return usual and teacher.log_tail is not None and teacher.ids.shape[1] < logits.shape[1]

    def divergence(self, logits: torch.Tensor, teacher: losses.TeacherTop) -> torch.Tensor:
        """T^2 D by the cache's method and the settings' tail."""
        settings = self.settings
        if teacher.weights is not None:
            return losses.sampled_sum(logits, teacher, settings.temperature)
        if settings.tail == "paper-compatible":
            return losses.truncated_sum(logits, teacher, settings.temperature)
        return losses.ghost_sum(logits, teacher, settings.temperature, settings.divergence, settings.beta)

    def teacher(self, batch: Batch, device: torch.device) -> losses.TeacherTop:
        """What the cache holds for the batch's positions, in their order."""
        assert self.cache is not None
        rows = self.cache.rows(batch.numbers)
        log_p, tail = teacher_log_p(rows, self.settings.temperature, self.temperature_index)
        weights = None
        if rows.counts is not None:
            weights = sample_weights(rows, log_p, self.cache.temperature_index(1.0))

        def move(array: Any) -> torch.Tensor:
            return torch.from_numpy(array).to(device, non_blocking=True)

        return losses.TeacherTop(
            move(rows.ids),
            move(log_p),
            None if tail is None else move(tail),
            None if weights is None else move(weights),
        )

    def validation_sum(self, model: Any, batch: Batch, *, own: bool) -> torch.Tensor:
        """Loss sum on validation rows; cross-entropy where they are not the training data's own (`own`), "
        "since the cache
        does not cover them."""
        if own:
            return self.loss_sum(model, batch)
        return losses.cross_entropy_sum(response_logits(model, batch, self.vocabulary), batch.labels)
