"""Answers of a model to prompts: greedy or nucleus sampling over padded batches.

Prompts are padded on the left with a mask and with position ids that start at the first real token, so a row's answer
does not depend on its neighbours. Each row draws its random numbers from its own generator, seeded by (seed, row
number): a batch of another size, or a resumed run, gives the same answers up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
import torch

from kdwatch.stages.nn.compute import free_bytes
from kdwatch.stages.nn.nucleus import Nucleus, Sampling

CHECK_EVERY = 8
"""Steps between two looks at whether all rows have ended: each look waits for the device."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row's answer."""

    ids: list[int]
    """Without the end-of-text token."""
    ended: bool
    """False where max_new_tokens came first."""

    @property
    def tokens(self) -> int:
        """Output tokens, the end-of-text token included."""
        return len(self.ids) + self.ended


@dataclass(slots=True)
class Decoder:
    """A model with what is needed to let it answer."""

    model: Any
    vocabulary: int
    """Real ids; padding rows of the output are never chosen."""
    eos: int
    pad: int
    device: torch.device
    _cache_name: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keys and values are passed under another name before and after transformers 5.24."""
        known = signature(self.model.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"

    @torch.no_grad()
    def answer(
        self,
        prompts: Sequence[np.ndarray],
        max_new_tokens: int,
        sampling: Sampling | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[Answer]:
        """Answers in the order of the prompts; `numbers` are the rows' own, for their random numbers."""
        ids, mask = self._left_padded(prompts)
        nucleus = Nucleus(sampling) if sampling else None
        uniform = self._uniform(sampling, numbers or range(len(prompts)), max_new_tokens)
        produced = torch.full((len(prompts), max_new_tokens), self.eos, dtype=torch.long, device=self.device)
        alive = torch.arange(len(prompts), device=self.device)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        position = mask.sum(dim=1, keepdim=True) - 1
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        for step in range(max_new_tokens):
            logits = out.logits[:, -1, : self.vocabulary].float()
            chosen = logits.argmax(dim=1) if nucleus is None else nucleus.draw(logits, uniform[alive, step])
            chosen = torch.where(ended[alive], self.eos, chosen)
            produced[alive, step] = chosen
            ended[alive] |= chosen == self.eos
            if step + 1 == max_new_tokens:
                break
            cache = getattr(out, "cache", None) or out.past_key_values
            if (step + 1) % CHECK_EVERY == 0 or self.device.type == "cpu":
                going = ~ended[alive]
                if not bool(going.any()):
                    break
                if int(going.sum()) * 2 <= len(alive):
                    keep = torch.nonzero(going).squeeze(1)
                    cache.batch_select_indices(keep)
                    alive, chosen, mask, position = alive[keep], chosen[keep], mask[keep], position[keep]
            position = position + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            out = self.model(
                input_ids=chosen[:, None],
                attention_mask=mask,
                position_ids=position,
                use_cache=True,
                **{self._cache_name: cache},
            )
        return _answers(produced.cpu().numpy(), self.eos)

    def _left_padded(self, prompts: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(p) for p in prompts)
        ids = np.full((len(prompts), width), self.pad, dtype=np.int64)
        mask = np.zeros((len(prompts), width), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = prompt
            mask[row, width - len(prompt) :] = 1
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    def _uniform(self, sampling: Sampling | None, numbers: Sequence[int], steps: int) -> torch.Tensor:
        if sampling is None:
            return torch.empty(0)
        rows = [np.random.default_rng([sampling.seed, int(n)]).random(steps, dtype=np.float32) for n in numbers]
        return torch.from_numpy(np.stack(rows)).to(self.device)

    def batch_rows(self, longest_prompt: int, max_new_tokens: int) -> int:
        """Rows whose keys, values and logits fit into half of the free memory; 1 to 512."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        size = next(self.model.parameters()).element_size()
        kept = 2 * config.num_hidden_layers * heads * width * size * (longest_prompt + max_new_tokens)
        passing = 4 * longest_prompt * config.hidden_size * size * 4 + 6 * 4 * self.vocabulary
        return int(min(512, max(1, free_bytes(self.device) // 2 // (kept + passing))))


def _answers(produced: np.ndarray, eos: int) -> list[Answer]:
    found = []
    for row in produced:
        ends = np.flatnonzero(row == eos)
        ended = len(ends) > 0
        found.append(Answer(row[: ends[0] if ended else len(row)].tolist(), ended))
    return found
