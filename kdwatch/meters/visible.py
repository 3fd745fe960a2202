"""Which boards `CUDA_VISIBLE_DEVICES` selects, by CUDA's own grammar.

Source of the grammar: CUDA C++ Programming Guide, "CUDA Environment Variables", and the forms of MIG names in
NVIDIA's MIG User Guide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigSlice:
    """One MIG compute instance of a board."""

    uuid: str
    """`MIG-…`, as NVML names it."""
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Board:
    """One physical GPU, as far as selecting it goes."""

    index: int
    """Position in NVML's order."""
    uuid: str
    """`GPU-…`."""
    bus_id: str = ""
    """PCI bus id; CUDA's order under `CUDA_DEVICE_ORDER=PCI_BUS_ID`."""
    speed: float = 0.0
    """Cores times clock, for CUDA's default order, fastest first; 0 where unknown."""
    slices: tuple[MigSlice, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Boards in CUDA's order, each once, and what a person should know about how they were found."""

    boards: tuple[Board, ...]
    notes: tuple[str, ...] = ()
    unknown: str | None = None
    """The entry at which the list ended because no board has that number or name."""


def cuda_order(boards: Sequence[Board], order: str | None) -> list[Board]:
    """Boards as CUDA numbers them: by bus id, or fastest first (equal ones by bus id) where `order` is not
    `PCI_BUS_ID`."""
    by_bus = sorted(boards, key=lambda b: (b.bus_id, b.index))
    if order == "PCI_BUS_ID":
        return by_bus
    return sorted(by_bus, key=lambda b: -b.speed)


def select(value: str | None, boards: Sequence[Board], order: str | None = None) -> Selection:
    """Boards that a value of `CUDA_VISIBLE_DEVICES` selects.

    `value` None means the variable is unset: all boards. `order` is the value of `CUDA_DEVICE_ORDER`.
    """
    numbered = cuda_order(boards, order)
    if value is None:
        return Selection(tuple(numbered))
    tokens = [token.strip() for token in value.split(",")]
    if tokens == [""]:
        return Selection((), ("CUDA_VISIBLE_DEVICES is empty: it selects no GPU",))
    if tokens[0].startswith("MIG-"):
        return _mig(tokens, numbered)
    chosen, bad = _walk(tokens, numbered)
    notes = _notes(bad, len(numbered))
    if len({b.uuid for b in chosen}) < len(chosen):
        return Selection((), ("CUDA_VISIBLE_DEVICES names a GPU twice: CUDA then offers none",))
    if tokens[0].isdigit() and order != "PCI_BUS_ID" and len({b.speed for b in boards}) > 1:
        notes += (
            "CUDA_VISIBLE_DEVICES counts unlike GPUs fastest first, which is guessed here from cores and clock; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID or give UUIDs",
        )
    return Selection(tuple(chosen), notes, bad)


def _walk(tokens: Sequence[str], numbered: Sequence[Board]) -> tuple[list[Board], str | None]:
    """Boards up to the first entry that CUDA does not accept, and that entry."""
    chosen: list[Board] = []
    integers = tokens[0].isdigit()
    for token in tokens:
        board = _by_number(token, numbered) if integers else _by_uuid(token, numbered)
        if board is None:
            return chosen, token
        chosen.append(board)
    return chosen, None


def _by_number(token: str, numbered: Sequence[Board]) -> Board | None:
    if not (token.isascii() and token.isdigit()) or len(token) > 9:
        return None
    return numbered[int(token)] if int(token) < len(numbered) else None


def _by_uuid(token: str, boards: Sequence[Board]) -> Board | None:
    """The one board whose UUID begins with `token`, which must go beyond `GPU-`."""
    if not token.startswith("GPU-") or len(token) <= len("GPU-"):
        return None
    found = [b for b in boards if b.uuid.lower().startswith(token.lower())]
    return found[0] if len(found) == 1 else None


def _mig(tokens: Sequence[str], boards: Sequence[Board]) -> Selection:
    """CUDA offers one MIG device at most: the first entry decides. The whole board is what can be measured."""
    board = _board_of_slice(tokens[0], boards)
    if board is None:
        return Selection((), _notes(tokens[0], len(boards)), tokens[0])
    notes = ["a MIG slice has no power reading of its own: the whole board is measured"]
    if len(tokens) > 1:
        notes.append("CUDA offers one MIG device at most: entries after the first are ignored")
    return Selection((board,), tuple(notes))


def _board_of_slice(token: str, boards: Sequence[Board]) -> Board | None:
    if token.startswith("MIG-GPU-"):
        parent, _, instances = token.removeprefix("MIG-").partition("/")
        pair = instances.split("/")
        found = [b for b in boards if b.uuid.lower() == parent.lower()]
        if len(found) != 1 or len(pair) != 2 or not all(p.isdigit() for p in pair):
            return None
        known = {(s.gpu_instance, s.compute_instance) for s in found[0].slices}
        return found[0] if (int(pair[0]), int(pair[1])) in known else None
    if len(token) <= len("MIG-"):
        return None
    hits = [b for b in boards for s in b.slices if s.uuid.lower().startswith(token.lower())]
    return hits[0] if len(hits) == 1 else None


def _notes(bad: str | None, count: int) -> tuple[str, ...]:
    if bad is None:
        return ()
    return (
        f"CUDA_VISIBLE_DEVICES: {bad!r} names none of the {count} GPUs seen here; CUDA ignores it and all that follows",
    )


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """Values of `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`; None where unset."""
    return environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER")
