"""Logits that another tool cached, as a logit cache of ours.

`python -m kdwatch.stages.cache.outside FILE DATA OUT --temperature 1 --top-p 1 --logprobs-are raw`. FILE is an .npz or
a Parquet file with one row for each answer position of the data set DATA, in its order: `ids` int [N, k] and `logprobs`
float [N, k], natural logs of the whole distribution's probabilities. What cannot be seen from the numbers must be said:
the temperature they were taken at, whether top_p had cut the distribution before, and whether sampling parameters had
changed them; numbers of a cut or changed distribution are refused. Only the temperature that they were taken at can be
trained with: others cannot be had from log-probabilities of a top-k.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from kdwatch.stages.cache.layout import FORMAT, Layout, Positions, pack
from kdwatch.stages.cache.shards import write_shard
from kdwatch.stages.data.tokens import TokenSet, read_tokens
from kdwatch.stages.files import write_json
from kdwatch.stages.problem import StageProblem

SLACK = 1e-3
"""How far probabilities may add up to more than 1 by rounding."""


def read_outside(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(ids int64 [N, k], logprobs float32 [N, k]). StageProblem where the file does not hold them."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as f:
                ids, values = f["ids"], f["logprobs"]
        else:
            import polars

            table = polars.read_parquet(path, columns=["ids", "logprobs"])
            ids, values = (np.array(table[name].to_list()) for name in ("ids", "logprobs"))
        return ids.astype(np.int64), values.astype(np.float32)
    except Exception as error:  # numpy and polars raise many kinds for a file that is not what it should be
        raise StageProblem(f"outside logits: {path} has no readable columns ids and logprobs ({error})") from None


def check(ids: np.ndarray, logprobs: np.ndarray, data: TokenSet) -> None:
    """Raise StageProblem for what cannot be log-probabilities of this data set's positions."""
    positions, vocabulary = int(data.targets.sum()), data.meta["vocabulary"]["size"]
    if ids.ndim != 2 or ids.shape != logprobs.shape:
        raise StageProblem(f"outside logits: ids {ids.shape} and logprobs {logprobs.shape} must both be [positions, k]")
    if len(ids) != positions:
        raise StageProblem(f"outside logits: {len(ids)} rows, but the data set has {positions} answer positions")
    if ids.min() < 0 or ids.max() >= vocabulary:
        raise StageProblem(f"outside logits: an id lies outside 0 to {vocabulary - 1}: was another tokenizer used?")
    if not np.isfinite(logprobs).all() or np.exp(logprobs.astype(np.float64)).sum(axis=1).max() > 1 + SLACK:
        raise StageProblem("outside logits: logprobs must be finite and their probabilities at most 1 in sum")


def import_outside(path: Path, data_folder: Path, out: Path, temperature: float) -> Layout:
    """Write a cache of one temperature from another tool's log-probabilities."""
    data = read_tokens(data_folder)
    ids, logprobs = read_outside(path)
    check(ids, logprobs, data)
    order = np.argsort(-logprobs, axis=1, kind="stable")
    ids, logprobs = np.take_along_axis(ids, order, 1), np.take_along_axis(logprobs, order, 1)
    layout = Layout(ids.shape[1], data.meta["vocabulary"]["size"], (temperature,))
    mass = np.exp(logprobs.astype(np.float64)).sum(axis=1)
    tail = np.log(np.clip(1 - mass, 1e-12, None)).astype(np.float32)
    values = (logprobs - logprobs[:, :1]) * temperature
    rows = Positions(ids, values, -logprobs[:, :1], tail=tail[:, None])
    out.mkdir(parents=True, exist_ok=True)
    entry = write_shard(out, "shard-00000.safetensors", pack(layout, rows), 0, len(data), {})
    (out / f"{entry.name}.json").unlink()
    manifest = {
        "format": FORMAT,
        "layout": layout.as_dict(),
        "bytes_per_position": layout.bytes_per_position,
        "teacher": {"name": "outside", "file": path.name},
        "vocabulary": data.meta["vocabulary"],
        "data": data.meta["content"],
        "rows": len(data),
        "positions": len(ids),
        "captured_mass": {f"{temperature:g}": round(float(mass.mean()), 6)},
        "shards": [{k: v for k, v in entry.as_dict().items() if k != "stats"}],
    }
    write_json(out / "manifest.json", manifest)
    return layout


def main() -> int:
    """Exit status: 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("data", type=Path, help="directory of the dataset artifact")
    parser.add_argument("out", type=Path)
    parser.add_argument("--temperature", type=float, required=True, help="that the log-probabilities were taken at")
    parser.add_argument("--top-p", type=float, required=True, help="1 where nothing was cut")
    parser.add_argument("--logprobs-are", choices=["raw", "processed"], required=True)
    options = parser.parse_args()
    try:
        if options.top_p != 1 or options.logprobs_are != "raw":
            raise StageProblem(
                "outside logits: numbers of a cut or processed distribution cannot be used: take raw ones"
            )
        if not options.temperature > 0:
            raise StageProblem("outside logits: --temperature must be above 0")
        layout = import_outside(options.file, options.data, options.out, options.temperature)
    except StageProblem as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"{options.out}: top-{layout.top_k} at temperature {options.temperature:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
