"""Answers do not depend on padding, batch size or resumption; sampling follows the nucleus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stages_help import tiny_model

from kdwatch.stages.nn import models
from kdwatch.stages.nn.decoding import Decoder
from kdwatch.stages.nn.nucleus import SHORTEST, Nucleus, Sampling
from kdwatch.stages.settings import EvaluateSettings

CPU = torch.device("cpu")
REAL = 98


def decoder(folder: Path, **values: Any) -> Decoder:
    model = models.load_model(str(folder), EvaluateSettings(), CPU, dtype=torch.float32)
    return Decoder(model, **{"vocabulary": REAL, "eos": 2, "pad": 2, "device": CPU, **values})


def prompts(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.array([1, *rng.integers(3, REAL, rng.integers(1, 14))]) for _ in range(count)]


def alone(d: Decoder, prompt: np.ndarray, most: int) -> list[int]:
    """Greedy by full forward passes of one row, without cache and padding."""
    ids = prompt.tolist()
    for _ in range(most):
        with torch.no_grad():
            chosen = int(d.model(input_ids=torch.tensor([ids])).logits[0, -1, :REAL].argmax())
        if chosen == d.eos:
            break
        ids.append(chosen)
    return ids[len(prompt) :]


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_padded_greedy_equals_single_rows(tmp_path: Path, kind: str) -> None:
    """Rows 37 and 38: pad == eos, ragged prompts, batch 1, 7 and all."""
    d = decoder(tiny_model(tmp_path / kind, kind=kind, seed=5, layers=2))
    asked = prompts(17)
    want = [alone(d, p, 9) for p in asked]
    for size in (1, 7, 17):
        got = [a.ids for i in range(0, 17, size) for a in d.answer(asked[i : i + size], 9)]
        assert got == want


def test_ended_rows_are_dropped_and_counted_once(tmp_path: Path, models: dict[str, Path]) -> None:
    """An end-of-text token counts as one output token; nothing after it does (trap 9)."""
    d = decoder(models["teacher"])
    first = [alone(d, p, 1)[0] for p in prompts(12)]
    d = decoder(models["teacher"], eos=max(set(first), key=first.count))
    answers = d.answer(prompts(12), 6)
    want = [alone(d, p, 6) for p in prompts(12)]
    assert [a.ids for a in answers] == want
    assert any(a.ended for a in answers)
    assert all(a.tokens == len(a.ids) + a.ended for a in answers)
    assert all(a.ended or len(a.ids) == 6 for a in answers)


def test_padding_rows_of_the_vocabulary_are_never_chosen(tmp_path: Path) -> None:
    d = decoder(tiny_model(tmp_path / "m", rows=4000, seed=6))
    answers = d.answer(prompts(10), 8, Sampling(5.0, 1.0, 1), list(range(10)))
    assert max(i for a in answers for i in a.ids) < REAL


def test_sampled_answers_depend_on_seed_and_row_only(models: dict[str, Path]) -> None:
    """A resumed or differently batched generation gives the same answers."""
    d = decoder(models["teacher"])
    asked, sampling = prompts(9), Sampling(0.9, 0.95, 7)
    whole = d.answer(asked, 6, sampling, list(range(9)))
    parts = [a for i in range(9) for a in d.answer([asked[i]], 6, sampling, [i])]
    assert [a.ids for a in whole] == [a.ids for a in parts]
    other = d.answer(asked, 6, Sampling(0.9, 0.95, 8), list(range(9)))
    assert [a.ids for a in other] != [a.ids for a in whole]


@given(seed=st.integers(0, 9999), top_p=st.floats(0.05, 1.0), heat=st.floats(0.2, 3.0))
@settings(max_examples=50, deadline=None)
def test_nucleus_draws_lie_in_the_smallest_set_that_reaches_top_p(seed: int, top_p: float, heat: float) -> None:
    z = torch.from_numpy(np.random.default_rng(seed).normal(0, 2, (1, 30)).astype(np.float32))
    p = torch.softmax(z.double() / heat, 1)[0]
    order = torch.argsort(p, descending=True)
    need = int((p[order].cumsum(0) - p[order] < top_p - 1e-6).sum())
    allowed = set(order[: need + 1].tolist())
    uniform = torch.linspace(0, 0.9999, 64)
    drawn = Nucleus(Sampling(heat, top_p, 0)).draw(z.repeat(64, 1), uniform)
    assert set(drawn.tolist()) <= allowed


def test_nucleus_frequencies_are_the_renormalised_probabilities() -> None:
    z = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    drawn = Nucleus(Sampling(1.0, 0.8, 0)).draw(z.repeat(10_000, 1), uniform)
    share = torch.bincount(drawn, minlength=4) / 10_000
    torch.testing.assert_close(share, torch.tensor([0.625, 0.375, 0.0, 0.0]), atol=2e-3, rtol=0)


@pytest.mark.parametrize("spread", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("ties", [False, True])
def test_a_short_list_draws_what_sorting_the_whole_vocabulary_draws(spread: float, ties: bool) -> None:
    """Logits of bfloat16 models are equal in many places; there the order is by id."""
    z = torch.from_numpy(np.random.default_rng(3).normal(0, spread, (200, 3000)).astype(np.float32))
    if ties:
        z = z.bfloat16().float()
    uniform = torch.from_numpy(np.random.default_rng(4).random(200, dtype=np.float32))
    sampling = Sampling(0.8, 0.9, 0)
    short, whole = Nucleus(sampling), Nucleus(sampling, listed=3000)
    drawn = [
        (short.draw(z[i : i + 1], uniform[i : i + 1]), whole.draw(z[i : i + 1], uniform[i : i + 1])) for i in range(200)
    ]
    assert all(a == b for a, b in drawn)
    assert short.listed == (SHORTEST if spread == 6 else 1024 if spread == 0.5 else short.listed)


def test_without_a_cut_every_id_is_drawn_as_often_as_it_is_likely() -> None:
    z = torch.log(torch.tensor([[0.05, 0.5, 0.15, 0.3]]))
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    drawn = Nucleus(Sampling(1.0, 1.0, 0)).draw(z.repeat(10_000, 1), uniform)
    torch.testing.assert_close(torch.bincount(drawn, minlength=4) / 10_000, z[0].exp(), atol=2e-3, rtol=0)


def test_batch_fits_the_memory(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the memory, about twice the rows; at least one row always."""
    from kdwatch.stages.nn import decoding

    d = decoder(models["teacher"])
    rows = []
    for free in (1, 2_000_000, 4_000_000, 10**12):
        monkeypatch.setattr(decoding, "free_bytes", lambda _, free=free: free)
        rows.append(d.batch_rows(100, 50))
    assert rows[0] == 1 and rows[3] == 512
    assert rows[2] == pytest.approx(2 * rows[1], abs=1)
