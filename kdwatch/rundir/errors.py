"""What goes wrong for a person: one line that says what, where and what to do."""

from __future__ import annotations


class UsageProblem(Exception):
    """Bad input. Its text is one line: what is wrong, where, and what to do. The command line exits 2."""


class RunNotFound(UsageProblem):
    """No run, or more than one, answers to what was given."""


class NotARun(UsageProblem):
    """A directory or file that is no run directory."""


class NewerSchema(UsageProblem):
    """A run directory of a schema that this version cannot read."""


class WriteProblem(Exception):
    """The run directory cannot be written (disk full, unwritable). Recording goes on in memory."""
