"""Rows 24 and 34: logits that another tool cached."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars
import pytest
from stages_help import REAL, random_rows, token_rows

from kdwatch.stages.cache import outside
from kdwatch.stages.cache.reader import LogitCache, teacher_log_p
from kdwatch.stages.problem import StageProblem


@pytest.fixture
def given(tmp_path: Path, models: dict[str, Path]) -> tuple[Path, np.ndarray, np.ndarray]:
    """A data set, and (ids, logprobs) of a random teacher at its positions, k = 5."""
    data = token_rows(tmp_path / "data", models["teacher"], random_rows(1, 6))
    z = np.random.default_rng(0).normal(0, 2, (int(data.targets.sum()), REAL))
    logp = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    ids = np.argsort(-logp, axis=1)[:, :5]
    return tmp_path / "data", ids, np.take_along_axis(logp, ids, 1)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_outside_numbers_come_back_as_they_were(tmp_path: Path, given: tuple, kind: str, temperature: float) -> None:
    from kdwatch.stages.data.tokens import read_tokens

    folder, ids, logp = given
    path = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(path, ids=ids, logprobs=logp)
    else:
        polars.DataFrame({"ids": ids.tolist(), "logprobs": logp.tolist()}).write_parquet(path)
    outside.import_outside(path, folder, tmp_path / "out", temperature)
    cache = LogitCache(tmp_path / "out", read_tokens(folder), verify=True)
    rows = cache.rows(range(6))
    found, tail = teacher_log_p(rows, temperature, cache.temperature_index(temperature))
    np.testing.assert_array_equal(rows.ids, ids)
    np.testing.assert_allclose(found, logp, atol=0.01)
    assert tail is not None
    np.testing.assert_allclose(np.exp(tail), 1 - np.exp(logp).sum(axis=1), rtol=0.01)
    with pytest.raises(StageProblem, match="Cache again"):
        cache.temperature_index(temperature + 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda i, p: (i[:-1], p[:-1]), "answer positions"),
        (lambda i, p: (i + REAL, p), "another tokenizer"),
        (lambda i, p: (i, p * 0), "at most 1 in sum"),
        (lambda i, p: (i, p[:, :3]), r"must both be"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, given: tuple, change: object, said: str) -> None:
    folder, ids, logp = given
    bad_ids, bad_logp = change(ids, logp)  # type: ignore[operator]
    np.savez(tmp_path / "x.npz", ids=bad_ids, logprobs=bad_logp)
    with pytest.raises(StageProblem, match=said):
        outside.import_outside(tmp_path / "x.npz", folder, tmp_path / "out", 1.0)


@pytest.mark.parametrize(
    "flags",
    [
        ["--top-p", "0.9", "--logprobs-are", "raw"],
        ["--top-p", "1", "--logprobs-are", "processed"],
    ],
)
def test_cut_or_processed_numbers_and_missing_facts_end_with_2(
    flags: list[str], given: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["outside", "x.npz", str(given[0]), str(tmp_path / "o"), "--temperature", "1", *flags]
    monkeypatch.setattr(sys, "argv", words)
    assert outside.main() == 2
    assert "take raw ones" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", words[:4])
    with pytest.raises(SystemExit) as ended:
        outside.main()
    assert ended.value.code == 2
