"""What `--redact` takes out of a report: hosts, users, paths, UUIDs, addresses; equal ones stay equal."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from typing import Any

UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
BUS_ID = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
PATH = re.compile(r"(?<![\w/.:])(?:~|\.{1,2})?(?:/[^\s/:;,'\"()<>|]+)+/?")
WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\[^\s;,'\"<>|]+|\\\\[^\s;,'\"<>|]+")
ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\b|\b\d{1,3}(?:\.\d{1,3}){3}\b")
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
NODE = re.compile(r"\b(?:node|nid|host|login|compute|worker)-?\d{2,}(?:\.[\w.-]+)?\b", re.IGNORECASE)
COMMON = {"root", "user", "localhost", "admin", "runner", "gpu", "cpu", "kdwatch", "main", "test"}
"""Names of users and hosts that say nothing and occur in ordinary text."""


class Redactor:
    """Replaces what names a person, a machine or a place in a file system."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names`: further words to take out, and what stands for them."""
        self._words = dict(names or {})
        for word, stands in ((_host(), "[host]"), (_host().split(".")[0], "[host]"), (_user(), "[user]")):
            if len(word) > 2 and word.lower() not in COMMON:
                self._words.setdefault(word, stands)
        self._ids: dict[str, str] = {}

    def text(self, value: str) -> str:
        """One string, cleaned."""
        value = UUID.sub(self._number, value)
        value = BUS_ID.sub(self._number, value)
        value = URL.sub("[url]", value)
        value = ADDRESS.sub("[address]", value)
        value = WINDOWS_PATH.sub("[path]", value)
        value = PATH.sub("[path]", value)
        for word, stands in self._words.items():
            value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", stands, value, flags=re.IGNORECASE)
        return NODE.sub("[host]", value)

    def _number(self, match: re.Match[str]) -> str:
        found = match[0].lower()
        return self._ids.setdefault(found, f"device-{len(self._ids) + 1}")

    def value(self, value: Any) -> Any:
        """Any JSON value; keys of objects too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def _host() -> str:
    try:
        return socket.gethostname()
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
