"""A log by lines: long, growing, and kept in parts by the recorder while its stage runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tui_pilot import running, text_on, until
from tui_runs import Shape, make_run

from kdwatch.pipeline.caplog import CappedLog
from kdwatch.tui.logfile import LogFile
from kdwatch.tui.logparts import SEAM

SAID = SEAM.decode().strip()


def everything(log: LogFile) -> list[str]:
    """All lines, indexed to the end."""
    while log.grow():
        pass
    return log.lines(0, log.count)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_output_beyond_half_of_the_cap_is_seen_while_the_stage_runs(tmp_path: Path, batch: int) -> None:
    """A cap of 4 kB and 600 lines of 18 bytes: at each moment head and newest lines are there in order, the last line
    written the last one shown; what lies between is said. After the end the file itself is shown."""
    path = tmp_path / "s.log"
    capped, log = CappedLog(str(path), 4000), LogFile(path)
    for first in range(0, 600, batch):
        for n in range(first, min(first + batch, 600)):
            capped.write(f"line number {n:>5}\n".encode())
        last = f"line number {min(first + batch, 600) - 1:>5}"
        lines = everything(log)
        assert lines[-1] == last == log.tail(1)[0]
        assert lines[0] == "line number     0" and len(lines) <= 4000 // 18 + 4
        whole = [int(line[-5:]) for line in lines if line.startswith("line number") and len(line) == 17]
        assert whole == sorted(set(whole))
        assert (SAID in lines) == (SAID in log.tail(10_000)) == path.with_name("s.log.tail.old").exists()
    found = log.find("line number   599", 0)
    assert found is not None and log.lines(found, found + 1) == ["line number   599"]
    capped.close()
    assert everything(log) == path.read_text().split("\n")[:-1]
    assert everything(log)[-1] == "line number   599" and SAID not in everything(log)
    assert log.find("bytes of output are not kept here", 0) is not None


def test_a_log_that_is_replaced_or_removed_is_read_anew(tmp_path: Path) -> None:
    """Shorter, gone, back again."""
    path = tmp_path / "s.log"
    log = LogFile(path)
    assert everything(log) == [] == log.tail(5)
    for text in ("one\ntwo\nthree\n", "four\n", "five\nsix"):
        path.write_text(text)
        assert everything(log) == text.split("\n")[: text.count("\n") + (not text.endswith("\n"))]
    path.unlink()
    assert everything(log) == []


async def test_the_log_screen_follows_the_newest_output_of_a_capped_log(own_home: Path) -> None:
    """As a person sees it: the pane of the Run screen and the Log screen show the line that was written last."""
    run = make_run(own_home / "runs" / "r", Shape(until=100.0))
    capped = CappedLog(str(run / "logs" / "teacher logits.log"), 4000)
    for n in range(500):
        capped.write(f"step {n}\n".encode())
    async with running(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "step 499" in text_on(app), "the pane")
        await pilot.press("5")
        await until(pilot, lambda: "step 499" in text_on(app), "the screen")
        capped.write(b"step 500\n")
        await until(pilot, lambda: "step 500" in text_on(app), "the next line")
        await pilot.press("slash", *"only the newest", "enter")
        await until(pilot, lambda: SAID in text_on(app), "the seam")
