"""CUDA_VISIBLE_DEVICES, form by form. The right answers are those of the CUDA C++ Programming Guide (environment
variables) and of NVIDIA's MIG guide."""

from __future__ import annotations

import pytest

from kdwatch.meters.visible import Board, MigSlice, select

A, B, C, D = "GPU-aaaa1111-0", "GPU-aaaa2222-1", "GPU-bbbb3333-2", "GPU-cccc4444-3"
SLICES = (MigSlice("MIG-5555aaaa-1", 1, 0), MigSlice("MIG-6666bbbb-2", 2, 0))
BOARDS = [
    Board(0, A, "00000000:10:00.0"),
    Board(1, B, "00000000:11:00.0"),
    Board(2, C, "00000000:12:00.0", slices=SLICES),
    Board(3, D, "00000000:13:00.0"),
]


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (None, [0, 1, 2, 3]),  # unset: all
        ("", []),
        ("  ", []),
        ("-1", []),
        ("0", [0]),
        ("3,1", [3, 1]),  # in the order given
        (" 2 , 0 ", [2, 0]),
        ("0,2,-1,1", [0, 2]),  # the list ends at the first entry that is none
        ("0,7,1", [0]),
        ("7", []),
        ("0,1,0", []),  # a device named twice: none
        ("1,", [1]),
        ("1,,2", [1]),
        ("0x1", []),
        ("²", []),  # a digit to Python, none to CUDA
        ("99999999999999999999", []),
        (A, [0]),
        (A.lower().replace("gpu-", "GPU-"), [0]),
        ("GPU-bbbb", [2]),  # an abbreviation that is unique
        ("GPU-aaaa", []),  # one that is not
        ("GPU-", []),
        ("GPU-dddd", []),
        (f"{C},{A}", [2, 0]),
        (f"{C},{C}", []),
        (f"{C},GPU-bbbb", []),  # the same board in two spellings
        (f"{A},1", [0]),  # no mixing of numbers and UUIDs
        (f"1,{A}", [1]),
        (f"{A},GPU-aaaa,{B}", [0]),
        ("MIG-5555aaaa-1", [2]),
        ("MIG-5555", [2]),
        ("MIG-5555aaaa-1,MIG-6666bbbb-2", [2]),  # one MIG device at most
        (f"MIG-{C}/1/0", [2]),
        (f"MIG-{C}/9/0", []),
        (f"MIG-{C}/1", []),
        (f"MIG-{A}/1/0", []),
        ("MIG-", []),
        ("MIG-9999", []),
        (f"{A},MIG-5555aaaa-1", [0]),
    ],
)
def test_the_grammar(value: str | None, chosen: list[int]) -> None:
    assert [b.index for b in select(value, BOARDS, "PCI_BUS_ID").boards] == chosen


def test_a_name_with_markup_or_garbage_is_quoted_in_the_note() -> None:
    (note,) = select("rm -rf\n", BOARDS).notes
    assert "'rm -rf'" in note and "4 GPUs" in note


def test_numbers_follow_cudas_order_not_nvmls() -> None:
    slow_first = [Board(0, A, "00:02.0", speed=1.0), Board(1, B, "00:01.0", speed=5.0)]
    assert [b.uuid for b in select("0", slow_first, "PCI_BUS_ID").boards] == [B]
    assert [b.uuid for b in select("0", slow_first, None).boards] == [B]
    slow_bus = [Board(0, A, "00:01.0", speed=1.0), Board(1, B, "00:02.0", speed=5.0)]
    assert [b.uuid for b in select("0", slow_bus, "PCI_BUS_ID").boards] == [A]
    fastest = select("0", slow_bus, "FASTEST_FIRST")
    assert [b.uuid for b in fastest.boards] == [B]
    assert "PCI_BUS_ID" in fastest.notes[0]


def test_equal_boards_need_no_note_on_order() -> None:
    assert select("1,0", BOARDS).notes == ()


def test_a_container_that_shows_fewer_boards_than_the_numbers_say() -> None:
    chosen = select("6,7", BOARDS[:2])
    assert chosen.boards == () and "'6' names none of the 2 GPUs" in chosen.notes[0]
