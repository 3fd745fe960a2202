"""The training loop: groups of rows to optimizer updates, with checkpoints, early stopping and honest counts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kdwatch import progress
from kdwatch.stages.data.tokens import TokenSet
from kdwatch.stages.entry import Stage, Stopped, resumed
from kdwatch.stages.nn import optim
from kdwatch.stages.nn.batches import Batch, bins_of, by_tokens, collate, collate_packed
from kdwatch.stages.nn.checkpoint import Checkpoints
from kdwatch.stages.nn.compute import autocast
from kdwatch.stages.nn.early import Patience
from kdwatch.stages.nn.objective import Objective
from kdwatch.stages.nn.order import DataOrder
from kdwatch.stages.nn.ranks import Ranks
from kdwatch.stages.problem import StageProblem, TrainingProblem
from kdwatch.stages.settings import TrainSettings

VALIDATION_TOKENS = 8192
ASK_S = 1.0
"""Seconds between two exchanges about signals and checkpoints among several processes: each makes all of them wait."""


@dataclass
class Trainer:
    """One training of one student."""

    settings: TrainSettings
    model: Any
    """What is saved."""
    data: TokenSet
    objective: Objective
    device: torch.device
    checkpoints: Checkpoints
    stage: Stage
    validation: TokenSet | None = None
    """Whose held-out rows (all, where none is) decide early stopping; None: the held-out rows of `data`."""
    ranks: Ranks = field(default_factory=Ranks)
    update: int = 0
    tokens: int = 0
    """Non-pad tokens so far, over all epochs and processes."""
    tokens_before: int = 0
    """Of these, the ones of an earlier process that this one took up: their energy is not this one's."""
    losses: list[tuple[int, float]] = field(default_factory=list)
    """(updates, mean loss since the last entry) at each report."""
    validations: list[tuple[int, float]] = field(default_factory=list)
    stopped_early: bool = False

    def __post_init__(self) -> None:
        self.rows = self._training_rows()
        self.order = DataOrder(self.rows, self.settings.batch_rows * self.settings.accumulate, self.settings.seed)
        self.total = self.order.total_updates(self.settings.epochs, self.settings.max_steps)
        self.patience = Patience(self.settings.early_stop) if self.settings.early_stop else None
        if self.patience and not len(self._validation_rows()):
            raise StageProblem(
                "early_stop needs validation rows: set validation in preprocess, or give the input validation"
            )
        self.counts = self.data.response_counts
        self.width = int(self.data.lengths.max(initial=1))
        self.optimizer = optim.make_optimizer(self.settings, self.model)
        self.running = self.ranks.wrap(self.model, self.device)
        self._sum = torch.zeros((), device=self.device)
        self._since = 0
        self._saved = self._reported = self._asked = time.monotonic()
        self._asked_at = self._ask_at = 0

    def _training_rows(self) -> np.ndarray:
        rows = self.data.training_rows()
        rows = rows[self.data.response_counts[rows] > 0]
        if not len(rows):
            raise StageProblem("data: no row has an answer token to train on: check prompt, response and max_length")
        return rows

    def _validation_rows(self) -> np.ndarray:
        if self.validation is None:
            return self.data.validation_rows()
        held_out = self.validation.validation_rows()
        return held_out if len(held_out) else np.arange(len(self.validation))

    def run(self) -> None:
        """Train to the end, or until patience runs out; the best weights are in the model then."""
        self._resume()
        self.model.train()
        while self.update < self.total and not (self.stopped_early or self.stage.enough):
            self._step()
            if self.patience and (self.patience.due(self.update) or self.update == self.total):
                self._validate()
            self._after_step()
        self._report()
        if self.patience:
            self.checkpoints.load_best(self.model)

    def _step(self) -> None:
        """One optimizer update; every target position of the group weighs the same, whatever batch it is in."""
        torch.manual_seed(self.settings.seed * 1_000_003 + self.update)
        group = self.order.group(self.update)
        positions = int(self.counts[group].sum())
        loss = torch.zeros((), device=self.device)
        mine, weight = self.ranks.share(group)
        batches = self._batches(mine)
        self.objective.begin_update(self.running, batches, self.ranks, weight)
        for number, batch in enumerate(batches):
            with self.ranks.hold_gradients(self.running, last=number + 1 == len(batches)):
                with autocast(self.device, self.settings.dtype):
                    part = self.objective.loss_sum(self.running, batch) * (weight / positions)
                (part * self.ranks.world).backward()
            loss += part.detach()
        loss = self.ranks.total(loss)
        if self.device.type == "cpu":
            self._check_finite(loss)
        optim.clip_gradients(self.model.parameters(), self.settings.clip)
        optim.set_rate(self.optimizer, optim.learning_rate(self.settings, self.update, self.total))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update += 1
        self.tokens += int(self.data.lengths[group].sum())
        self._sum += loss
        self._since += 1

    def _batches(self, group: np.ndarray) -> list[Batch]:
        """The group's rows in passes of at most `batch_rows`, like lengths together."""
        pad = self.data.meta["vocabulary"]["pad"]
        size = self.settings.batch_rows
        if self.settings.packing:
            bins = bins_of(self.data, group.tolist(), self.width)
            return [collate_packed(self.data, bins[i : i + size], pad, self.device) for i in range(0, len(bins), size)]
        lengths = self.data.lengths
        rows = sorted((int(r) for r in group), key=lambda r: (int(lengths[r]), r))
        return [collate(self.data, rows[i : i + size], pad, self.device) for i in range(0, len(rows), size)]

    def _after_step(self) -> None:
        now = time.monotonic()
        stop, save = self._wanted(now)
        if stop:
            self._save()
            raise Stopped
        if now - self._reported >= self.stage.report_s:
            self._report()
        if save:
            self._save()

    def _wanted(self, now: float) -> tuple[bool, bool]:
        """(SIGTERM came, a checkpoint is due), alike in all processes; several ask each other about once a second."""
        stop, save = self.stage.stopping, now - self._saved >= self.settings.checkpoint_every_s
        if self.ranks.world == 1:
            return stop, save
        if self.update < self._ask_at:
            return False, False
        pace = (now - self._asked) / max(1, self.update - self._asked_at)
        stop, save, ahead = self.ranks.ask(stop, save, max(1, int(ASK_S / max(pace, 1e-3))), self.device)
        self._asked, self._asked_at, self._ask_at = now, self.update, self.update + ahead
        return stop, save

    def _report(self) -> None:
        self._reported = time.monotonic()
        if not self._since:
            return
        mean = self._sum / self._since
        self._check_finite(mean)
        self.losses.append((self.update, float(mean)))
        self._sum.zero_()
        self._since = 0
        if self.ranks.first:
            made = self.tokens - self.tokens_before
            progress.progress(tokens=made, step=self.update, total_steps=self.total, loss=self.losses[-1][1])

    def _check_finite(self, loss: torch.Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            raise TrainingProblem(
                f"the loss is {float(loss)} at step {self.update + 1} of {self.total}: training is stopped, "
                f"the last good "
                "checkpoint is kept; lower learning_rate, set clip, or check the data"
            )

    def _save(self) -> None:
        self._report()
        if self.ranks.first:
            self.checkpoints.save(self.update, self.model, self.optimizer, self._counters())
        self.ranks.wait()
        self._saved = time.monotonic()

    def _counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = {"tokens": self.tokens, "losses": self.losses, "validations": self.validations}
        if self.patience:
            best = self.patience.best if math.isfinite(self.patience.best) else None
            counters["patience"] = [best, self.patience.best_update, self.patience.waited]
        return counters

    def _resume(self) -> None:
        state = self.checkpoints.resume(self.model, self.optimizer)
        if state is None:
            return
        self.update, self.tokens = state["update"], state["tokens"]
        self.losses = [tuple(x) for x in state["losses"]]
        self.validations = [tuple(x) for x in state["validations"]]
        if self.patience:
            best, self.patience.best_update, self.patience.waited = state["patience"]
            self.patience.best = math.inf if best is None else best
            self.stopped_early = self.patience.over
        self.tokens_before = self.tokens
        if self.ranks.first:
            resumed(f"at step {self.update} of {self.total}")

    def _validate(self) -> None:
        """Mean loss per position on the validation rows; the best weights are kept aside."""
        assert self.patience is not None
        loss = self.validation_loss()
        self.validations.append((self.update, loss))
        if self.patience.improves(loss, self.update) and self.ranks.first:
            self.checkpoints.keep_best(self.model)
        self.stopped_early = self.patience.over
        print(f"step {self.update}: validation loss {loss:.6f}" + (", patience is over" if self.stopped_early else ""))

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Mean of the training's own objective over all validation positions, summed in float64; each process does its
        share of the batches."""
        data = self.validation or self.data
        total = np.float64(0.0)
        positions = 0
        self.model.eval()
        pad = data.meta["vocabulary"]["pad"]
        batches = list(by_tokens(data, self._validation_rows().tolist(), VALIDATION_TOKENS // self.ranks.world))
        for numbers in batches[self.ranks.rank :: self.ranks.world]:
            batch = collate(data, numbers, pad, self.device)
            with autocast(self.device, self.settings.dtype):
                total += float(self.objective.validation_sum(self.model, batch, own=self.validation is None))
            positions += len(batch.labels)
        self.model.train()
        if self.ranks.world > 1:
            both = torch.tensor([total, positions], dtype=torch.float64, device=self.device)
            total, positions = self.ranks.total(both).tolist()
        return float(total / max(positions, 1))
