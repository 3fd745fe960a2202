"""Nucleus sampling by inverse transform of given random numbers.

Sorting a vocabulary of 100k for every token costs a CPU as much as a small model's forward pass, so a short list of
the likeliest ids is tried first; what is drawn is the same to the last id.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

SHORTEST = 64
"""Ids of the first short list."""
LONGEST_SHARE = 8
"""A short list above the vocabulary divided by this is not worth its while: sort at once."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Nucleus sampling (Holtzman et al. 2020)."""

    temperature: float
    top_p: float
    seed: int


@dataclass(slots=True)
class Nucleus:
    """Draws ids; remembers how long a list the distribution asked for."""

    sampling: Sampling
    listed: int = SHORTEST

    def draw(self, logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Ids [B] for float32 logits [B, V] and random numbers [B] in [0, 1): the smallest set of ids whose mass
        reaches top_p, likeliest first, equal ones by rising id."""
        p = torch.softmax(logits / self.sampling.temperature, dim=1)
        if self.sampling.top_p == 1:
            return _place(p.cumsum(dim=1), uniform, p.shape[1]).squeeze(1)
        if p.device.type == "cpu":  # elsewhere the look at the mass would make the host wait, and sorting is fast
            while self.listed * LONGEST_SHARE <= p.shape[1]:
                top, ids = _by_mass_and_id(*torch.topk(p, self.listed, dim=1))
                sure = (top * (top > top[:, -1:])).sum(dim=1)
                if bool((sure >= self.sampling.top_p).all()):
                    return self._pick(top, ids, uniform)
                self.listed *= 4
        top, ids = torch.sort(p, dim=1, descending=True, stable=True)
        return self._pick(top, ids, uniform)

    def _pick(self, p: torch.Tensor, ids: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        mass = p.cumsum(dim=1)
        kept = mass - p < self.sampling.top_p
        total = (p * kept).sum(dim=1)
        return ids.gather(1, _place(mass, uniform * total, kept.sum(dim=1, keepdim=True))).squeeze(1)


def _place(mass: torch.Tensor, wanted: torch.Tensor, most: int | torch.Tensor) -> torch.Tensor:
    """First place [B, 1] where the cumulated mass [B, K] exceeds the wanted one [B]; below `most`, also by rounding."""
    place = torch.searchsorted(mass, wanted[:, None].contiguous(), right=True)
    return torch.minimum(place, torch.as_tensor(most, device=mass.device) - 1)


def _by_mass_and_id(p: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A short list in the order that a stable sort of the whole gives."""
    ids, order = torch.sort(ids, dim=1)
    p, order = torch.sort(p.gather(1, order), dim=1, descending=True, stable=True)
    return p, ids.gather(1, order)
