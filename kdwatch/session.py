"""Measuring stages inside a program of your own.

    import kdwatch

    with kdwatch.stage("train") as s:
        for batch in data:
            train(batch)
            s.add_tokens(batch.tokens)
    print(s.measurement())

A recorder process reads the sensors; this process only says when stages begin and end. No fault of measuring
raises here or changes how the program runs: it is logged (logger `kdwatch`), and the measurement is None.
"""

from __future__ import annotations

import atexit
import contextvars
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdwatch import progress

if TYPE_CHECKING:
    from kdwatch.pipeline.client import RecorderClient

log = logging.getLogger("kdwatch")

REPORT_S = 0.5
"""Least time between two reports of tokens."""
RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Where launchers say which of a host's processes this is: only the first one records."""


@dataclass(frozen=True)
class DeviceEnergy:
    """Energy of one device in one window."""

    id: str
    """UUID of a GPU, `rapl:package-0`, `estimate:cpu`."""
    name: str
    kind: str
    """`gpu`, `cpu`, `dram`, `ram_estimated` or `other`."""
    index: int | None
    """Position in the vendor's order."""
    energy_j: float
    source: str
    """`counter`, `integrated` or `estimated`."""


@dataclass(frozen=True)
class Measurement:
    """Time and energy of one window, stages nested in it included."""

    name: str
    time: float
    """Seconds."""
    devices: tuple[DeviceEnergy, ...]

    @property
    def total_energy(self) -> float | None:
        """Joules of all devices that could be read or estimated; None if there was none."""
        return sum(d.energy_j for d in self.devices) if self.devices else None

    @property
    def gpu_energy(self) -> dict[int, float]:
        """Joules by GPU index."""
        return {d.index or 0: d.energy_j for d in self.devices if d.kind == "gpu"}

    def _of(self, kind: str) -> dict[str, float]:
        return {d.id: d.energy_j for d in self.devices if d.kind == kind}

    @property
    def cpu_energy(self) -> dict[str, float]:
        """Joules by CPU package."""
        return self._of("cpu")

    @property
    def dram_energy(self) -> dict[str, float]:
        """Measured joules by memory zone."""
        return self._of("dram")


class StageHandle:
    """A stage that runs, or has run, in this process."""

    def __init__(self, session: Session, name: str, window: int) -> None:
        self.name = name
        self._session = session
        self._window = window
        self._start = time.monotonic()
        self._end: float | None = None
        self._reported = 0.0
        self._found: Measurement | None = None

    def add_tokens(self, tokens: int, input_tokens: int = 0) -> None:
        """Count tokens that this stage processed, on top of those before."""
        self._session._count(self.name, int(tokens), int(input_tokens))
        now = time.monotonic()
        if now - self._reported >= REPORT_S:
            self._reported = now
            self._session._report_counts(self.name)

    def progress(self, *, step: int | None = None, total_steps: int | None = None, loss: float | None = None) -> None:
        """Say how far it is."""
        fields = {"step": step, "total_steps": total_steps, "loss": loss}
        self._session._event("progress", self.name, **{k: v for k, v in fields.items() if v is not None})

    def phase(self, name: str) -> None:
        """A phase (`import`, `load`, `work`, `save`) begins."""
        self._session._event("phase", self.name, name=name)

    def measurement(self) -> Measurement | None:
        """Time and energy of this window so far, or whole once it has ended (waits up to about half a second); None
        where nothing could be measured."""
        if self._found is not None:
            return self._found
        answer = self._session._query(self._window)
        end = self._end
        if answer is None:
            return None
        duration = (end if end is not None else time.monotonic()) - self._start
        found = Measurement(self.name, duration, tuple(DeviceEnergy(**d) for d in answer))
        if end is not None:
            self._found = found
        return found


_stack: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("kdwatch_stages", default=())
"""Names of the stages open in this thread or task, outermost first."""


