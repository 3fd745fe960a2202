"""Ends what `kdwatch exec` started when the exec process itself is killed, even if its recorder is killed with it.

A fork in a session of its own waits on a pipe. A farewell means that the command has ended; end of file without one
means that exec is dead. Then the recorder asks the command to end (TERM), and the sentinel kills what is left of it.
"""

from __future__ import annotations

import os
import time

from kdwatch.pipeline import processes

ORPHAN_GRACE_S = 1.0
"""Between TERM and KILL for a command that nobody waits for."""
KILL_LIMIT_S = 2.0
FAREWELL = b"k"


class Sentinel:
    """The fork, seen from the exec process."""

    def __init__(self, token: str) -> None:
        read, self._write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._write)
                _watch_over(read, token)
            finally:
                os._exit(0)
        os.close(read)

    def dismiss(self) -> None:
        """The command has ended: nothing is left to do."""
        try:
            os.write(self._write, FAREWELL)
        except OSError:
            pass
        os.close(self._write)
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass


def _watch_over(read: int, token: str) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, read)  # a pipe of the caller must see its end when exec ends
    os.closerange(read + 1, read + 1024)
    if os.read(read, 1) != FAREWELL:
        time.sleep(ORPHAN_GRACE_S)
        processes.kill_until_gone(lambda: processes.holders(token), KILL_LIMIT_S)
