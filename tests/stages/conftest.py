"""Models that every test of the stages may share: made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny `teacher` and `student` of one tokenizer; torch on one thread, since these are too small for two."""
    import torch
    from stages_help import tiny_model

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    return {
        "teacher": tiny_model(folder / "teacher", seed=1, hidden=24, layers=2),
        "student": tiny_model(folder / "student", seed=2, hidden=16),
    }
