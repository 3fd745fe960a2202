"""The logit cache: bytes, checksums, refusal, resume, alignment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stages_help import REAL, in_process, random_rows, tiny_model, token_rows

from kdwatch.stages import cache_logits
from kdwatch.stages.cache import extract
from kdwatch.stages.cache.layout import Layout, Positions, pack, unpack
from kdwatch.stages.cache.reader import LogitCache, teacher_log_p
from kdwatch.stages.cache.shards import map_shard, write_shard
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import CacheSettings


def positions(count: int, layout: Layout, seed: int = 0) -> Positions:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.choice(layout.vocabulary, layout.top_k, replace=False) for _ in range(count)])
    values = -np.sort(rng.exponential(2.0, (count, layout.top_k))).astype(np.float32)
    values -= values[:, :1]
    shape = (count, len(layout.temperatures))
    return Positions(
        ids, values, rng.uniform(0, 9, shape).astype(np.float32), -rng.exponential(3, shape).astype(np.float32)
    )


@pytest.mark.parametrize(("quantised", "limit"), [(False, 430), (True, 330)])
def test_bytes_per_token_at_top_100_17_bits_and_three_temperatures(tmp_path: Path, quantised: bool, limit: int) -> None:
    """Issue: ≤ 430, quantised ≤ 330, all files counted; the printed estimate is within 5 % (row 11)."""
    layout = Layout(100, 100_278, (1.0, 2.0, 4.0), quantised=quantised)
    assert layout.id_bits == 17
    count = 2000
    write_shard(tmp_path, "shard-00000.safetensors", pack(layout, positions(count, layout)), 0, 5, {"mass": [0.9] * 3})
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk / count <= limit
    assert on_disk == pytest.approx(layout.bytes_per_position * count, rel=0.05)


@given(
    vocabulary=st.sampled_from([2, 98, 256, 257, 65_536, 65_537, 100_278, 262_144]),
    k=st.integers(1, 20),
    seed=st.integers(0, 999),
    quantised=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_is_packed_comes_back(vocabulary: int, k: int, seed: int, quantised: bool) -> None:
    layout = Layout(min(k, vocabulary), vocabulary, (1.0, 2.0), quantised=quantised)
    rows = positions(7, layout, seed)
    back = unpack(layout, pack(layout, rows))
    np.testing.assert_array_equal(back.ids, rows.ids)
    spread = -rows.values.min()
    tolerance = spread / 127 + 1e-3 if quantised else np.abs(rows.values).max() * 2**-11 + 1e-6
    np.testing.assert_allclose(back.values, rows.values, atol=tolerance)
    np.testing.assert_allclose(back.lse, rows.lse, atol=6e-3 if quantised else 0)
    assert back.tail is not None and rows.tail is not None
    np.testing.assert_allclose(back.tail, rows.tail, rtol=2**-10)


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    layout = Layout(2, 98, (1.0,))
    rows = Positions(
        np.array([[97, 98]]), np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
    )
    with pytest.raises(ValueError, match="98 is beyond"):
        pack(layout, rows)


def test_equal_logits_are_taken_by_the_smaller_id() -> None:
    """bf16 logits tie at the boundary in most rows; the cache must not depend on topk's mood."""
    z = torch.zeros(1, 50)
    z[0, 30] = 1
    found = extract.top_positions(z, Layout(4, 50, (1.0,)))
    assert found.ids.tolist() == [[30, 0, 1, 2]]


def test_every_declared_temperature_is_exact_from_one_cache() -> None:
    """p_T and tail at T = 1, 2, 4 against float64 softmax of the full row (re-tempering T = 1 values is not this)."""
    z = torch.from_numpy(np.random.default_rng(3).normal(0, 3, (50, 300)).astype(np.float32))
    layout = Layout(20, 300, (1.0, 2.0, 4.0))
    rows = unpack(layout, pack(layout, extract.top_positions(z, layout)))
    for i, temperature in enumerate(layout.temperatures):
        log_p, tail = teacher_log_p(rows, temperature, i)
        true = torch.log_softmax(z.double() / temperature, dim=1).gather(1, torch.from_numpy(rows.ids)).numpy()
        np.testing.assert_allclose(log_p, true, atol=np.abs(rows.values).max() * 2**-11)
        assert tail is not None
        np.testing.assert_allclose(np.exp(tail), 1 - np.exp(true).sum(axis=1), rtol=5e-3, atol=1e-6)