class Session:
    """One run, recorded while this process works. The recorder starts with the first stage.

    `stage` is a context manager; `begin_window` and `end_window` are the same in two calls.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        home: str | Path | None = None,
        region: str | None = None,
        intensity: float | None = None,
        pue: float | None = None,
    ) -> None:
        """`region` (ISO 3166 alpha-3) or `intensity` (g CO2e/kWh) and `pue` go into the report."""
        self.name = fit_name(name or Path(sys.argv[0] or "python").stem or "python")
        self._env = {"KDWATCH_HOME": str(Path(home).expanduser().absolute())} if home else {}
        self._accounting = {"region": region, "intensity_g_per_kwh": intensity, "pue": pue}
        self._lock = threading.RLock()
        self._client: RecorderClient | None = None
        self._state = "new"
        self._windows = itertools.count(1)
        self._counts: dict[str, list[int]] = {}
        self._named: dict[str, StageHandle] = {}
        self._tokens: dict[str, contextvars.Token[tuple[str, ...]]] = {}
        self._pid = os.getpid()

    @property
    def run(self) -> Path | None:
        """The run directory; None before the first stage, or where nothing is recorded."""
        return self._client.run if self._client else None

    # -- for users

    @contextmanager
    def stage(self, name: str, kind: str = "other") -> Iterator[StageHandle]:
        """Measure the block as a stage. The same name may come again (its windows add up), and stages nest: energy
        goes to the innermost one. `kind`: `prerun`, `preprocess`, `teacher`, `student`, `evaluate`, `other`."""
        handle = self._begin(name, kind)
        token = _stack.set((*_stack.get(), handle.name))
        try:
            yield handle
        except BaseException:
            self._finish(handle, "failed", 1)
            raise
        else:
            self._finish(handle, "completed", 0)
        finally:
            _stack.reset(token)

    def begin_window(self, key: str, kind: str = "other") -> None:
        """Begin a window; `end_window` with the same key ends it. A key that is open already begins anew."""
        if key in self._named:
            log.warning("window %r was open: it begins anew", key)
            self.end_window(key)
        self._named[key] = self._begin(key, kind)

    def end_window(self, key: str) -> Measurement | None:
        """End a window; its time and energy, None where nothing could be measured or no such window is open."""
        handle = self._named.pop(key, None)
        if handle is None:
            log.warning("no window %r is open", key)
            return None
        self._finish(handle, "completed", 0)
        return handle.measurement()

    def close(self) -> None:
        """End the run. Also done when the process ends."""
        with self._lock:
            client, self._client = self._client, None
            self._state = "closed"
        if client is not None and self._pid == os.getpid():
            self._guarded(lambda: client.close(2.0, status="completed", exit_code=0))

    # -- inside

    def _begin(self, name: str, kind: str) -> StageHandle:
        t = time.monotonic()
        handle = StageHandle(self, fit_name(name), next(self._windows))
        self._guarded(lambda: self._start_recording(handle, kind, t))
        handle._start = time.monotonic()
        return handle

    def _start_recording(self, handle: StageHandle, kind: str, t: float) -> None:
        client = self._open()
        if client is None:
            if self._state == "inside":
                progress.phase(handle.name)
            return
        parents = [name for name in _stack.get() if name != handle.name]
        client.send(
            "start",
            stage=handle.name,
            kind=kind,
            t=time.monotonic(),
            window=handle._window,
            parent=parents[-1] if parents else None,
        )

    def _finish(self, handle: StageHandle, status: str, exit_code: int) -> None:
        handle._end = time.monotonic()
        self._guarded(lambda: self._end_recording(handle, status, exit_code))

    def _end_recording(self, handle: StageHandle, status: str, exit_code: int) -> None:
        self._report_counts(handle.name)
        if self._state == "inside":
            outer = [name for name in _stack.get() if name != handle.name]
            progress.phase(outer[-1] if outer else "work")
        elif self._client is not None:
            self._client.send(
                "end", stage=handle.name, t=handle._end, window=handle._window, status=status, exit_code=exit_code
            )

    def _open(self) -> RecorderClient | None:
        """The recorder, started on first use; None where this process does not record."""
        with self._lock:
            if self._state != "new":
                return self._client
            self._state = self._place()
            if self._state == "recording":
                self._state = "failed"
                self._client = self._start_client()
                self._state = "recording"
            return self._client

    def _place(self) -> str:
        """Who records this process: itself, the run that it is a stage of, or the first process of the host."""
        if os.environ.get("KDWATCH_EVENTS"):
            return "inside"
        ranks = [os.environ[name] for name in RANKS if os.environ.get(name)]
        return "other_rank" if any(rank != "0" for rank in ranks[:1]) else "recording"

    def _start_client(self) -> RecorderClient:
        from kdwatch.pipeline.client import RecorderClient

        spec: dict[str, Any] = {"mode": "attached", "name": self.name, "stages": [], **self._accounting}
        spec["client_pid"] = os.getpid()
        client = RecorderClient(spec, self._env)
        atexit.register(self.close)
        return client

    def _count(self, name: str, tokens: int, input_tokens: int) -> None:
        with self._lock:
            counts = self._counts.setdefault(name, [0, 0])
            counts[0] += tokens
            counts[1] += input_tokens

    def _report_counts(self, name: str) -> None:
        counts = self._counts.get(name)
        if counts is None:
            return
        if self._state == "inside":
            totals = [sum(column) for column in zip(*self._counts.values(), strict=True)]
            progress.progress(tokens=totals[0], input_tokens=totals[1] or None)
        else:
            self._event("progress", name, tokens=counts[0], input_tokens=counts[1] or None)

    def _event(self, kind: str, stage: str, **fields: Any) -> None:
        if self._state == "inside":
            progress.emit(kind, **fields)
        elif self._client is not None:
            client = self._client
            self._guarded(lambda: client.send("event", type=kind, stage=stage, t=time.monotonic(), **fields))

    def _query(self, window: int) -> list[Mapping[str, Any]] | None:
        client = self._client
        if client is None:
            return None
        return self._guarded(lambda: client.query(window))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Run something of ours; what goes wrong is logged."""
        try:
            return call()
        except Exception as error:
            log.warning("not measured: %s", error)
            return None


def fit_name(name: str) -> str:
    """A stage's name made fit for files: other characters become `-`, at most 64."""
    fit = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in str(name)).lstrip("._-")[:64]
    return fit or "stage"


_default: Session | None = None
_default_lock = threading.Lock()


def default_session() -> Session:
    """The session of `kdwatch.stage`; a fork of this process gets one of its own."""
    global _default
    with _default_lock:
        if _default is None or _default._pid != os.getpid():
            _default = Session()
        return _default


def stage(name: str, kind: str = "other") -> Any:
    """`with kdwatch.stage("train") as s:` measures the block (see `Session.stage`)."""
    return default_session().stage(name, kind)


def begin_window(key: str, kind: str = "other") -> None:
    """Begin a window of the default session."""
    default_session().begin_window(key, kind)


def end_window(key: str) -> Measurement | None:
    """End a window of the default session: its time and energy."""
    return default_session().end_window(key)
