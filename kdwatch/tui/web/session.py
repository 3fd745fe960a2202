"""The process behind one browser tab: the app on textual's web driver, which speaks through pipes."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    """Run the app; started by the server only."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path)
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--replay", action="store_true")
    chosen = parser.parse_args()
    from kdwatch.tui.app import KdwatchApp

    KdwatchApp(chosen.run, readonly=not chosen.control, replay=chosen.replay).run()


if __name__ == "__main__":
    main()