def made_cache(folder: Path, models: dict[str, Path], rows: int = 12, **settings: object) -> tuple[Path, Path]:
    data = folder / "data"
    if not data.exists():
        token_rows(data, models["teacher"], random_rows(5, rows))
    wanted = {"top_k": 10, "temperatures": [1, 2], "device": "cpu", "threads": 1, **settings}
    return data, in_process(
        cache_logits.work, CacheSettings(teacher=str(models["teacher"]), **wanted), folder / "logits", data=data
    )


def test_cached_positions_are_those_that_predict_the_answer(tmp_path: Path, models: dict[str, Path]) -> None:
    """The off-by-one of others: teacher rows are shifted like logits, never like labels; prompts are not cached."""
    from transformers import AutoModelForCausalLM

    data_path, out = made_cache(tmp_path, models)
    data = read_tokens(data_path)
    cache = LogitCache(out, data, verify=True)
    model = AutoModelForCausalLM.from_pretrained(models["teacher"], dtype=torch.float32)
    for r in (7, 2, 11):
        ids, targets = data.row(r)
        with torch.no_grad():
            full = model(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0, :, :REAL]
        where = np.flatnonzero(targets) - 1
        true = torch.log_softmax(full[where], dim=1)
        rows = cache.rows([r])
        assert rows.ids.shape == (int(targets.sum()), 10)
        log_p, _ = teacher_log_p(rows, 1.0, 0)
        np.testing.assert_array_equal(rows.ids[:, 0], true.argmax(1).numpy())
        np.testing.assert_allclose(log_p, true.gather(1, torch.from_numpy(rows.ids)).numpy(), atol=0.02)


def test_rows_come_in_the_order_asked_for_whatever_the_shards(tmp_path: Path, models: dict[str, Path]) -> None:
    """Trap 12: a shuffled cache. Small shards and large ones hold the same, row by row."""
    data_path, small = made_cache(tmp_path, models, shard_tokens=8)
    data = read_tokens(data_path)
    _, large = made_cache(tmp_path / "large", models, rows=12)
    one, many = LogitCache(large, data), LogitCache(small, data)
    assert len(many.meta["shards"]) > 2
    order = [3, 9, 0, 11]
    for a, b in zip(order, order, strict=True):
        np.testing.assert_array_equal(one.rows([a]).ids[:, 0], many.rows([b]).ids[:, 0])
    np.testing.assert_array_equal(many.rows(order).ids, np.concatenate([many.rows([r]).ids for r in order]))


def test_undeclared_temperature_is_refused_with_what_to_write(tmp_path: Path, models: dict[str, Path]) -> None:
    """Row 32."""
    data_path, out = made_cache(tmp_path, models)
    with pytest.raises(StageProblem, match=r"not 4: .*temperatures: \[1.0, 2.0, 4\]"):
        LogitCache(out, read_tokens(data_path)).temperature_index(4)


def test_other_token_ids_are_refused(tmp_path: Path, models: dict[str, Path]) -> None:
    """Row 20: a changed template or tokenizer gives other ids; the cache must not be used for them."""
    _, out = made_cache(tmp_path, models)
    other = token_rows(tmp_path / "other", models["teacher"], random_rows(6, 12))
    with pytest.raises(StageProblem, match="other token ids"):
        LogitCache(out, other)


