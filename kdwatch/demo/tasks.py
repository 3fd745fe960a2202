"""Short exact-match tasks over printable ASCII, with a held-out split and label noise.

A prompt belongs to the held-out split where `crc32(prompt) % 10 == 0`, so no sample of any seed can leak into it.
"""

from __future__ import annotations

import json
import random
import string
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LETTERS = string.ascii_lowercase
HELD_OUT_BUCKETS = 10


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and its answer; `task` is the benchmark it belongs to."""

    task: str
    prompt: str
    response: str


def _word(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(LETTERS, k=length))


def _count(rng: random.Random) -> tuple[str, str]:
    letter = rng.choice(LETTERS)
    word = "".join(letter if rng.random() < 0.4 else rng.choice(LETTERS) for _ in range(6))
    return f"cnt {letter} {word}=", str(word.count(letter))


def _largest(rng: random.Random) -> tuple[str, str]:
    numbers = [rng.randint(10, 99) for _ in range(3)]
    return f"max {' '.join(map(str, numbers))}=", str(max(numbers))


def _next(rng: random.Random) -> tuple[str, str]:
    word = _word(rng, 4)
    return f"nxt {word}=", "".join(LETTERS[(LETTERS.index(c) + 1) % 26] for c in word)


def _reverse(rng: random.Random) -> tuple[str, str]:
    word = _word(rng, rng.randint(3, 5))
    return f"rev {word}=", word[::-1]


def _sort(rng: random.Random) -> tuple[str, str]:
    word = _word(rng, 4)
    return f"srt {word}=", "".join(sorted(word))


def _add(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    return f"add {a}+{b}=", str(a + b)


MAKERS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "count": _count,
    "largest": _largest,
    "next": _next,
    "reverse": _reverse,
    "sort": _sort,
    "add": _add,
}
STUDENT_TASKS = ("count", "largest", "next", "reverse", "sort")
"""What students learn and what is evaluated; the teacher also learned `add`."""


def held_out(prompt: str) -> bool:
    """True where this prompt is never trained on, whatever the seed."""
    return zlib.crc32(prompt.encode()) % HELD_OUT_BUCKETS == 0


def examples(seed: int, tasks: Sequence[str] = STUDENT_TASKS, *, test: bool = False) -> Iterator[Example]:
    """An endless stream of right examples of one side of the split, tasks in turn."""
    rng = random.Random(seed)
    while True:
        for task in tasks:
            prompt, response = MAKERS[task](rng)
            while held_out(prompt) is not test:
                prompt, response = MAKERS[task](rng)
            yield Example(task, prompt, response)


def corrupt(example: Example, rng: random.Random) -> Example:
    """The same example with one character of the answer changed to another of its kind."""
    where = rng.randrange(len(example.response))
    right = example.response[where]
    pool = string.digits if right.isdigit() else LETTERS
    wrong = rng.choice([c for c in pool if c != right])
    return Example(example.task, example.prompt, example.response[:where] + wrong + example.response[where + 1 :])


def noisy(seed: int, rows: int, noise: float) -> list[Example]:
    """Training rows of which a share `noise` carries a wrong answer, as labels written by people do."""
    rng = random.Random(seed + 1)
    stream = examples(seed)
    clean = [next(stream) for _ in range(rows)]
    return [corrupt(row, rng) if rng.random() < noise else row for row in clean]


def write_jsonl(path: Path, rows: Sequence[Example]) -> None:
    """Rows as JSON lines with the keys `task`, `prompt`, `response`."""
    lines = [json.dumps({"task": r.task, "prompt": r.prompt, "response": r.response}) for r in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
