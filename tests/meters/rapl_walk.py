"""A stage on a simulated powercap tree, read and booked poll by poll."""

from __future__ import annotations

from dataclasses import asdict

from sim_powercap import PowercapTree

from kdwatch.ledger.core import Ledger
from kdwatch.meters.rapl import RaplMeter
from kdwatch.meters.rapl_open import Opened, open_rapl


def ledger_of(opened: Opened) -> Ledger:
    devices = [asdict(c.device) | {"stream": "rapl", "period_s": 1.0} for c in opened.counters]
    clock = {"monotonic_origin": 0.0, "wall_origin": 0.0, "boottime_origin": 0.0}
    return Ledger({"devices": devices, "stages": [{"name": "work", "kind": "other"}], "clock": clock})


class Walk:
    """A stage on a tree whose time is counted in polls of 1 s."""

    def __init__(self, tree: PowercapTree) -> None:
        self.tree = tree
        opened = open_rapl(tree.root)
        self.now = 0.0
        self.meter = RaplMeter(opened.counters, clock=lambda: self.now)
        self.ledger = ledger_of(opened)
        self.poll()
        self.ledger.event({"type": "stage_started", "t": 0.0, "stage": "work", "kind": "other"})

    def poll(self) -> None:
        for r in self.meter.poll():
            self.ledger.sample(r.t, r.key, r.counter_j, r.power_w, r.average_w)
        for e in self.meter.drain_events():
            self.ledger.event({"type": "sensor", "t": e.t, "device": e.key, "what": e.what, "text": e.text})

    def step(self, seconds: float = 1.0, **watts: float) -> None:
        """Zones by their position, `z0=100` W for the first package …"""
        for name, power in watts.items():
            self.tree.zones[f"intel-rapl:{name[1:].replace('_', ':')}"].add_j(power * seconds)
        self.now += seconds
        self.poll()

    def total(self) -> dict[str, float | None]:
        self.ledger.event({"type": "stage_ended", "t": self.now, "stage": "work", "status": "completed"})
        (stage,) = self.ledger.totals(self.now).stages
        return {d.key: d.energy_j for d in stage.devices}
