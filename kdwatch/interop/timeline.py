"""Logs put on one time line: where each stage begins, and which devices it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice, pairwise

from kdwatch.interop.model import ImportedLog, LoggedDevice, LoggedStage, Note
from kdwatch.rundir.errors import UsageProblem

ROUNDING_S = 1.5
"""Times with whole seconds may make neighbours overlap by this much: the later one then begins where the other ends."""


MOST_NOTES = 50
SHORTEST_S = 1e-5
"""A stage of no duration still has an edge before and one after its energy."""


@dataclass(slots=True)
class Piece:
    """A stage of the run to be: a window on the file's time line, with the devices that it has readings of."""

    log: ImportedLog
    stage: LoggedStage
    origin: float | None
    """Where the window begins on the file's time line; None where that is unknown."""
    duration_s: float
    devices: list[LoggedDevice]
    start: float = 0.0
    """Run time."""
    name: str = ""

    @property
    def end(self) -> float:
        return self.start + self.duration_s


@dataclass(slots=True)
class Timeline:
    """Pieces in order of run time."""

    pieces: list[Piece]
    wall_origin: float | None = None
    """Epoch seconds of run time 0; None where the files do not say."""
    local_start: float | None = None
    """The same in a zone that the files do not name: seconds as if the written time were UTC."""
    notes: list[Note] = field(default_factory=list)


def build_timeline(logs: list[ImportedLog]) -> Timeline:
    """Place the stages of all logs. Raises UsageProblem where zoned and unzoned times would have to be compared."""
    pieces = [piece for log in logs for piece in pieces_of(log)]
    names = {piece.log.path.name: piece.log.time_kind for piece in pieces}
    kinds = set(names.values())
    if {"epoch", "local"} <= kinds:
        zoned = next(name for name, kind in names.items() if kind == "epoch")
        bare = next(name for name, kind in names.items() if kind == "local")
        raise UsageProblem(f"{bare}: times without a zone beside {zoned} with one; give --tz ZONE")
    timeline = Timeline(pieces)
    if pieces and _place_by_time(pieces, kinds):
        first = min(piece.origin or 0.0 for piece in pieces)
        timeline.wall_origin = first if kinds == {"epoch"} else None
        timeline.local_start = first if kinds == {"local"} else None
    else:
        _place_end_to_end(timeline)
    timeline.notes += same_device_twice(pieces)
    for log in logs:
        without = [s.name for s in log.stages if s.duration_s is None and s.total_j is not None]
        if without:
            text = f"{log.path.name}: {len(without)} stages have energy and no duration: not in the run"
            timeline.notes.append(Note("stage_left_out", text))
    pieces.sort(key=lambda piece: piece.start)
    _name(pieces)
    if timeline.local_start is not None:
        timeline.notes.append(Note("no_zone", "times without a zone: the start cannot be placed in UTC; give --tz"))
    return timeline


def pieces_of(log: ImportedLog) -> list[Piece]:
    """The stages of a log that have a duration; a log without stages is one."""
    if log.duration_s is None:
        return []
    timed = [d for d in log.devices if (d.stats and d.stats.duration_s is not None) or d.counter is not None]
    if timed:
        return _measured(log, timed)
    stages = log.stages or [_whole(log)]
    return [
        Piece(log, stage, stage.start if log.time_kind else None, max(stage.duration_s, SHORTEST_S), log.devices)
        for stage in stages
        if stage.duration_s is not None and stage.duration_s >= 0
    ]


def _measured(log: ImportedLog, devices: list[LoggedDevice]) -> list[Piece]:
    starts = [d.stats.start for d in devices if d.stats and d.stats.start is not None]
    origin = min(starts, default=0.0)
    assert log.duration_s is not None
    stage = log.stages[0] if log.stages else LoggedStage(log.path.stem, "other", origin, log.duration_s)
    return [Piece(log, stage, origin, log.duration_s + SHORTEST_S, devices)]


def _whole(log: ImportedLog) -> LoggedStage:
    energy = {device.key: device.energy_j for device in log.devices}
    return LoggedStage(log.path.stem, "other", None, log.duration_s, energy)


def _place_by_time(pieces: list[Piece], kinds: set[str | None]) -> bool:
    """Real times, where every piece has one and no two need a device at once."""
    if any(piece.origin is None for piece in pieces) or len(kinds) != 1 or None in kinds:
        return False
    if kinds == {"elapsed"} and len({id(piece.log) for piece in pieces}) > 1:
        return False
    order = sorted(pieces, key=lambda piece: piece.origin or 0.0)
    zero = order[0].origin or 0.0
    for piece in order:
        piece.start = (piece.origin or 0.0) - zero
    for before, after in pairwise(order):
        if after.start >= before.end:
            continue
        if before.end - after.start <= ROUNDING_S:
            after.start = before.end
        elif not _apart(order):
            return False
    return True


def same_device_twice(pieces: list[Piece]) -> list[Note]:
    """Devices of one key that two files hold at the same time: one device logged twice, or two machines."""
    notes: list[Note] = []
    if len({id(piece.log) for piece in pieces}) < 2:
        return notes
    order = sorted(pieces, key=lambda piece: piece.start)
    for number, a in enumerate(order):
        for b in islice(order, number + 1, None):
            if b.start >= a.end or len(notes) >= MOST_NOTES:
                break
            if b.log is a.log:
                continue
            shared = sorted({d.key for d in a.devices} & {d.key for d in b.devices})
            if shared:
                names = f"{a.log.path.name} and {b.log.path.name}"
                text = (
                    f"{names} both hold {', '.join(shared[:8])} at the same time: if it is one device it counts twice"
                )
                notes.append(Note("same_device_twice", text))
    return notes


def _apart(pieces: list[Piece]) -> bool:
    """Whether stages may run at once: GPUs only, of different files."""
    return all(d.kind == "gpu" for p in pieces for d in p.devices) and len({id(p.log) for p in pieces}) == len(pieces)


def _place_end_to_end(timeline: Timeline) -> None:
    t = 0.0
    for piece in timeline.pieces:
        piece.start = t
        t = piece.end
    if len(timeline.pieces) > 1:
        text = "stages lie end to end in the run: their times overlap, or the files do not give them"
        timeline.notes.append(Note("laid_end_to_end", text))


def _name(pieces: list[Piece]) -> None:
    """Give each piece a name of its own."""
    used: dict[str, int] = {}
    for piece in pieces:
        base = piece.stage.name or piece.log.path.stem or "stage"
        used[base] = used.get(base, 0) + 1
        piece.name = base if used[base] == 1 else f"{base}#{used[base]}"
