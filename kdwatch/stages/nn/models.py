"""Loading and saving causal language models, safetensors only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import transformers.utils.logging
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

from kdwatch import progress
from kdwatch.stages.data.tokenizer import FILES, TextTokenizer, model_directory
from kdwatch.stages.problem import StageProblem, first_line
from kdwatch.stages.settings import ModelSettings

transformers.utils.logging.disable_progress_bar()

_kept: dict[tuple[str, str, str], Any] | None = None
"""Teachers that are loaded, by (directory, device, number format), while `kept_loaded` holds; else None."""


def load_model(
    name: str,
    settings: ModelSettings,
    device: torch.device,
    *,
    dtype: torch.dtype,
    train: bool = False,
    role: str | None = None,
) -> Any:
    """A causal LM from a local path or the hub, on `device`; for a teacher without gradients and in eval mode.

    With `role` (`student`, `teacher`) its number of parameters is reported as an event.

    Raises StageProblem where it is missing, torn, or needs code that the recipe does not allow.
    """
    folder = model_directory(name, settings.revision, weights=True)
    same = (str(folder), str(device), str(dtype))
    if _kept is not None and same in _kept and not train:
        if role is not None:
            _report(_kept[same], role, kept=True)
        return _kept[same]
    if not (folder / "config.json").is_file():
        raise StageProblem(f"model: {folder} has no config.json: check the path in the recipe")
    if not any(folder.glob("*.safetensors")):
        raise StageProblem(
            f"model: {folder} has no .safetensors weights (pickled ones are not read): convert the model"
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=settings.trust_remote_code,
            use_safetensors=True,
            local_files_only=True,
        )
    except Exception as error:  # transformers and safetensors raise many kinds for a torn model
        if not settings.trust_remote_code and "trust_remote_code" in str(error):
            raise StageProblem(
                f"model: {folder} brings code of its own: read it, then allow it with trust_remote_code: true"
            ) from None
        raise StageProblem(f"model: {folder} cannot be loaded ({first_line(error)}): check or fetch it again") from None
    model = model.to(device)
    if role is not None:
        _report(model, role)
    if not train:
        model.requires_grad_(False)
        model.eval()
        if _kept is not None and role == "teacher":
            _kept[same] = model
    return model


def _report(model: Any, role: str, **more: bool) -> None:
    progress.emit("model", role=role, params=sum(p.numel() for p in model.parameters()), **more)


@contextmanager
def kept_loaded() -> Iterator[None]:
    """Inside, a teacher is loaded once for all that ask for it in the same way; it is let go at the end."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def import_class(name: str, revision: str | None) -> None:
    """Import the code of a model's architecture, which transformers does when it loads the first one."""
    folder = model_directory(name, revision, weights=True)
    with suppress(Exception):  # loading it says what is wrong
        MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(folder, local_files_only=True))]


def real_vocabulary(model: Any, tokenizer: TextTokenizer, what: str) -> tuple[int, int]:
    """(ids that mean a token, rows of the model's output); rows beyond the first are padding.

    Raises StageProblem where the tokenizer has ids that the model does not.
    """
    rows = int(model.config.get_text_config().vocab_size)
    if tokenizer.size > rows:
        raise StageProblem(
            f"{what}: the tokenizer has {tokenizer.size} ids but the model only {rows} rows: they do not "
            f"belong together"
        )
    return tokenizer.size, rows


def save_model(model: Any, folder: Path, tokenizer_from: Path) -> None:
    """Weights as safetensors, configuration, and the tokenizer's files beside them."""
    model.save_pretrained(folder)
    for name in FILES:
        source = tokenizer_from / name
        if source.is_file() and not (folder / name).exists():
            shutil.copyfile(source, folder / name)


def weights_hash(folder: Path) -> str:
    """SHA-256 over configuration and weight files: what the teacher is."""
    from kdwatch.stages.files import canonical_hash, sha256_file

    names = sorted(p.name for p in folder.iterdir() if p.suffix == ".safetensors" or p.name == "config.json")
    return canonical_hash([[n, sha256_file(folder / n)] for n in names])


def save_memory(model: Any) -> None:
    """Compute activations again in the backward pass instead of keeping them; named anew in transformers 5.24."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    if enable is not None:
        enable()
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
