"""One device's seconds are not another's: items share a thread until one is slow."""

from __future__ import annotations

import threading
import time

import pytest

from kdwatch.meters.lanes import QUICK_TURNS, Crew


class Item:
    """A device that can be held up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0

    def job(self) -> str:
        self.calls += 1
        self.gate.wait(30)
        return self.name


@pytest.fixture
def items():
    made = [Item(n) for n in "abcd"]
    yield made
    for item in made:
        item.gate.set()


def test_quick_items_share_one_thread(items: list[Item]) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=5.0)
    assert crew.run(Item.job) == list("abcd")
    assert crew.run(Item.job) == list("abcd")
    assert crew.lanes == 1
    crew.close()


@pytest.mark.parametrize("stuck", range(4))
def test_a_stuck_item_costs_the_others_no_turn(items: list[Item], stuck: int) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=0.2)
    crew.run(Item.job)
    items[stuck].gate.clear()
    others = set("abcd") - {items[stuck].name}
    for _ in range(5):
        assert set(crew.run(Item.job)) == others
    assert items[stuck].calls == 2, "it is asked again only once it has answered"
    items[stuck].gate.set()
    deadline = time.monotonic() + 10
    seen: list[str] = []
    while items[stuck].name not in seen and time.monotonic() < deadline:
        seen = crew.run(Item.job)
    assert items[stuck].name in seen, "its late answer comes with a later turn"
    crew.close()


def test_each_item_is_served_once_in_the_turn_that_splits(items: list[Item]) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=0.2)
    items[1].gate.clear()
    assert sorted(crew.run(Item.job)) == ["a", "c", "d"]
    assert [i.calls for i in items] == [1, 1, 1, 1]
    crew.close()


def test_all_stuck_leaves_an_empty_turn_in_bounded_time(items: list[Item]) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=0.05)
    for item in items:
        item.gate.clear()
    began = time.monotonic()
    assert crew.run(Item.job) == []
    assert crew.run(Item.job) == []
    assert time.monotonic() - began < 5
    assert crew.lanes == 4
    crew.close()


def test_an_item_that_recovered_comes_back(items: list[Item]) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=0.5)
    items[2].gate.clear()
    crew.run(Item.job)
    assert crew.lanes == 2
    items[2].gate.set()
    turns, deadline = 0, time.monotonic() + 60
    while crew.lanes > 1 and time.monotonic() < deadline:  # its late turn ends when its thread gets a CPU
        crew.run(Item.job)
        turns += 1
    assert crew.lanes == 1 and turns > QUICK_TURNS
    assert sorted(crew.run(Item.job)) == list("abcd")
    crew.close()


def test_threads_end_with_the_crew(items: list[Item]) -> None:
    before = set(threading.enumerate())
    crew: Crew[Item, str] = Crew(items, deadline_s=0.2)
    items[0].gate.clear()
    crew.run(Item.job)
    own = [t for t in threading.enumerate() if t not in before]
    assert len(own) >= 2, "one lane is stuck, another goes on"
    crew.close()
    items[0].gate.set()
    for thread in own:
        thread.join(10)
    assert not any(thread.is_alive() for thread in own)


def test_a_job_that_raises_costs_that_result_and_no_thread(items: list[Item]) -> None:
    crew: Crew[Item, str] = Crew(items, deadline_s=5.0)

    def job(item: Item) -> str:
        if item.name == "b":
            raise RuntimeError("no bus")
        return item.name

    assert crew.run(job) == ["a", "c", "d"]
    assert crew.run(Item.job) == list("abcd")
    crew.close()


def test_no_items_no_thread() -> None:
    before = threading.active_count()
    assert Crew([], 1.0).run(lambda item: item) == []
    assert threading.active_count() == before
