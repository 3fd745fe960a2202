"""The real program on a pseudo-terminal: what it writes, how it ends, what a terminal would show."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 90.0


class Terminal:
    """A child on a pty of its own: a Python module, or with `module` empty the command that `arguments` are.
    `wait_for` reads until a text is on the screen."""

    def __init__(
        self, arguments: list[str], size: tuple[int, int] = (120, 40), module: str = "kdwatch", **environment: str
    ) -> None:
        import pyte

        self.screen: Any = pyte.Screen(*size)
        self._stream: Any = pyte.ByteStream(self.screen)
        self.written = b""
        window = struct.pack("HHHH", size[1], size[0], 0, 0)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, window)
            # readline puts COLUMNS and LINES into the C environment behind os.environ's back: with an environment
            whole = {**os.environ, "TERM": "xterm-256color", **environment}
            command = [sys.executable, "-m", module, *arguments] if module else arguments
            os.execvpe(command[0], command, whole)

    def read(self, seconds: float) -> bytes:
        """What comes within `seconds`, as soon as it is silent for a tenth of them; fed to the screen too."""
        got = b""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                break
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                break
            if not data:
                break
            got += data
            self._feed(data)
        self.written += got
        return got

    def _feed(self, data: bytes) -> None:
        try:
            self._stream.feed(data)
        except Exception:
            return

    @property
    def text(self) -> str:
        """The screen now."""
        return "\n".join(self.screen.display)

    def wait_for(self, text: str) -> None:
        """Read until `text` is on the screen."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < end, f"{text!r} did not come:\n{self.text}"
            self.read(0.05)

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self.fd, keys.encode())

    def kill(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Read to the end; the exit status as a shell sees it."""
        end = time.monotonic() + PATIENCE_S
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read(0.2)
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError("did not end")


def restored(written: bytes) -> bool:
    """The alternate screen and the mouse were left, the cursor shown again: last word on each."""

    def off_after_on(on: bytes, off: bytes) -> bool:
        return on not in written or written.rfind(off) > written.rfind(on)

    pairs = [(b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")]
    pairs += [(b"\x1b[?%dh" % mode, b"\x1b[?%dl" % mode) for mode in (1000, 1003, 1006, 2004)]
    return all(off_after_on(on, off) for on, off in pairs)


def kdwatch_home(home: Path) -> dict[str, str]:
    """Environment of the program."""
    return {"KDWATCH_HOME": str(home), "KDWATCH_CONFIG": str(home / "config.toml"), "TEXTUAL_ANIMATIONS": "none"}