def test_a_flipped_byte_is_found_and_a_torn_shard_is_told(tmp_path: Path, models: dict[str, Path]) -> None:
    data_path, out = made_cache(tmp_path, models)
    data = read_tokens(data_path)
    shard = next(out.glob("shard-*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(StageProblem, match="checksum"):
        LogitCache(out, data, verify=True)
    shard.write_bytes(content[:20])
    with pytest.raises(StageProblem, match="torn"):
        LogitCache(out, data).rows([0])
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(StageProblem, match="format 99"):
        LogitCache(out, data)


def test_shards_stay_on_disk_until_rows_are_asked_for(tmp_path: Path, models: dict[str, Path]) -> None:
    data_path, out = made_cache(tmp_path, models)
    for shard in out.glob("shard-*.safetensors"):
        assert all(isinstance(array, np.memmap) for array in map_shard(shard).values())
    names = {shard.name: shard.rename(shard.with_suffix(".away")) for shard in out.glob("shard-*.safetensors")}
    cache = LogitCache(out, read_tokens(data_path))  # opening reads no shard
    for name, away in names.items():
        away.rename(out / name)
    assert len(cache.rows([0]).ids) == int(read_tokens(data_path).response_counts[0])


def test_a_killed_cache_goes_on_with_the_finished_shards(tmp_path: Path, models: dict[str, Path]) -> None:
    """Shards finished before the kill are kept byte for byte, torn ones are made again, the result is the same."""
    data_path, whole = made_cache(tmp_path, models, shard_tokens=8)
    again = tmp_path / "again"
    _, partly = made_cache(again, models, shard_tokens=8)
    names = sorted(p.name for p in partly.glob("shard-*.safetensors"))
    # as after a kill: no manifest; first shard with its note, second torn, the rest missing
    meta = json.loads((partly / "manifest.json").read_text())
    (partly / "manifest.json").unlink()
    for entry in meta["shards"][:2]:
        note = {**entry, "stats": {"mass": [1.0, 1.0], "max_logit_error": 0.0}}
        (partly / f"{entry['name']}.json").write_text(json.dumps(note))
    (partly / names[1]).write_bytes(b"torn")
    for name in names[2:]:
        (partly / name).unlink()
    settings = CacheSettings(
        teacher=str(models["teacher"]), top_k=10, temperatures=[1, 2], device="cpu", threads=1, shard_tokens=8
    )
    from kdwatch.stages.cache.writer import CacheWriter

    (tmp_path / "plan").mkdir()
    CacheWriter(tmp_path / "plan", Layout(10, REAL, (1.0, 2.0)), read_tokens(data_path), settings)
    shutil.copy(tmp_path / "plan" / "plan.json", partly / "plan.json")
    before = (partly / names[0]).stat().st_mtime_ns
    in_process(cache_logits.work, settings, partly, data=data_path)
    assert (partly / names[0]).stat().st_mtime_ns == before
    for name in names:
        assert (partly / name).read_bytes() == (whole / name).read_bytes()


def test_what_another_plan_left_is_not_mixed_in(tmp_path: Path, models: dict[str, Path]) -> None:
    """Trap 12: stale chunks of an earlier run were concatenated."""
    made_cache(tmp_path, models, shard_tokens=8)
    data_path, out = made_cache(tmp_path, models, top_k=5)
    assert LogitCache(out, read_tokens(data_path), verify=True).layout.top_k == 5
    assert len(list(out.glob("shard-*"))) == 1


def test_batch_size_changes_no_first_choice_and_values_by_less_than_a_thousandth(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    """transformers#28385: padding may change logits a little."""
    data_path, one = made_cache(tmp_path, models, batch_tokens=1)
    _, many = made_cache(tmp_path / "b", models, batch_tokens=4096)
    data = read_tokens(data_path)
    a, b = LogitCache(one, data).rows(range(12)), LogitCache(many, data).rows(range(12))
    np.testing.assert_array_equal(a.ids[:, 0], b.ids[:, 0])
    np.testing.assert_allclose(a.lse, b.lse, atol=1e-3)


def test_teacher_with_another_token_map_fails_before_torch_is_imported(tmp_path: Path, models: dict[str, Path]) -> None:
    """Rows 2, 3 and 31: same size, other map."""
    other = tiny_model(tmp_path / "other", seed=4)
    text = (other / "tokenizer.json").read_text()
    value = json.loads(text)
    vocabulary = value["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(value))
    data = tmp_path / "data"
    token_rows(data, models["teacher"], random_rows(5, 4))
    with pytest.raises(StageProblem, match=r"different vocabularies.*synthetic SFT"):
        in_process(cache_logits.work, CacheSettings(teacher=str(other)), tmp_path / "out", data=data)
    from kdwatch.stages.data.tokenizer import TextTokenizer, check_same

    with pytest.raises(StageProblem, match="2 conflicts, 0 missing: 'a' is"):
        check_same(TextTokenizer.load(str(models["teacher"])), TextTokenizer.load(str(other)))


def test_size_is_told_before_and_a_full_disk_is_refused(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_cache(tmp_path, models)
    assert "bytes a response token" in capsys.readouterr().out
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(StageProblem, match="lower top_k, set quantised"):
        made_cache(tmp_path / "full", models)


def test_captured_mass_is_in_the_record(tmp_path: Path, models: dict[str, Path]) -> None:
    """Part 2: with a top-k cache the mass falls with T; the record must say how much."""
    data_path, out = made_cache(tmp_path, models)
    mass = LogitCache(out, read_tokens(data_path)).captured_mass()
    assert 0 < mass["2"] < mass["1"] <= 1
