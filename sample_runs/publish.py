"""Copy recorded runs so that they can be given away: `python sample_runs/publish.py FOLDER RUN...`.

What names a machine or a person is taken out: host and boot ids, kernel, names of environment variables, paths in logs.
The stages' configurations and their own event files are left out; events.jsonl has what they reported. Numbers stay as
they were recorded. Fails where something that looks like a path, a UUID, this host or this user is left.
"""

from __future__ import annotations

import argparse
import getpass
import json
import re
import shutil
import socket
import sys
from pathlib import Path

LEFT_OUT = ("stages", "progress", "control")
KEPT_VARIABLES = {"PATH", "HOME", "LANG", "TERM", "KDWATCH_HOME"}
PATHS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+[\w.+-]*")
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)


def publish(run: Path, folder: Path) -> Path:
    """A cleaned copy of one run below `folder`, named as its run is."""
    manifest = json.loads((run / "manifest.json").read_text())
    target = folder / manifest["name"]
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(run, target, ignore=shutil.ignore_patterns(*LEFT_OUT, "recorder.log"))
    manifest["recorder"] = {"pid": 0, "start_time": 0, "boot_id": "", "host_hash": ""}
    manifest["versions"]["system"] = str(manifest["versions"].get("system", "")).split(" ")[0]
    manifest["environment"] = sorted(KEPT_VARIABLES & set(manifest.get("environment", [])))
    manifest["git"] = None
    manifest.pop("folder", None)
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    for log in (target / "logs").glob("*.log"):
        log.write_text(PATHS.sub("PATH", log.read_text(errors="replace")))
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def traces(run: Path) -> list[str]:
    """What is left of the machine in a published run's text files: "FILE: WHAT"."""
    names = {socket.gethostname(), getpass.getuser(), str(Path.home())} - {"root", "localhost", "vm", "/root"}
    found = []
    for path in sorted(p for p in run.rglob("*") if p.suffix in (".json", ".jsonl", ".log", ".csv")):
        text = path.read_text(errors="replace")
        hits = [
            *UUID.findall(text),
            *(name for name in names if name in text),
            *re.findall(r"/(?:home|root|Users)/\S+", text),
        ]
        found += [f"{path.relative_to(run)}: {hit}" for hit in hits]
    return found


def main() -> int:
    """Exit status: 1 where something is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    code = 0
    for run in options.runs:
        target = publish(run, options.folder)
        for trace in traces(target):
            print(f"{target}: {trace}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
