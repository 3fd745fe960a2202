"""How many tokens an evaluation went through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Prompt and output tokens so far."""

    prompt: int = 0
    output: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and output together: what an evaluation's J/token divides by."""
        return self.prompt + self.output

    def add(self, prompt: int, output: int) -> None:
        """Count a batch."""
        self.prompt += prompt
        self.output += output
