"""Commands of the user's config that a notice calls. Never from a run directory, never through a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from kdwatch.tui.frame import Frame, Notice


def call(hooks: Mapping[str, Sequence[str]], notice: Notice, frame: Frame | None) -> bool:
    """Start the command hooked to this kind of notice, if any; the screen does not wait for it.

    The command finds KDWATCH_NOTICE, KDWATCH_NOTICE_TEXT and KDWATCH_NOTICE_RUN in its environment.
    """
    command = hooks.get(notice.kind)
    if not command:
        return False
    environment = {
        **os.environ,
        "KDWATCH_NOTICE": notice.kind,
        "KDWATCH_NOTICE_TEXT": notice.text,
        "KDWATCH_NOTICE_RUN": frame.run.run_id if frame else "",
    }
    try:
        subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
