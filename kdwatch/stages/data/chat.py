"""From a conversation to token ids and the positions that are trained.

Every assistant turn is trained, its end-of-turn token included; system, user and template text is not. Each segment is
encoded on its own, as it is when a model answers a prompt, so a prompt's ids never depend on its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kdwatch.stages.data.rows import Row
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.problem import StageProblem


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row: ids and, for each, whether it is a target."""

    ids: list[int]
    targets: list[bool]
    task: str | None = None


def encode_row(row: Row, tokenizer: TextTokenizer, *, use_template: bool) -> Encoded:
    """Ids and targets of a row; its first token is never a target, since nothing predicts it.

    Raises StageProblem for a chat without a template.
    """
    encoded = _encode(row, tokenizer, use_template=use_template)
    encoded.targets[0] = False
    return encoded


def _encode(row: Row, tokenizer: TextTokenizer, *, use_template: bool) -> Encoded:
    if use_template and tokenizer.template is not None:
        return _encode_chat(row, tokenizer)
    if row.is_chat:
        raise StageProblem(
            f"data: rows are chat messages, but {tokenizer.folder} has no chat template: "
            "add chat_template.jinja, or give prompt and response"
        )
    prompt = tokenizer.encode(row.prompt, special=True)
    answer = [*tokenizer.encode(row.response), tokenizer.eos_id]
    return Encoded([*prompt, *answer], [False] * len(prompt) + [True] * len(answer), row.task)


def _encode_chat(row: Row, tokenizer: TextTokenizer) -> Encoded:
    ids: list[int] = []
    targets: list[bool] = []
    for text, is_target in chat_segments(row, tokenizer):
        part = tokenizer.encode(text)
        ids += part
        targets += [is_target] * len(part)
    if ids[-1] != tokenizer.eos_id and tokenizer.eos_id not in ids[_last_start(targets) :]:
        ids.append(tokenizer.eos_id)
        targets.append(True)
    return Encoded(ids, targets, row.task)


def _last_start(targets: list[bool]) -> int:
    """Where the last run of targets begins."""
    start = len(targets)
    while start and targets[start - 1]:
        start -= 1
    return start


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
