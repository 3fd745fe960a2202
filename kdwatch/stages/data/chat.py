"""From a conversation to token ids and the positions that are trained.

Every assistant turn is trained, its end-of-turn token included; system, user and template text is not. Each segment is
encoded on its own, as it is when a model answers a prompt, so a prompt's ids never depend on its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kdwatch.stages.data.rows import Row
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.problem import StageProblem


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row: ids and, for each, whether it is a target."""

    ids: list[int] | np.ndarray
    targets: list[bool] | np.ndarray
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is encoded on its own."""

    text: str
    trained: bool
    special: bool = False
    """Whether the tokenizer puts around it what begins a text."""


def encode_rows(rows: Sequence[Row], tokenizer: TextTokenizer, *, use_template: bool) -> list[Encoded]:
    """Ids and targets of each row, as arrays; a row's first token is never a target, since nothing predicts it.

    Many rows at a time go to the tokenizer, which uses all cores then. Raises StageProblem for a chat without a
    template.
    """
    pieces = [pieces_of(row, tokenizer, use_template=use_template) for row in rows]
    ids = iter(_encode([piece for of_row in pieces for piece in of_row], tokenizer))
    chat = use_template and tokenizer.template is not None
    found = []
    for row, of_row in zip(rows, pieces, strict=True):
        parts = [(next(ids), piece.trained) for piece in of_row]
        end = [] if chat and _ends(parts[-1][0], tokenizer.eos_id) else [tokenizer.eos_id]
        lengths = [*(len(part) for part, _ in parts), len(end)]
        targets = np.repeat([*(trained for _, trained in parts), True], lengths)
        targets[0] = False
        joined = np.concatenate([*(np.array(part, dtype=np.int32) for part, _ in parts), np.array(end, dtype=np.int32)])
        found.append(Encoded(joined, targets, row.task))
    return found


def pieces_of(row: Row, tokenizer: TextTokenizer, *, use_template: bool) -> list[Piece]:
    """A row's text, prompt and answer apart; the last piece is an answer."""
    if use_template and tokenizer.template is not None:
        return [Piece(text, trained) for text, trained in chat_segments(row, tokenizer)]
    if row.is_chat:
        raise StageProblem(
            f"data: rows are chat messages, but {tokenizer.folder} has no chat template: "
            "add chat_template.jinja, or give prompt and response"
        )
    return [Piece(row.prompt, trained=False, special=True), Piece(row.response, trained=True)]


def _encode(pieces: Sequence[Piece], tokenizer: TextTokenizer) -> list[list[int]]:
    """Ids of each piece, in order."""
    found: list[list[int]] = [[] for _ in pieces]
    for special in (False, True):
        places = [n for n, piece in enumerate(pieces) if piece.special is special]
        for n, ids in zip(
            places, tokenizer.encode_many([pieces[n].text for n in places], special=special), strict=True
        ):
            found[n] = ids
    return found


def _ends(answer: list[int], eos: int) -> bool:
    """Whether the template itself has ended the last answer (some put a line break after the end)."""
    return eos in answer


def chat_segments(row: Row, tokenizer: TextTokenizer) -> list[tuple[str, bool]]:
    """(text, trained?) pieces whose concatenation is the rendered conversation.

    Raises StageProblem for a template that rewrites earlier turns, since its answers cannot be told apart.
    """
    pieces: list[tuple[str, bool]] = []
    done = ""
    for i, (role, _) in enumerate(row.messages):
        if role != "assistant":
            continue
        before = render(tokenizer, row.messages[:i], generation_prompt=True)
        after = render(tokenizer, row.messages[: i + 1], generation_prompt=False)
        if not before.startswith(done) or not after.startswith(before):
            raise StageProblem(
                f"data: the chat template of {tokenizer.folder} changes earlier turns, so answers cannot be told from "
                "prompts: split the conversations, or use a template that appends only"
            )
        pieces += [(before[len(done) :], False), (after[len(before) :], True)]
        done = after
    return [piece for piece in pieces if piece[0]]


def render(tokenizer: TextTokenizer, messages: tuple[tuple[str, str], ...], *, generation_prompt: bool) -> str:
    """A conversation as the model's chat template writes it (in jinja's sandbox)."""
    assert tokenizer.template is not None
    values = [{"role": role, "content": content} for role, content in messages]
    try:
        return _compiled(tokenizer.template).render(
            messages=values,
            add_generation_prompt=generation_prompt,
            bos_token=tokenizer.token("bos_token") or "",
            eos_token=tokenizer.token("eos_token") or "",
            pad_token=tokenizer.token("pad_token") or "",
        )
    except Exception as error:  # a template may raise anything
        raise StageProblem(
            f"data: the chat template of {tokenizer.folder} fails ({error}): mend the template or the data"
        ) from None


@lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template)
