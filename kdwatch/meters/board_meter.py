"""What the meters of several boards share: their lanes, their events, and one end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from kdwatch.meters.base import Device, SensorEvent
from kdwatch.meters.lanes import Crew


class BoardSensor(Protocol):
    """One board as a meter holds it."""

    device: Device
    events: deque[SensorEvent]
    """New ones on the right; taken from the left."""


Sensor = TypeVar("Sensor", bound=BoardSensor)
Result = TypeVar("Result")


class BoardMeter(Generic[Sensor, Result]):
    """Boards read by a crew of threads."""

    def __init__(self, sensors: Sequence[Sensor], deadline_s: float) -> None:
        self.devices: Sequence[Device] = [s.device for s in sensors]
        self._sensors = list(sensors)
        self._crew: Crew[Sensor, Result] = Crew(sensors, deadline_s)
        self._closed = False

    def drain_events(self) -> Sequence[SensorEvent]:
        """Events since the last call, in order of time."""
        events = []
        for sensor in self._sensors:
            while sensor.events:
                events.append(sensor.events.popleft())
        return sorted(events, key=lambda e: e.t)

    def close(self) -> None:
        """End the threads and shut the library down."""
        if not self._closed:
            self._closed = True
            self._crew.close()
            self._shut_down()

    def _shut_down(self) -> None:
        """Leave the vendor's library; never raises."""
        raise NotImplementedError
