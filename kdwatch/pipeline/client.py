"""The measured process's side of an attached recorder. No fault here may reach the user's work."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.pipeline.spawn import spawn, wait_for_answer


class RecorderClient:
    """A recorder that this process tells what runs. Methods after construction do not raise: a recorder that is gone
    costs the record, never the work."""

    def __init__(self, spec: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
        """Start the recorder and wait until it measures. Raises UsageProblem where it cannot."""
        self._process: subprocess.Popen[bytes] | None = spawn(spec, env)
        self._lock = threading.Lock()
        self._buffer = b""
        self._owner = os.getpid()
        first = wait_for_answer(self._process)
        self.run = Path(first["run"])
        self.pid = int(first["pid"])
        self.events: dict[str, str] = first.get("events") or {}
        assert self._process.stdin and self._process.stdout
        os.set_blocking(self._process.stdin.fileno(), False)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a fork of this process: let go of the pipes, so that their end is seen when the parent ends."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process:
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    try:
                        os.close(pipe.fileno())
                    except (OSError, ValueError):
                        pass

    @property
    def reply_fd(self) -> int | None:
        """Readable when the recorder says something."""
        process = self._process
        return process.stdout.fileno() if process and process.stdout and not process.stdout.closed else None

    def send(self, op: str, **fields: Any) -> bool:
        """One message; False if the recorder is gone or does not read."""
        with self._lock:
            return self._send(op, fields)

    def _send(self, op: str, fields: Mapping[str, Any]) -> bool:
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            return False
        data = json.dumps({"op": op, **fields}, default=str).encode() + b"\n"
        deadline = time.monotonic() + 1.0
        try:
            while data:
                _, ready, _ = select.select([], [process.stdin], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    return False
                data = data[os.write(process.stdin.fileno(), data) :]
        except (OSError, ValueError):
            return False
        return True

    def receive(self, limit_s: float = 0.0) -> dict[str, Any] | None:
        """The next message, waiting at most `limit_s`; None if there is none."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            fd = self.reply_fd
            left = max(0.0, deadline - time.monotonic())
            try:
                if fd is None or not select.select([fd], [], [], left)[0]:
                    return None
                data = os.read(fd, 65536)
            except (OSError, ValueError):
                return None
            if not data:
                self._close_pipes()
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            return None
        return message if isinstance(message, dict) else None

    def query(self, window: int, limit_s: float = 2.0) -> list[Mapping[str, Any]] | None:
        """Energy of a window by device; None if it is not known or the recorder does not answer in time."""
        with self._lock:
            id = f"{time.monotonic_ns()}"
            if not self._send("query", {"window": window, "id": id}):
                return None
            deadline = time.monotonic() + limit_s
            while (left := deadline - time.monotonic()) > 0:
                message = self.receive(left)
                if message is None:
                    return None
                if message.get("id") == id:
                    return message.get("devices")
        return None

    def close(self, wait_s: float = 5.0, **verdict: Any) -> bool:
        """End the run and wait until it is written; False if that was not seen in time."""
        if self._process is None or self._owner != os.getpid():
            return False
        ended = False
        if self.send("close", **verdict):
            deadline = time.monotonic() + wait_s
            while (left := deadline - time.monotonic()) > 0:
                message = self.receive(left)
                if message is None:
                    break
                if "ended" in message:
                    ended = True
                    break
        process = self._process
        self._close_pipes()
        if process is not None:
            try:
                process.wait(1.0 if ended else 0.0)
            except subprocess.TimeoutExpired:
                pass
        return ended

    def _close_pipes(self) -> None:
        process, self._process = self._process, None
        if process:
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    try:
                        pipe.close()
                    except OSError:
                        pass
