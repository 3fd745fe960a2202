"""A Transformers TrainerCallback that reports tokens, steps, loss and phases; works with Trainer and with TRL.

    from kdwatch.callback import KdwatchCallback

    Trainer(..., callbacks=[KdwatchCallback()])

Inside a stage of `kdwatch run` or `kdwatch exec` it reports to that stage. In a program of its own it records a run
with one stage, as `kdwatch.stage` does. Importing this module imports nothing heavy; Transformers comes with the class.
No fault of measuring raises into the training.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from contextlib import AbstractContextManager
from typing import Any

from kdwatch import progress

log = logging.getLogger("kdwatch")

REPORT_S = 0.5
"""Least time between two reports."""


class Reporter:
    """Where reports go: the stage that this process is, or a stage of a run of its own."""

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind
        self._open: AbstractContextManager[Any] | None = None
        self._handle: Any = None
        self._tokens = 0

    def begin(self) -> None:
        """Open a stage of its own unless the process is one."""
        if os.environ.get("KDWATCH_EVENTS") or self._open is not None:
            return
        from kdwatch.session import default_session

        self._open = default_session().stage(self._name, self._kind)
        self._handle = self._open.__enter__()

    def phase(self, name: str) -> None:
        """A phase begins."""
        if self._handle is not None:
            self._handle.phase(name)
        else:
            progress.phase(name)

    def counts(self, tokens: int | None, step: int, total_steps: int | None, loss: float | None) -> None:
        """Cumulative counts of this training."""
        if self._handle is None:
            progress.progress(tokens=tokens, step=step, total_steps=total_steps, loss=loss)
            return
        self._handle.progress(step=step, total_steps=total_steps, loss=loss)
        if tokens is not None and tokens > self._tokens:
            self._handle.add_tokens(tokens - self._tokens)
            self._tokens = tokens

    def end(self) -> None:
        """Close the stage of its own."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = self._handle = None


class TokenCounter:
    """Counts the tokens that are no padding, of every training forward pass, without waiting for the device."""

    def __init__(self) -> None:
        self._hook: Any = None
        self._sum: Any = None
        self._plain = 0

    def attach(self, model: Any) -> None:
        """Count what this model sees from now on."""
        if model is not None and self._hook is None and hasattr(model, "register_forward_pre_hook"):
            self._hook = model.register_forward_pre_hook(self._before_forward, with_kwargs=True)

    def _before_forward(self, model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if not model.training:
            return
        mask, ids = kwargs.get("attention_mask"), kwargs.get("input_ids", args[0] if args else None)
        if mask is not None and getattr(mask, "ndim", 0) == 2:
            found = mask.detach().sum()
            self._sum = found if self._sum is None else self._sum + found
        elif ids is not None and hasattr(ids, "numel"):
            self._plain += int(ids.numel())

    def total(self) -> int | None:
        """Tokens so far (waits for the device); None if nothing was seen."""
        if self._sum is None and not self._plain:
            return None
        return self._plain + (int(self._sum.item()) if self._sum is not None else 0)

    def detach(self) -> None:
        """Stop counting."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _guarded(method: Any) -> Any:
    """What goes wrong in a report is logged, never raised."""

    @functools.wraps(method)
    def call(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            method(self, args, state, control, **kwargs)
        except Exception as error:
            log.warning("not reported: %s", error)

    return call


@functools.cache
def _callback_class() -> type:
    from transformers import TrainerCallback

    class KdwatchCallback(TrainerCallback):
        """Reports to kdwatch. `stage` and `kind` name the stage of a run of its own, where there is none around."""

        def __init__(self, stage: str = "train", kind: str = "student") -> None:
            self._reporter = Reporter(stage, kind)
            self._tokens = TokenCounter()
            self._start_tokens = 0
            self._logged_tokens: int | None = None
            self._loss: float | None = None
            self._reported = 0.0
            self._evaluating = False

        @_guarded
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            self._start_tokens = int(getattr(state, "num_input_tokens_seen", 0) or 0)
            if not state.is_world_process_zero:
                return
            self._reporter.begin()
            self._reporter.phase("work")
            if getattr(args, "world_size", 1) == 1:
                self._tokens.attach(model)
            self._report(state, force=True)

        @_guarded
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self._evaluating and state.is_world_process_zero:
                self._evaluating = False
                self._reporter.phase("work")
            self._report(state)

        @_guarded
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            found = logs or {}
            if isinstance(found.get("loss"), int | float):
                self._loss = float(found["loss"])
            if isinstance(found.get("num_tokens"), int | float):
                self._logged_tokens = int(found["num_tokens"])
            self._report(state, force=True)

        @_guarded
        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not self._evaluating and state.is_world_process_zero:
                self._evaluating = True
                self._reporter.phase("evaluate")

        @_guarded
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not state.is_world_process_zero:
                return
            self._report(state, force=True)
            self._tokens.detach()
            self._reporter.phase("save")
            self._reporter.end()

        def _report(self, state: Any, force: bool = False) -> None:
            now = time.monotonic()
            if not state.is_world_process_zero or (not force and now - self._reported < REPORT_S):
                return
            self._reported = now
            total = state.max_steps if state.max_steps and state.max_steps > 0 else None
            self._reporter.counts(self._count(state), state.global_step, total, self._loss)

        def _count(self, state: Any) -> int | None:
            """Tokens without padding seen here; over several processes what the trainer gathered; None if unknown."""
            counted = self._tokens.total()
            if counted is not None:
                return counted
            if self._logged_tokens is not None:
                return self._logged_tokens
            gathered = int(getattr(state, "num_input_tokens_seen", 0) or 0) - self._start_tokens
            return gathered if gathered > 0 else None

    return KdwatchCallback


def __getattr__(name: str) -> Any:
    if name == "KdwatchCallback":
        return _callback_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
