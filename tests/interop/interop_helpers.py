"""What several tests of imports use."""

from __future__ import annotations

from typing import Any


def codes(entry: dict[str, Any]) -> set[str]:
    """Codes of the warnings of an object."""
    return {warning["code"] for warning in entry["warnings"]}
